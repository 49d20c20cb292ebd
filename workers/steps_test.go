package workers_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/internal/postgres/pgtest"
	"github.com/weirqueue/weir/jobs"
	"github.com/weirqueue/weir/workers"
)

type order struct {
	Item  string `json:"item"`
	Count int    `json:"count"`
}

type charge struct {
	Ref string `json:"ref"`
}

// orderKind has one step of each sort.
var orderKind = jobs.MustKind[order]("order", jobs.KindConfig{Steps: []jobs.Step{
	{Name: "charge", Effect: jobs.Idempotent},
	{Name: "reserve", Effect: jobs.Transactional},
	{Name: "count", Effect: jobs.Transactional},
	{Name: "ship", Effect: jobs.Reconciled},
	{Name: "mail", Effect: jobs.AtLeastOnce},
	{Name: "close", Effect: jobs.Transactional},
}})

func stockTables(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	_, err := pool.Exec(t.Context(), `create table stock (item text primary key, n int not null check (n >= 0));
		create table reserved (run uuid, item text, n int);
		insert into stock values ('pen', 100)`)
	require.NoError(t, err)
}

type orderSteps struct {
	charge func(context.Context, *workers.In[order]) (charge, error)
	ship   func(context.Context, *workers.In[order]) (string, error)
	ask    func(context.Context, *workers.In[order]) (string, bool, error)
	live   func(context.Context, pgx.Tx, *workers.In[order]) (int, error)
	mail   func(context.Context, *workers.In[order]) (any, error)
}

func (o orderSteps) bind() workers.Binding {
	if o.charge == nil {
		o.charge = func(_ context.Context, in *workers.In[order]) (charge, error) {
			return charge{Ref: "ch-" + in.Key}, nil
		}
	}
	if o.ship == nil {
		o.ship = func(context.Context, *workers.In[order]) (string, error) { return "parcel-1", nil }
	}
	if o.ask == nil {
		o.ask = func(context.Context, *workers.In[order]) (string, bool, error) { return "", false, nil }
	}
	if o.live == nil {
		o.live = func(ctx context.Context, tx pgx.Tx, in *workers.In[order]) (int, error) {
			var left int
			err := tx.QueryRow(ctx, "update stock set n = n - $2 where item = $1 returning n", in.Payload.Item, in.Payload.Count).Scan(&left)
			return left, err
		}
	}
	if o.mail == nil {
		o.mail = func(_ context.Context, in *workers.In[order]) (any, error) {
			var c charge
			if err := in.Output("charge", &c); err != nil {
				return nil, err
			}
			if c.Ref != "ch-"+in.Run.String()+":0" {
				return nil, fmt.Errorf("unexpected charge %q", c.Ref)
			}
			return nil, nil
		}
	}
	return workers.Bind(orderKind, workers.KindConfig{
		Lease: 2 * time.Second, Backoff: workers.Backoff{First: 50 * time.Millisecond, Max: 200 * time.Millisecond},
	},
		workers.Idempotent("charge", o.charge),
		workers.Transactional("reserve", o.live),
		workers.Statement("count", func(_ context.Context, in *workers.In[order]) (workers.SQL, error) {
			return workers.SQL{
				Text: "insert into reserved values ($1, $2, $3) returning item, n -- a comment",
				Args: []any{in.Run, in.Payload.Item, in.Payload.Count},
			}, nil
		}),
		workers.Reconciled("ship", o.ship, o.ask),
		workers.AtLeastOnce("mail", o.mail),
		workers.Transactional("close", func(ctx context.Context, tx pgx.Tx, in *workers.In[order]) (map[string]any, error) {
			var n int
			err := tx.QueryRow(ctx, "select count(*) from reserved where run = $1", in.Run).Scan(&n)
			return map[string]any{"reserved": n}, err
		}),
	)
}

// runKinds starts a fleet with the bindings and returns a client.
func runKinds(t *testing.T, pool *pgxpool.Pool, bindings ...workers.Binding) *jobs.Client {
	t.Helper()
	return runKindsReaping(t, pool, 200*time.Millisecond, bindings...)
}

