package main

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
)

// noopArgs is River's own fastest job.
type noopArgs struct {
	N int `json:"n"`
}

func (noopArgs) Kind() string { return "noop" }

type noopWorker struct {
	river.WorkerDefaults[noopArgs]
	done func()
}

func (w *noopWorker) Work(context.Context, *river.Job[noopArgs]) error {
	w.done()
	return nil
}

// counter is closed after n calls of tick.
type counter struct {
	left atomic.Int64
	done chan struct{}
}

func newCounter(n int) *counter {
	c := &counter{done: make(chan struct{})}
	c.left.Store(int64(n))
	return c
}

func (c *counter) tick() {
	if c.left.Add(-1) == 0 {
		close(c.done)
	}
}

func (c *counter) wait(ctx context.Context) error {
	select {
	case <-c.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

const (
	manyWorkers   = 500
	fetchCooldown = 2 * time.Millisecond
)

// riverNoop works a backlog of jobs that do nothing, to the last completion that is written.
func riverNoop(ctx context.Context, pool *pgxpool.Pool, n int) (func(context.Context) error, error) {
	done := newCounter(n)
	workers := river.NewWorkers()
	river.AddWorker(workers, &noopWorker{done: done.tick})
	client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{
		Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: manyWorkers}}, Workers: workers,
		FetchCooldown: fetchCooldown, FetchPollInterval: 20 * time.Millisecond,
	})
	if err != nil {
		return nil, err
	}
	if err := insertNoops(ctx, client, n); err != nil {
		return nil, err
	}
	return func(ctx context.Context) error { return workRiver(ctx, client, done) }, nil
}

// workRiver runs a client until the counter is done, and then to its end.
func workRiver(ctx context.Context, client *river.Client[pgx.Tx], done *counter) error {
	if err := client.Start(ctx); err != nil {
		return err
	}
	if err := done.wait(ctx); err != nil {
		return err
	}
	return client.Stop(ctx) // it writes the last completions
}

func insertNoops(ctx context.Context, client *river.Client[pgx.Tx], n int) error {
	const chunk = 5000
	for from := 0; from < n; from += chunk {
		params := make([]river.InsertManyParams, min(chunk, n-from))
		for i := range params {
			params[i].Args = noopArgs{from + i}
		}
		if _, err := client.InsertManyFast(ctx, params); err != nil {
			return err
		}
	}
	return nil
}
