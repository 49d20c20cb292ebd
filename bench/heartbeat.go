package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weirqueue/weir/internal/fencing"
	"github.com/weirqueue/weir/jobs"
	"github.com/weirqueue/weir/workers"
	"github.com/weirqueue/weir/workers/channel"
)

// heldLeases is how many runs the process owns while its heartbeats are watched.
const heldLeases = 10_000

// holder is a channel whose messages stay under way until it is opened.
type holder struct {
	begun *counter
	open  chan struct{}
}

func (*holder) Effect() channel.Effect { return channel.AtLeastOnce }

func (h *holder) Send(ctx context.Context, m channel.Message) (channel.Sent, error) {
	h.begun.tick()
	select {
	case <-h.open:
		return channel.Sent{ExternalRef: m.RunID}, nil
	case <-ctx.Done():
		return channel.Sent{}, ctx.Err()
	}
}

// tick is one beat of all leases, in as many statements as it took.
type tick struct {
	renewed, statements int
	took                time.Duration
}

// ticks makes ticks of the events of a process: the slices of one come one after the other.
type ticks struct {
	every time.Duration
	wire  *wire

	mu   sync.Mutex
	list []tick
	last time.Time // when the last slice ended
	sent int64     // statements of heartbeats when it had
	errs []error
}

func (t *ticks) observe(_ context.Context, e workers.Event) {
	beat, ok := e.(workers.Heartbeat)
	if !ok {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	now, sent := time.Now(), t.wire.beats.Load()
	if len(t.list) == 0 || now.Add(-beat.Took).Sub(t.last) > t.every/4 {
		t.list = append(t.list, tick{})
	}
	one := &t.list[len(t.list)-1]
	one.renewed += beat.Renewed
	one.took += beat.Took
	one.statements += int(sent - t.sent)
	t.last, t.sent = now, sent
	if beat.Err != nil || beat.Lost > 0 {
		t.errs = append(t.errs, fmt.Errorf("a beat lost %d leases: %w", beat.Lost, errors.Join(beat.Err)))
	}
}

// whole are the ticks that renewed n leases, but for the one that may still be under way.
func (t *ticks) whole(n int) ([]tick, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var list []tick
	for _, one := range t.list[:max(len(t.list)-1, 0)] {
		if one.renewed == n {
			list = append(list, one)
		}
	}
	return list, errors.Join(t.errs...)
}

// heartbeat watches the beats of a process that owns ten thousand runs.
func (b *bench) heartbeat(ctx context.Context, r *report) error {
	url, drop, err := b.database(ctx)
	if err != nil {
		return err
	}
	defer drop()
	pool, err := b.connect(ctx, url)
	if err != nil {
		return err
	}
	defer pool.Close()

	n, lease, want := b.scaled(heldLeases), 4*time.Second, 60
	switch {
	case b.careless:
		lease, want = time.Second, 2
	case b.quick:
		want = 15
	}
	client, err := jobs.NewClient(pool, nil)
	if err != nil {
		return err
	}
	if err := notify(ctx, client, n); err != nil {
		return err
	}
	hold := &holder{begun: newCounter(n), open: make(chan struct{})}
	seen := &ticks{every: lease / fencing.BeatsPerLease, wire: &b.wire}
	fleet, err := workers.New(pool, &workers.Config{
		Channels: map[string]channel.Channel{"bench": hold}, Logger: slog.New(slog.DiscardHandler), Observer: workers.ObserverFunc(seen.observe),
		Delivery: workers.DeliveryConfig{MaxWorkers: n, Lease: lease, StepTime: time.Hour},
	})
	if err != nil {
		return err
	}
	fleetCtx, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- fleet.Run(fleetCtx) }()
	err = b.watchBeats(ctx, pool, r, hold, seen, n, want)
	close(hold.open)
	stop()
	return errors.Join(err, <-ended)
}

// watchBeats waits for so many ticks that renew everything.
func (b *bench) watchBeats(ctx context.Context, pool *pgxpool.Pool, r *report, hold *holder, seen *ticks, n, want int) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	if err := hold.begun.wait(ctx); err != nil {
		return fmt.Errorf("begin %d deliveries: %w", n, err)
	}
	// What was claimed at different times beats together from the second tick on.
	const first = 2
	if _, err := seen.wait(ctx, n, first); err != nil {
		return err
	}
	before, err := updatesOf(ctx, pool, "weir.run")
	if err != nil {
		return err
	}
	list, err := seen.wait(ctx, n, first+want)
	if err != nil {
		return err
	}
	after, err := updatesOf(ctx, pool, "weir.run")
	if err != nil {
		return err
	}
	var statements, took []float64
	for _, one := range list[first:] {
		statements = append(statements, float64(one.statements))
		took = append(took, one.took.Seconds()*1e3)
	}
	r.figures["heartbeat_statements_per_tick"], r.figures["heartbeat_ms_10k"] = spreadOf(statements...), spreadOf(took...)
	if all := after.all - before.all; all > 0 {
		r.figures["hot_share"] = spreadOf(float64(after.hot-before.hot) / float64(all))
	}
	return nil
}

func (t *ticks) wait(ctx context.Context, n, want int) ([]tick, error) {
	for {
		list, err := t.whole(n)
		if err != nil || len(list) >= want {
			return list, err
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("%d of %d ticks: %w", len(list), want, ctx.Err())
		case <-time.After(t.every / 10):
		}
	}
}

type updates struct{ all, hot, dead int64 }

func updatesOf(ctx context.Context, pool *pgxpool.Pool, table string) (u updates, err error) {
	if _, err := pool.Exec(ctx, "select pg_stat_clear_snapshot()"); err != nil {
		return u, err
	}
	err = pool.QueryRow(ctx, `select n_tup_upd, n_tup_hot_upd, n_dead_tup from pg_stat_user_tables where relid = $1::regclass`, table).
		Scan(&u.all, &u.hot, &u.dead)
	return u, err
}
