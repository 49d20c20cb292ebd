package drill

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weirqueue/weir/internal/smtpsink"
	"github.com/weirqueue/weir/jobs"
	"github.com/weirqueue/weir/workers"
	"github.com/weirqueue/weir/workers/channel/email"
)

const (
	deliveryQueue = "weir_drill_delivery"
	envSMTP       = "smtp"
)

// deliveries is the subject of mails. The mail server in the parent counts them.
type deliveries struct {
	sink *smtpsink.Sink

	mu    sync.Mutex
	rng   *rand.Rand
	mails map[string]int // by the local part of the Message-ID: the run, a dot and the step
}

func newDeliveries(seed uint64) *deliveries {
	return &deliveries{rng: rand.New(rand.NewPCG(seed, 13)), mails: map[string]int{}} // #nosec G404 -- a seed is to be repeated
}

func (*deliveries) Name() string { return "delivery" }
func (*deliveries) Kind() string { return jobs.KindDelivery }

func (d *deliveries) Setup(context.Context, *pgxpool.Pool) (env map[string]string, err error) {
	d.sink, err = smtpsink.Start(smtpsink.Config{Behaviour: d.behave, OnMail: d.received, Keep: 1})
	if err != nil {
		return nil, err
	}
	return map[string]string{envSMTP: d.sink.Addr()}, nil
}

func (d *deliveries) Close() error {
	if d.sink == nil {
		return nil
	}
	return d.sink.Close()
}

// behave makes some conversations slow, refuses some for now, and loses some answers.
func (d *deliveries) behave(smtpsink.Attempt) smtpsink.Action {
	d.mu.Lock()
	chance, late := d.rng.IntN(100), time.Duration(50+d.rng.IntN(600))*time.Millisecond
	d.mu.Unlock()
	switch {
	case chance < 2:
		return smtpsink.Refuse(451, "4.3.0", "come back later")
	case chance < 4:
		return smtpsink.DropAnswer()
	}
	time.Sleep(late)
	return smtpsink.Accept()
}

func (d *deliveries) received(m smtpsink.Mail) {
	local, _, _ := strings.Cut(strings.Trim(m.MessageID, "<>"), "@")
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mails[local]++
}

func (d *deliveries) Enqueue(ctx context.Context, tx pgx.Tx, client *jobs.Client, n int64) (jobs.RunID, error) {
	note, opts := d.numbered(n)
	res, err := client.NotifyTx(ctx, tx, note, opts)
	if err != nil {
		return jobs.RunID{}, err
	}
	return res.Runs[0].ID, nil
}

// EnqueueMany asks for deliveries that share a River job.
func (d *deliveries) EnqueueMany(ctx context.Context, tx pgx.Tx, client *jobs.Client, first int64, n int) ([]jobs.RunID, error) {
	params := make([]jobs.NotifyParams, n)
	for i := range params {
		params[i].Notification, params[i].Opts = d.numbered(first + int64(i))
	}
	results, err := client.NotifyManyTx(ctx, tx, params)
	if err != nil {
		return nil, err
	}
	ids := make([]jobs.RunID, n)
	for i, res := range results {
		ids[i] = res.Runs[0].ID
	}
	return ids, nil
}

func (*deliveries) numbered(n int64) (jobs.Notification, *jobs.Opts) {
	return jobs.Notification{
		To: []jobs.Recipient{jobs.Email(fmt.Sprintf("drill%d@example.com", n))}, Subject: "drill", Text: "number " + strconv.FormatInt(n, 10),
	}, &jobs.Opts{MaxAttempts: 100, Queue: deliveryQueue}
}

func (*deliveries) Work(cfg *workers.Config, env map[string]string, limits Limits) error {
	host, port, err := net.SplitHostPort(env[envSMTP])
	if err != nil {
		return fmt.Errorf("drill: the mail server's address: %w", err)
	}
	number, err := strconv.Atoi(port)
	if err != nil {
		return fmt.Errorf("drill: the mail server's port: %w", err)
	}
	ch, err := email.New(email.Config{
		Host: host, Port: number, From: "weir@example.com", TLS: email.TLSNone, HELO: "drill.localhost",
		SendTimeout: limits.StepTime / 2, MaxConns: limits.MaxWorkers, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return err
	}
	addChannel(cfg, "email", ch)
	cfg.Delivery = workers.DeliveryConfig{
		Queue: deliveryQueue, MaxWorkers: limits.MaxWorkers, Lease: limits.Lease, StepTime: limits.StepTime, Backoff: limits.Backoff,
	}
	return nil
}

// Check compares the receipts with the mails.
func (d *deliveries) Check(_ context.Context, _ *pgxpool.Pool, records *Records) (Effects, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var all Effects
	for _, run := range records.Runs(jobs.KindDelivery) {
		all.Faults = append(all.Faults, run.unexplained(false)...) // the mail server refuses for now, never for good
		all.add(run.outside(0, d.mails[run.ID.String()+".0"], 1+run.Unknown[0]))
	}
	return all, nil
}
