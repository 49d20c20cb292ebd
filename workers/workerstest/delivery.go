package workerstest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/weirqueue/weir/internal/delivery"
	"github.com/weirqueue/weir/internal/doorbell"
	"github.com/weirqueue/weir/jobs"
	"github.com/weirqueue/weir/workers"
	"github.com/weirqueue/weir/workers/channel"
)

// deliveries is what a channel is to the suite: its name, its effect, and the parts of its messages.
type deliveries struct {
	ChannelConfig
	name   string
	effect channel.Effect
	steps  []jobs.Step

	mu sync.Mutex
	// messages are those that the channels were given, by their keys; changed are the keys of those that did not stay the
	// same.
	messages map[string]channel.Message
	changed  map[string]bool
}

// subject is what a channel is to the suite. It asks one channel for its effect, and makes one notification, which it
// takes back, to learn of how many parts they are.
func (c ChannelConfig) subject(ctx context.Context) (subject, error) {
	c = c.withDefaults()
	if err := c.validate(); err != nil {
		return subject{}, err
	}
	d := &deliveries{ChannelConfig: c, messages: map[string]channel.Message{}, changed: map[string]bool{}}
	ch, err := c.Channel()
	if err != nil {
		return subject{}, fmt.Errorf("workerstest: ChannelConfig.Channel: %w", err)
	}
	d.effect = ch.Effect()
	if err := closeChannel(ch); err != nil {
		return subject{}, err
	}
	if err := d.learn(ctx); err != nil {
		return subject{}, err
	}
	more := []stepScenario{{"context ended before", func(ctx context.Context, x *scene, step int) error { return x.endedBefore(ctx, step, d.taken()) }}}
	if c.Silence != nil {
		more = append(more, stepScenario{"provider silent", func(ctx context.Context, x *scene, step int) error {
			return x.silent(ctx, step, c.Silence)
		}})
	}
	sub := subject{
		pool: c.Pool, schema: c.Schema, lease: c.Lease, kind: jobs.KindDelivery, queue: doorbell.QueueOf(jobs.KindDelivery),
		steps: d.steps, succeeded: jobs.StatusSent, equip: d.equip, task: d.task, more: more,
	}
	if c.RefsVary {
		for _, s := range d.steps {
			sub.outputsVary = append(sub.outputsVary, s.Name)
		}
	}
	return sub, nil
}