func runKindsReaping(t *testing.T, pool *pgxpool.Pool, every time.Duration, bindings ...workers.Binding) *jobs.Client {
	t.Helper()
	fleet, err := workers.New(pool, &workers.Config{
		Kinds: bindings, ReaperInterval: every, DoorbellGrace: time.Second, ShutdownGrace: time.Second,
		FetchPollInterval: 100 * time.Millisecond, Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- fleet.Run(ctx) }()
	t.Cleanup(func() { stop(); require.NoError(t, <-done) })
	client, err := jobs.NewClient(pool, nil)
	require.NoError(t, err)
	return client
}

func waitFor(t *testing.T, client *jobs.Client, id jobs.RunID) *jobs.Run {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	run, err := client.Wait(ctx, id)
	require.NoError(t, err, "last seen: %+v", run)
	return run
}

func TestSteps_EachSortOfStepRunsOnceInOrderAndTheLastCarriesTheEnd(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	stockTables(t, pool)
	client := runKinds(t, pool, orderSteps{}.bind())

	res, err := client.Enqueue(t.Context(), orderKind.Of(order{"pen", 3}), &jobs.Opts{IdempotencyKey: "o-1"})
	require.NoError(t, err)
	run := waitFor(t, client, res.Run.ID)
	require.Equal(t, jobs.Status("succeeded"), run.Status, "%s: %s", run.ErrorCode, run.ErrorMessage)
	require.JSONEq(t, `{"reserved": 1}`, string(run.Output))
	require.EqualValues(t, 1, run.Attempt)

	receipts, err := client.Receipts(t.Context(), res.Run.ID)
	require.NoError(t, err)
	require.Len(t, receipts, 6)
	for i, r := range receipts {
		require.Equal(t, i, r.StepIndex)
		require.Equal(t, "ok", r.Outcome, r.StepName)
	}
	require.JSONEq(t, "97", string(receipts[1].Output))
	require.JSONEq(t, `[{"item": "pen", "n": 3}]`, string(receipts[2].Output))

	again, err := client.Enqueue(t.Context(), orderKind.Of(order{"pen", 3}), &jobs.Opts{IdempotencyKey: "o-1"})
	require.NoError(t, err)
	require.True(t, again.Existing)
	require.Equal(t, res.Run.ID, again.Run.ID)
	_, err = client.Enqueue(t.Context(), orderKind.Of(order{"pen", 4}), &jobs.Opts{IdempotencyKey: "o-1"})
	require.ErrorIs(t, err, jobs.ErrKeyReused)
}

func TestSteps_AFailedTryGoesOnAfterTheLastReceipt(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	stockTables(t, pool)
	var charges, mails atomic.Int32
	client := runKinds(t, pool, orderSteps{
		charge: func(_ context.Context, in *workers.In[order]) (charge, error) {
			charges.Add(1)
			return charge{Ref: "ch-" + in.Key}, nil
		},
		mail: func(context.Context, *workers.In[order]) (any, error) {
			switch mails.Add(1) {
			case 1:
				return nil, errors.New("not now")
			case 2:
				panic("not now either")
			}
			return nil, nil
		},
	}.bind())
	res, err := client.Enqueue(t.Context(), orderKind.Of(order{"pen", 1}), nil)
	require.NoError(t, err)
	run := waitFor(t, client, res.Run.ID)
	require.Equal(t, jobs.Status("succeeded"), run.Status, "%s: %s", run.ErrorCode, run.ErrorMessage)
	require.Equal(t, 2, run.Failures)
	require.EqualValues(t, 1, charges.Load())
	require.EqualValues(t, 3, mails.Load())
	var left, reserved int
	require.NoError(t, pool.QueryRow(t.Context(), "select n, (select count(*) from reserved) from stock").Scan(&left, &reserved))
	require.Equal(t, 99, left)
	require.Equal(t, 1, reserved)
}

func TestSteps_WhatAStepDoesToItsTransactionIsRefusedOrHarmless(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		do   func(ctx context.Context, tx pgx.Tx) error
		want string // in the error of the failed try; empty: the step is fine
	}{
		"Commit":          {func(ctx context.Context, tx pgx.Tx) error { return tx.Commit(ctx) }, "must not end"},
		"COMMIT":          {exec("commit"), "must not end"},
		"ROLLBACK":        {exec(" /* x */ rollback;"), "must not end"},
		"smuggled":        {exec("select ';'; commit; begin"), "ended its own transaction"},
		"SET ROLE":        {exec("set role nobody_at_all"), ""},
		"SET search_path": {exec("set local search_path = nowhere"), ""},
		"swallowed error": {func(ctx context.Context, tx pgx.Tx) error { _, _ = tx.Exec(ctx, "select 1/0"); return nil }, "was not returned"},
		"unread rows": {func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Query(ctx, "select 1 union select 2")
			return err
		}, "open"},
		"open savepoint":   {func(ctx context.Context, tx pgx.Tx) error { _, err := tx.Begin(ctx); return err }, ""},
		"deferred check":   {exec("insert into kid values (1)"), "foreign key"},
		"savepoint undone": {savepoint, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := pgtest.Pool(t, pgtest.MaxConns(4))
			stockTables(t, pool)
			_, err := pool.Exec(t.Context(), `create table mum (id int primary key);
				create table kid (id int references mum deferrable initially deferred);
				do $$ begin create role nobody_at_all; exception when duplicate_object or unique_violation then null; end $$`)
			require.NoError(t, err)
			kind := jobs.MustKind[order]("one", jobs.KindConfig{MaxAttempts: 1, Steps: []jobs.Step{{Name: "only", Effect: jobs.Transactional}}})
			client := runKinds(t, pool, workers.Bind(kind, workers.KindConfig{Lease: 2 * time.Second},
				workers.Transactional("only", func(ctx context.Context, tx pgx.Tx, in *workers.In[order]) (any, error) {
					if _, err := tx.Exec(ctx, "update stock set n = n - 1"); err != nil {
						return nil, err
					}
					return nil, c.do(ctx, tx)
				})))
			res, err := client.Enqueue(t.Context(), kind.Of(order{}), nil)
			require.NoError(t, err)
			run := waitFor(t, client, res.Run.ID)
			var left int
			require.NoError(t, pool.QueryRow(t.Context(), "select n from stock").Scan(&left))
			if c.want == "" {
				require.Equal(t, jobs.Status("succeeded"), run.Status, "%s: %s", run.ErrorCode, run.ErrorMessage)
				require.Equal(t, 99, left)
			} else {
				require.Equal(t, jobs.Status("failed"), run.Status)
				require.Contains(t, run.ErrorMessage, c.want)
				if name != "smuggled" {
					require.Equal(t, 100, left)
				}
			}
			// Nothing leaks into the next user of a connection.
			for range 20 {
				var role, path string
				require.NoError(t, pool.QueryRow(t.Context(), "select current_user, current_setting('search_path')").Scan(&role, &path))
				require.Equal(t, "postgres", role)
				require.NotContains(t, path, "nowhere")
			}
		})
	}
}

