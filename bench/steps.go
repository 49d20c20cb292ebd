package main

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weirqueue/weir/jobs"
	"github.com/weirqueue/weir/workers"
)

const (
	// stepsPerRun: what a run itself costs is spread over four steps, in every contest of steps.
	stepsPerRun = 4
	// stepWorkers is how many runs of several steps are worked at once.
	stepWorkers = 32
)

// The effect of a step is a row of the user's own.
const (
	effectTable = `create table if not exists effect (id bigint generated always as identity primary key, run bigint not null, step integer not null, note text not null)`
	effectSQL   = `insert into effect (run, step, note) values ($1, $2, $3) returning id`
	effectNote  = "what a step of a user's own writes down"
)

type stepPayload struct {
	N int `json:"n"`
}

func stepName(i int) string { return fmt.Sprintf("step_%d", i) }

// stepKind is a kind of transactional steps.
func stepKind(name string) (*jobs.Kind[stepPayload], error) {
	cfg := jobs.KindConfig{}
	for i := range stepsPerRun {
		cfg.Steps = append(cfg.Steps, jobs.Step{Name: stepName(i), Effect: jobs.Transactional})
	}
	return jobs.NewKind[stepPayload](name, cfg)
}

// liveStep is a step whose function has the transaction.
func liveStep(name string) workers.StepFunc[stepPayload] {
	return workers.Transactional(name, func(ctx context.Context, tx pgx.Tx, in *workers.In[stepPayload]) (int64, error) {
		var id int64
		err := tx.QueryRow(ctx, effectSQL, in.Payload.N, in.Step, effectNote).Scan(&id)
		return id, err
	})
}

// statementStep is a step that is one statement.
func statementStep(name string) workers.StepFunc[stepPayload] {
	return workers.Statement(name, func(_ context.Context, in *workers.In[stepPayload]) (workers.SQL, error) {
		return workers.SQL{Text: effectSQL, Args: []any{in.Payload.N, in.Step, effectNote}}, nil
	})
}

// transactionalSteps works a backlog of runs of several steps, as users have them: with retries, observer and heartbeats.
func transactionalSteps(name string, step func(string) workers.StepFunc[stepPayload]) prepare {
	return func(ctx context.Context, pool *pgxpool.Pool, n int) (func(context.Context) error, error) {
		kind, err := stepKind(name)
		if err != nil {
			return nil, err
		}
		if _, err := pool.Exec(ctx, effectTable); err != nil {
			return nil, err
		}
		runs := n / stepsPerRun
		if err := enqueueSteps(ctx, pool, kind, runs); err != nil {
			return nil, err
		}
		funcs := make([]workers.StepFunc[stepPayload], stepsPerRun)
		for i := range funcs {
			funcs[i] = step(stepName(i))
		}
		done := newCounter(runs)
		fleet, err := workers.New(pool, &workers.Config{
			Kinds: []workers.Binding{workers.Bind(kind, workers.KindConfig{MaxWorkers: stepWorkers}, funcs...)}, Logger: slog.New(slog.DiscardHandler),
			FetchCooldown: fetchCooldown,
			Observer: workers.ObserverFunc(func(_ context.Context, e workers.Event) {
				if ended, ok := e.(workers.TryEnded); ok && ended.Status == jobs.StatusSucceeded {
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

func enqueueSteps(ctx context.Context, pool *pgxpool.Pool, kind *jobs.Kind[stepPayload], runs int) error {
	client, err := jobs.NewClient(pool, nil)
	if err != nil {
		return err
	}
	const chunk = 5000
	for from := 0; from < runs; from += chunk {
		params := make([]jobs.EnqueueParams, min(chunk, runs-from))
		for i := range params {
			params[i].Request = kind.Of(stepPayload{from + i})
		}
		if _, err := client.EnqueueMany(ctx, params); err != nil {
			return err
		}
	}
	return nil
}