func (d *deliveries) learn(ctx context.Context) error {
	client, err := jobs.NewClient(d.Pool, &jobs.Config{Schema: d.Schema, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	tx, err := d.Pool.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	_, payload, err := notify(ctx, tx, client, d.Notification(0))
	if err != nil {
		return err
	}
	d.name = payload.Channel
	d.steps = []jobs.Step{{Name: "send", Effect: jobs.Effect(d.effect)}}
	if n := len(payload.Parts); n > 1 {
		d.steps = make([]jobs.Step, n)
		for i := range d.steps {
			d.steps[i] = jobs.Step{Name: fmt.Sprintf("part_%d", i+1), Effect: jobs.Effect(d.effect)}
		}
	}
	return nil
}

// notify makes a notification of one delivery, and says what was frozen of it.
func notify(ctx context.Context, tx pgx.Tx, client *jobs.Client, n jobs.Notification) (id jobs.RunID, payload delivery.Payload, err error) {
	res, err := client.NotifyTx(ctx, tx, n, nil)
	if err != nil {
		return id, payload, fmt.Errorf("workerstest: ChannelConfig.Notification: %w", err)
	}
	if len(res.Runs) != 1 {
		return id, payload, fmt.Errorf("workerstest: ChannelConfig.Notification has %d recipients: must be one", len(res.Runs))
	}
	id = res.Runs[0].ID
	var body, digest []byte
	err = tx.QueryRow(ctx, "select body, digest from weir.payload where run_id = $1", uuid.UUID(id)).Scan(&body, &digest)
	if err != nil {
		return id, payload, err
	}
	payload, err = delivery.Decode(body, digest)
	return id, payload, err
}

func (d *deliveries) equip(cfg *workers.Config, around around) (func() error, error) {
	ch, err := d.Channel()
	if err != nil {
		return nil, err
	}
	release := func() error { return closeChannel(ch) }
	if e := ch.Effect(); e != d.effect {
		return release, fmt.Errorf("the channel's effect is %s, and was %s: it must be constant", e, d.effect)
	}
	cfg.Channels = map[string]channel.Channel{d.name: &watched{Channel: ch, deliveries: d, around: around}}
	cfg.Delivery = workers.DeliveryConfig{MaxWorkers: 1, Lease: d.Lease, StepTime: stepTimes * d.Lease, Backoff: tries}
	return release, nil
}

func closeChannel(ch channel.Channel) error {
	if c, ok := ch.(io.Closer); ok {
		if err := c.Close(); err != nil {
			return fmt.Errorf("close the channel: %w", err)
		}
	}
	return nil
}

func (d *deliveries) task(i int) task {
	n := d.Notification(i)
	return task{
		enqueue: func(ctx context.Context, client *jobs.Client) (id jobs.RunID, err error) {
			err = pgx.BeginFunc(ctx, d.Pool, func(tx pgx.Tx) error {
				var payload delivery.Payload
				if id, payload, err = notify(ctx, tx, client, n); err != nil {
					return err
				}
				if parts := max(len(payload.Parts), 1); payload.Channel != d.name || parts != len(d.steps) {
					return fmt.Errorf("notification %d is for %s, in %d parts, and the first for %s, in %d: must be the same",
						i, payload.Channel, parts, d.name, len(d.steps))
				}
				return nil
			})
			return id, err
		},
		check: func(ctx context.Context, run *jobs.Run, receipts []jobs.Receipt, calls []*call) error {
			var faults []error
			for step := range d.steps {
				of := slices.DeleteFunc(slices.Clone(calls), func(c *call) bool { return c.Step != step })
				faults = append(faults, d.verifyRef(receipts, step, of), d.verifyTaken(ctx, run, step, of))
			}
			return errors.Join(append(faults, checked(d.Check(ctx, d.Pool, run, n)))...)
		},
	}
}

// watched is the channel of one process, with the suite around each Send.
type watched struct {
	channel.Channel
	*deliveries
	around around
}

func (w *watched) Send(ctx context.Context, m channel.Message) (channel.Sent, error) {
	run, err := jobs.ParseRunID(m.RunID)
	if err != nil {
		return channel.Sent{}, err
	}
	w.see(m)
	step := m.Part - 1
	sc := workers.StepCall{Kind: jobs.KindDelivery, Run: run, Step: step, Name: w.steps[step].Name, Effect: jobs.Effect(w.effect)}
	out, err := w.around(ctx, sc, func(ctx context.Context) (any, error) { return w.Channel.Send(ctx, m) })
	sent, _ := out.(channel.Sent) // an error comes with none
	return sent, err
}

func (d *deliveries) see(m channel.Message) {
	d.mu.Lock()
	defer d.mu.Unlock()
	first, ok := d.messages[m.IdempotencyKey]
	if !ok {
		d.messages[m.IdempotencyKey] = m
		return
	}
	if m.CreatedAt.Equal(first.CreatedAt) {
		m.CreatedAt = first.CreatedAt
	}
	if m != first {
		d.changed[m.IdempotencyKey] = true
	}
}

// verifyRef compares what is recorded of a step with what Send returned.
func (d *deliveries) verifyRef(receipts []jobs.Receipt, step int, calls []*call) error {
	if step >= len(receipts) {
		return nil // a fault already
	}
	var returned []string
	for _, c := range calls {
		if sent, ok := c.out.(channel.Sent); ok && c.err == nil {
			returned = append(returned, sent.ExternalRef)
		}
	}
	if ref := receipts[step].ExternalRef; !slices.Contains(returned, ref) {
		return fmt.Errorf("step %s has the reference %q, and Send returned %q: must be at most 500 bytes that PostgreSQL can store",
			d.steps[step].Name, ref, returned)
	}
	return nil
}

// taken asks the provider for a step's message; nil where it cannot be asked.
func (d *deliveries) taken() func(ctx context.Context, run jobs.RunID, step int) (int, error) {
	if d.Taken == nil {
		return nil
	}
	return func(ctx context.Context, run jobs.RunID, step int) (int, error) {
		d.mu.Lock()
		m := d.messages[fmt.Sprintf("%s:%d", run, step)]
		d.mu.Unlock()
		n, err := d.Taken(ctx, m)
		if err != nil {
			err = fmt.Errorf("Taken: %w", err)
		}
		return n, err
	}
}

// verifyTaken compares what the provider has of a step with the calls of Send that may have sent it.
func (d *deliveries) verifyTaken(ctx context.Context, run *jobs.Run, step int, calls []*call) error {
	name, key := d.steps[step].Name, fmt.Sprintf("%s:%d", run.ID, step)
	d.mu.Lock()
	changed := d.changed[key]
	d.mu.Unlock()
	if changed {
		return fmt.Errorf("step %s was not the same message on every try", name)
	}
	if d.Taken == nil {
		return nil
	}
	n, err := d.taken()(ctx, run.ID, step)
	if err != nil {
		return err
	}
	most := 0
	for _, c := range calls {
		if !errors.Is(c.err, channel.ErrNotSent) {
			most++
		}
	}
	if d.effect == channel.Idempotent {
		most = min(most, 1)
	}
	if n < 1 || n > most {
		return fmt.Errorf("step %s (%s) was taken by the provider %d times: must be from 1 to %d, after %d calls of Send",
			name, d.effect, n, most, len(calls))
	}
	return nil
}
