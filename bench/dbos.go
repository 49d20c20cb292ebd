package main

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/dbos-inc/dbos-transact-golang/dbos"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	dbosApp = "weir-bench"
	// dbosPoll replaces a second, which would be the limit of the rate.
	dbosPoll = 20 * time.Millisecond
	dbosEnd  = 30 * time.Second
)

// dbosContext is a DBOS with a pool of its own, which it closes at its end. Its tables are in the database of the work:
// what it calls a shared database, where a transaction step is one transaction and not two.
func dbosContext(ctx context.Context, pool *pgxpool.Pool) (dbos.Context, *pgxpool.Pool, error) {
	own, err := pgxpool.NewWithConfig(ctx, pool.Config())
	if err != nil {
		return nil, nil, err
	}
	c, err := dbos.NewContext(ctx, dbos.Config{AppName: dbosApp, ApplicationVersion: "1", SystemDBPool: own, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		own.Close()
	}
	return c, own, err
}

// dbosQueue works a backlog of workflows of one step that does nothing.
func dbosQueue(ctx context.Context, pool *pgxpool.Pool, n int) (func(context.Context) error, error) {
	const queueName, workflowName = "bench", "one-step"
	c, _, err := dbosContext(ctx, pool)
	if err != nil {
		return nil, err
	}
	done := newCounter(n)
	dbos.RegisterWorkflow(c, func(c dbos.Context, in int) (int, error) {
		out, err := dbos.RunAsStep(c, func(context.Context) (int, error) { return in, nil })
		if err == nil {
			done.tick()
		}
		return out, err
	}, dbos.WithWorkflowName(workflowName))
	if _, err := dbos.RegisterQueue(c, queueName, dbos.WithWorkerConcurrency(manyWorkers), dbos.WithQueueBasePollingInterval(dbosPoll)); err != nil {
		return nil, errors.Join(err, dbos.Shutdown(c, dbosEnd))
	}
	// Not launched yet, so nothing of it begins.
	if err := together(ctx, poolSize, n, func(i int) error {
		_, err := dbos.Enqueue[int](c, queueName, workflowName, i)
		return err
	}); err != nil {
		return nil, errors.Join(err, dbos.Shutdown(c, dbosEnd))
	}
	return func(ctx context.Context) error {
		err := dbos.Launch(c)
		if err == nil {
			err = done.wait(ctx)
		}
		return errors.Join(err, dbos.Shutdown(c, dbosEnd)) // it waits for the outcomes to be written
	}, nil
}

// dbosTransactions starts workflows of several transaction steps, so many at once.
func dbosTransactions(ctx context.Context, pool *pgxpool.Pool, n int) (func(context.Context) error, error) {
	if _, err := pool.Exec(ctx, effectTable); err != nil {
		return nil, err
	}
	c, own, err := dbosContext(ctx, pool)
	if err != nil {
		return nil, err
	}
	data, err := dbos.NewDataSource(c, own)
	if err != nil {
		return nil, errors.Join(err, dbos.Shutdown(c, dbosEnd))
	}
	workflow := func(c dbos.Context, in int) (int64, error) {
		var last int64
		for i := range stepsPerRun {
			id, err := dbos.RunAsTransaction(c, data, func(ctx context.Context, tx dbos.Tx) (int64, error) {
				var id int64
				err := tx.QueryRow(ctx, effectSQL, in, i, effectNote).Scan(&id)
				return id, err
			})
			if err != nil {
				return 0, err
			}
			last = id
		}
		return last, nil
	}
	dbos.RegisterWorkflow(c, workflow)
	if err := dbos.Launch(c); err != nil {
		return nil, errors.Join(err, dbos.Shutdown(c, dbosEnd))
	}
	run := func(ctx context.Context, runs int) error {
		return together(ctx, stepWorkers, runs, func(i int) error {
			handle, err := dbos.RunWorkflow(c, workflow, i)
			if err == nil {
				_, err = handle.GetResult()
			}
			return err
		})
	}
	// Its sessions are its own, so they are warmed here.
	if err := run(ctx, min(n, warmUp)/stepsPerRun); err != nil {
		return nil, errors.Join(err, dbos.Shutdown(c, dbosEnd))
	}
	return func(ctx context.Context) error {
		return errors.Join(run(ctx, n/stepsPerRun), dbos.Shutdown(c, dbosEnd))
	}, nil
}

// together calls do for 0 to n-1, so many at once, until one fails.
func together(ctx context.Context, at, n int, do func(i int) error) error {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	next := make(chan int)
	var group sync.WaitGroup
	for range at {
		group.Go(func() {
			for i := range next {
				if err := do(i); err != nil {
					fail(err)
					return
				}
			}
		})
	}
	for i := range n {
		select {
		case next <- i:
			continue
		case <-ctx.Done():
		}
		break
	}
	close(next)
	group.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}
