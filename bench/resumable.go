package main

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
)

// resumableArgs is a job of River's own resumable steps.
type resumableArgs struct {
	N int `json:"n"`
}

func (resumableArgs) Kind() string { return "resumable" }

type resumableWorker struct {
	river.WorkerDefaults[resumableArgs]
	pool *pgxpool.Pool
	done func()
}

// Work commits each step with the checkpoint that says so, as River's documentation has it.
func (w *resumableWorker) Work(ctx context.Context, job *river.Job[resumableArgs]) error {
	for i := range stepsPerRun {
		river.ResumableStep(ctx, stepName(i), nil, func(ctx context.Context) error {
			tx, err := w.pool.Begin(ctx)
			if err != nil {
				return err
			}
			defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }() // nothing, once it is committed
			var id int64
			if err := tx.QueryRow(ctx, effectSQL, job.Args.N, i, effectNote).Scan(&id); err != nil {
				return err
			}
			if _, err := river.ResumableSetStepTx[*riverpgxv5.Driver](ctx, tx, job); err != nil {
				return err
			}
			return tx.Commit(ctx)
		})
	}
	w.done()
	return nil
}

// riverResumable works a backlog of jobs of several steps.
func riverResumable(ctx context.Context, pool *pgxpool.Pool, n int) (func(context.Context) error, error) {
	if _, err := pool.Exec(ctx, effectTable); err != nil {
		return nil, err
	}
	runs := n / stepsPerRun
	done := newCounter(runs)
	workers := river.NewWorkers()
	river.AddWorker(workers, &resumableWorker{pool: pool, done: done.tick})
	client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{
		Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: stepWorkers}}, Workers: workers,
		FetchCooldown: fetchCooldown, FetchPollInterval: 20 * time.Millisecond,
	})
	if err != nil {
		return nil, err
	}
	params := make([]river.InsertManyParams, runs)
	for i := range params {
		params[i].Args = resumableArgs{i}
	}
	if _, err := client.InsertManyFast(ctx, params); err != nil {
		return nil, err
	}
	return func(ctx context.Context) error { return workRiver(ctx, client, done) }, nil
}
