package workers_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/internal/postgres/pgtest"
	"github.com/weirqueue/weir/jobs"
	"github.com/weirqueue/weir/workers"
)

// RV-17: whatever a step does first, and in whichever mode its pool sends statements, that is in the step's transaction:
// what was done is there once with its receipt, and nothing of it when the step's function fails after it.
func TestStepBegin_WhateverComesFirstIsInTheTransaction(t *testing.T) {
	t.Parallel()
	insert := func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "insert into done values ($1)", 1)
		return err
	}
	firsts := map[string]func(ctx context.Context, tx pgx.Tx) error{
		"Exec": insert,
		"Exec of texts": func(ctx context.Context, tx pgx.Tx) error {
			return exec("insert into done values (1); select 1")(ctx, tx)
		},
		"Exec in a mode": func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "insert into done values ($1)", pgx.QueryExecModeSimpleProtocol, 1)
			return err
		},
		"Exec with names": func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "insert into done values (@n)", pgx.NamedArgs{"n": 1})
			return err
		},
		"Query": func(ctx context.Context, tx pgx.Tx) error {
			rows, err := tx.Query(ctx, "insert into done select generate_series(1, $1::integer) returning n", 1)
			if err != nil {
				return err
			}
			_, err = pgx.CollectExactlyOneRow(rows, pgx.RowTo[int])
			return err
		},
		"Query, closed early": func(ctx context.Context, tx pgx.Tx) error {
			rows, err := tx.Query(ctx, "insert into done values ($1) returning n", 1)
			rows.Close()
			return errors.Join(err, rows.Err())
		},
		"QueryRow": func(ctx context.Context, tx pgx.Tx) error {
			return tx.QueryRow(ctx, "insert into done values ($1) returning n", 1).Scan(new(int))
		},
		"SendBatch": func(ctx context.Context, tx pgx.Tx) error {
			b, n := &pgx.Batch{}, 0
			b.Queue("insert into done values ($1)", 1)
			b.Queue("select count(*) from done where n = $1", 1).QueryRow(func(row pgx.Row) error { return row.Scan(&n) })
			results := tx.SendBatch(ctx, b)
			if results.Tx() != nil {
				return errors.New("the batch shows the transaction")
			}
			if err := results.Close(); err != nil || n != 1 {
				return errors.Join(err, errors.New("the batch's second statement sees another number"))
			}
			return nil
		},
		"an empty batch": func(ctx context.Context, tx pgx.Tx) error {
			return errors.Join(tx.SendBatch(ctx, &pgx.Batch{}).Close(), insert(ctx, tx))
		},
		"CopyFrom": func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.CopyFrom(ctx, pgx.Identifier{"done"}, []string{"n"}, pgx.CopyFromRows([][]any{{int32(1)}}))
			return err
		},
		"a savepoint": func(ctx context.Context, tx pgx.Tx) error {
			return pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error { return insert(ctx, tx) })
		},
		"Prepare": func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Prepare(ctx, "mine", "insert into done values ($1)")
			return errors.Join(err, insert(ctx, tx))
		},
		"Conn": func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Conn().Exec(ctx, "insert into done values (1)")
			return err
		},
		"large objects": func(ctx context.Context, tx pgx.Tx) error {
			large := tx.LargeObjects()
			_, err := large.Create(ctx, 0)
			return errors.Join(err, insert(ctx, tx))
		},
	}
	for _, mode := range []pgx.QueryExecMode{
		pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
	} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			pool := pgtest.Pool(t, pgtest.Config(func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = mode }))
			_, err := pool.Exec(t.Context(), "create table done (n int)")
			require.NoError(t, err)
			var bound []workers.Binding
			kinds := map[string]*jobs.Kind[order]{}
			for name, first := range firsts {
				for _, fails := range []bool{false, true} {
					kind := jobs.MustKind[order](kindName(name, fails), jobs.KindConfig{MaxAttempts: 1, Steps: []jobs.Step{{Name: "only", Effect: jobs.Transactional}}})
					kinds[kindName(name, fails)] = kind
					bound = append(bound, workers.Bind(kind, workers.KindConfig{Lease: time.Minute}, workers.Transactional("only",
						func(ctx context.Context, tx pgx.Tx, _ *workers.In[order]) (any, error) {
							if err := first(ctx, tx); err != nil || !fails {
								return nil, err
							}
							return nil, errors.New("after it")
						})))
				}
			}
			client := runKinds(t, pool, bound...)
			for name := range firsts {
				for _, fails := range []bool{true, false} {
					kind := kinds[kindName(name, fails)]
					res, err := client.Enqueue(t.Context(), kind.Of(order{}), nil)
					require.NoError(t, err)
					run := waitFor(t, client, res.Run.ID)
					n := numberFrom(t, pool, "with gone as (delete from done returning n) select count(*)::int from gone")
					if fails {
						require.Equal(t, jobs.StatusFailed, run.Status, name)
						require.Equal(t, "after it", run.ErrorMessage, name)
						require.Zero(t, n, name)
						continue
					}
					require.Equal(t, jobs.Status("succeeded"), run.Status, "%s: %s", name, run.ErrorMessage)
					require.Equal(t, 1, n, name)
				}
			}
		})
	}
}

