package main

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weirqueue/weir/jobs"
	"github.com/weirqueue/weir/workers"
	"github.com/weirqueue/weir/workers/channel"
)

// deliveriesAtOnce is where ours were fastest, as River's was at manyWorkers: more of them wait for each other's statement.
const deliveriesAtOnce = 1000

// sender is a channel that takes so long for each message.
type sender struct{ delay time.Duration }

func (*sender) Effect() channel.Effect { return channel.AtLeastOnce }

func (s *sender) Send(ctx context.Context, m channel.Message) (channel.Sent, error) {
	if s.delay > 0 {
		select {
		case <-ctx.Done():
			return channel.Sent{}, ctx.Err()
		case <-time.After(s.delay):
		}
	}
	return channel.Sent{ExternalRef: m.RunID}, nil
}

// delivery works a backlog of deliveries as users have them, with retries, observer and heartbeats; enqueue says whether
// each has its own doorbell.
func delivery(delay time.Duration, enqueue func(context.Context, *jobs.Client, int) error) func(ctx context.Context, pool *pgxpool.Pool, n int) (func(context.Context) error, error) {
	return func(ctx context.Context, pool *pgxpool.Pool, n int) (func(context.Context) error, error) {
		client, err := jobs.NewClient(pool, nil)
		if err != nil {
			return nil, err
		}
		if err := enqueue(ctx, client, n); err != nil {
			return nil, err
		}
		done := newCounter(n)
		fleet, err := workers.New(pool, &workers.Config{
			Channels: map[string]channel.Channel{"bench": &sender{delay}}, FetchCooldown: 20 * time.Millisecond, FetchPollInterval: 1000 * time.Millisecond,
			Delivery: workers.DeliveryConfig{MaxWorkers: deliveriesAtOnce}, Logger: slog.New(slog.DiscardHandler),
			Observer: workers.ObserverFunc(func(_ context.Context, e workers.Event) {
				if ended, ok := e.(workers.TryEnded); ok && ended.Status == jobs.StatusSent {
					done.tick()
				}
			}),
		})
		if err != nil {
			return nil, err
		}
		return func(ctx context.Context) error { return work(ctx, fleet, done) }, nil
	}
}

// work runs a fleet until the counter is done, and then to its end: what is left to write is part of the work.
func work(ctx context.Context, fleet *workers.Fleet, done *counter) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- fleet.Run(ctx) }()
	if err := done.wait(ctx); err != nil {
		return err
	}
	stop()
	return <-ended
}

// notify enqueues n deliveries, many to a notification.
func notify(ctx context.Context, client *jobs.Client, n int) error {
	for from := 0; from < n; from += jobs.MaxRecipients {
		note := jobs.Notification{Subject: "bench", Text: "a short text"}
		for i := range min(jobs.MaxRecipients, n-from) {
			note.To = append(note.To, jobs.Recipient{Channel: "bench", Address: fmt.Sprintf("user-%d", from+i)})
		}
		if _, err := client.Notify(ctx, note, nil); err != nil {
			return err
		}
	}
	return nil
}