func exec(sql string) func(context.Context, pgx.Tx) error {
	return func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, sql)
		return err
	}
}

func savepoint(ctx context.Context, tx pgx.Tx) error {
	inner, err := tx.Begin(ctx)
	if err != nil {
		return err
	}
	if _, err := inner.Exec(ctx, "update stock set n = 0"); err != nil {
		return err
	}
	return inner.Rollback(ctx)
}

func TestEnqueue_OneLiveRunPerExclusiveKey(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	client, err := jobs.NewClient(pool, nil)
	require.NoError(t, err)
	first, err := client.Enqueue(t.Context(), orderKind.Of(order{"pen", 1}), &jobs.Opts{ExclusiveKey: "pen", IdempotencyKey: "a"})
	require.NoError(t, err)
	_, err = client.Enqueue(t.Context(), orderKind.Of(order{"pen", 2}), &jobs.Opts{ExclusiveKey: "pen", IdempotencyKey: "b"})
	var held *jobs.ExclusiveError
	require.ErrorAs(t, err, &held)
	require.Equal(t, first.Run.ID, held.Run)
	require.NoError(t, client.Cancel(t.Context(), first.Run.ID))
	second, err := client.Enqueue(t.Context(), orderKind.Of(order{"pen", 2}), &jobs.Opts{ExclusiveKey: "pen", IdempotencyKey: "b"})
	require.NoError(t, err)
	require.False(t, second.Existing)
	var doorbells int
	require.NoError(t, pool.QueryRow(t.Context(), "select count(*) from river_job").Scan(&doorbells))
	require.Equal(t, 2, doorbells, "the refused run left no doorbell")
}

func TestSteps_AWorkerWithAnotherListLeavesTheRunToOthers(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	older := jobs.MustKind[order]("order", jobs.KindConfig{Steps: []jobs.Step{{Name: "charge", Effect: jobs.Idempotent}}})
	client := runKinds(t, pool, workers.Bind(older, workers.KindConfig{Lease: 2 * time.Second},
		workers.Idempotent("charge", func(context.Context, *workers.In[order]) (any, error) { return nil, nil })))
	res, err := client.Enqueue(t.Context(), orderKind.Of(order{"pen", 1}), nil)
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		run, err := client.Get(t.Context(), res.Run.ID)
		return err == nil && run.BlockedReason != ""
	}, 10*time.Second, 20*time.Millisecond)
	run, err := client.Get(t.Context(), res.Run.ID)
	require.NoError(t, err)
	require.Equal(t, jobs.Status("queued"), run.Status)
	require.Zero(t, run.Attempt)
	require.Zero(t, run.Failures)
}