func kindName(first string, fails bool) string {
	name := "first_" + strings.ReplaceAll(strings.ReplaceAll(strings.ToLower(first), ",", ""), " ", "_")
	if fails {
		name += "_fails"
	}
	return name
}

// A first statement that is refused ends the step as any other would, also when its error is not returned.
func TestStepBegin_ARefusedFirstStatementCommitsNothing(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	_, err := pool.Exec(t.Context(), "create table done (n int check (n > 0))")
	require.NoError(t, err)
	refused := map[string]struct {
		sql string
		arg any
	}{
		"missing table":   {"insert into missing values ($1)", 1},
		"syntax":          {"insert done $1", 1},
		"constraint":      {"insert into done values ($1)", -1},
		"unfit parameter": {"insert into done values ($1)", struct{ x int }{1}},
	}
	var bound []workers.Binding
	kinds := map[string]*jobs.Kind[order]{}
	for name, c := range refused {
		for _, batch := range []bool{false, true} {
			kind := jobs.MustKind[order](kindName(name, batch), jobs.KindConfig{MaxAttempts: 1, Steps: []jobs.Step{{Name: "only", Effect: jobs.Transactional}}})
			kinds[kindName(name, batch)] = kind
			bound = append(bound, workers.Bind(kind, workers.KindConfig{Lease: time.Minute}, workers.Transactional("only",
				func(ctx context.Context, tx pgx.Tx, _ *workers.In[order]) (any, error) {
					if batch {
						b := &pgx.Batch{}
						b.Queue("insert into done values ($1)", 1)
						b.Queue(c.sql, c.arg)
						if err := tx.SendBatch(ctx, b).Close(); err == nil {
							return nil, errors.New("the batch was not refused")
						}
					} else if err := tx.QueryRow(ctx, c.sql, c.arg).Scan(new(int)); err == nil || errors.Is(err, pgx.ErrNoRows) {
						return nil, errors.New("the statement was not refused")
					}
					_, _ = tx.Exec(ctx, "insert into done values ($1)", 2)
					return nil, nil
				})))
		}
	}
	client := runKinds(t, pool, bound...)
	for name, kind := range kinds {
		res, err := client.Enqueue(t.Context(), kind.Of(order{}), nil)
		require.NoError(t, err)
		run := waitFor(t, client, res.Run.ID)
		require.Equal(t, jobs.StatusFailed, run.Status, name)
		require.Contains(t, run.ErrorMessage, "was not returned", name)
		require.Zero(t, numberFrom(t, pool, "select count(*)::int from done"), name)
	}
}

// The server has ended the connections of a pool that was idle. That ends the try before its step has begun, whatever the
// step's function makes of the error: the next try is the one that counts.
func TestStepBegin_AConnectionThatIsGoneIsNothingThatTheStepDid(t *testing.T) {
	t.Parallel()
	address := pgtest.URL(t)
	var w wires
	pool, direct := pgtest.Connect(t, address, pgtest.Config(w.watch)), pgtest.Connect(t, address)
	calls := 0
	kind := jobs.MustKind[order]("first_gone", jobs.KindConfig{MaxAttempts: 2, Steps: []jobs.Step{{Name: "only", Effect: jobs.Transactional}}})
	runKinds(t, pool, workers.Bind(kind, workers.KindConfig{Lease: time.Minute, Backoff: workers.Backoff{First: 10 * time.Millisecond, Max: 20 * time.Millisecond}},
		workers.Transactional("only", func(ctx context.Context, tx pgx.Tx, _ *workers.In[order]) (any, error) {
			if calls++; calls == 1 {
				w.cut()
			}
			if err := tx.QueryRow(ctx, "select $1::integer", 1).Scan(new(int)); err != nil {
				return nil, workers.Refuse("mine", err)
			}
			return nil, nil
		})))
	client, err := jobs.NewClient(direct, nil)
	require.NoError(t, err)
	res, err := client.Enqueue(t.Context(), kind.Of(order{}), nil)
	require.NoError(t, err)
	run := waitFor(t, client, res.Run.ID)
	require.Equal(t, jobs.Status("succeeded"), run.Status, "%s: %s", run.ErrorCode, run.ErrorMessage)
	require.Equal(t, 2, calls)
}
