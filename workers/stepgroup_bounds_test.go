package workers_test

import (
	"context"
	"database/sql/driver"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/internal/postgres/pgtest"
	"github.com/weirqueue/weir/jobs"
	"github.com/weirqueue/weir/workers"
)

var boundKind = jobs.MustKind[order]("bound", jobs.KindConfig{MaxAttempts: 2, Steps: []jobs.Step{{Name: "only", Effect: jobs.Transactional}}})

// bounded runs a kind of one statement step. Texts are proven for the orders in proofs.
func bounded(t *testing.T, pool *pgxpool.Pool, lease time.Duration, write func(order) workers.SQL, proofs ...order) *jobs.Client {
	t.Helper()
	client := runKinds(t, pool, workers.Bind(boundKind, workers.KindConfig{
		MaxWorkers: 60, Lease: lease, Backoff: workers.Backoff{First: 50 * time.Millisecond, Max: 200 * time.Millisecond},
	}, workers.Statement("only", func(_ context.Context, in *workers.In[order]) (workers.SQL, error) { return write(in.Payload), nil })))
	for range 3 {
		for i, o := range proofs {
			o.Item = fmt.Sprint("proof ", i, time.Now().UnixNano())
			require.Equal(t, jobs.StatusSucceeded, waitFor(t, client, enqueueBound(t, client, o)[0]).Status)
		}
	}
	return client
}

func enqueueBound(t *testing.T, client *jobs.Client, orders ...order) []jobs.RunID {
	t.Helper()
	return enqueueAll(t, client, boundKind, orders)
}

func enterOnly(o order) workers.SQL {
	return workers.SQL{Text: "insert into done values ($1, '') returning entry", Args: []any{o.Item}}
}

// Steps that came alone and wait for rows, however many, do not hold up a step that comes later and waits for nothing.
func TestStepGroup_StepsThatWaitAloneHoldUpNoOther(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t, pgtest.MaxConns(16))
	doneTable(t, pool)
	client := bounded(t, pool, time.Minute, enterOnly, order{})
	tx, err := pool.Begin(t.Context())
	require.NoError(t, err)
	var slow []jobs.RunID
	for i := range 4 { // as many as there are senders
		_, err = tx.Exec(t.Context(), "insert into done values ($1, '')", fmt.Sprint("slow ", i))
		require.NoError(t, err)
	}
	for i := range 4 {
		slow = append(slow, enqueueBound(t, client, order{Item: fmt.Sprint("slow ", i)})...)
		require.NoError(t, eventually(func() bool { // it is under way before the next comes
			var waiting int
			err := pool.QueryRow(t.Context(), `select count(*) from pg_stat_activity
				where wait_event_type = 'Lock' and query like '%weir_user_rows%' and datname = current_database()`).Scan(&waiting)
			return err == nil && waiting == i+1
		}))
	}
	began := time.Now()
	require.Equal(t, jobs.StatusSucceeded, waitFor(t, client, enqueueBound(t, client, order{Item: "free"})[0]).Status)
	require.Less(t, time.Since(began), 4*time.Second, "it waited for others' rows")
	require.NoError(t, tx.Rollback(t.Context()))
	for _, id := range slow {
		require.Equal(t, jobs.StatusSucceeded, waitFor(t, client, id).Status)
	}
}

// Steps that are each within their bound, and together longer than a write may take, leave nobody in doubt.
func TestStepGroup_ManySlowStepsAreNoDoubt(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t, pgtest.MaxConns(20))
	doneTable(t, pool)
	client := bounded(t, pool, 2*time.Second, func(o order) workers.SQL {
		return workers.SQL{
			Text: "insert into done select $1, '' from pg_sleep($2::int / 1000.0) returning entry", Args: []any{o.Item, o.Count},
		}
	}, order{})
	orders := items("slow ", 40)
	for i := range orders {
		orders[i].Count = 120
	}
	for _, id := range enqueueBound(t, client, orders...) {
		run := waitFor(t, client, id)
		require.Equal(t, jobs.StatusSucceeded, run.Status)
		require.Equal(t, int64(1), run.Attempt, "it was in doubt")
	}
}

// bomb panics when pgx asks for its value.
type bomb bool

func (b bomb) Value() (driver.Value, error) {
	if b {
		panic("a bug in an argument")
	}
	return "", nil
}

// An argument that panics, or cannot be sent, fails its own step. It costs neither its neighbours a doubt nor the pool a
// connection.
func TestStepGroup_AnArgumentThatCannotBeSentFailsAlone(t *testing.T) {
	t.Parallel()
	for name, bad := range map[string]any{"it panics": bomb(true), "no number": "x"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := pgtest.Pool(t, pgtest.MaxConns(4))
			doneTable(t, pool)
			client := bounded(t, pool, 10*time.Second, func(o order) workers.SQL {
				var arg any = bomb(false)
				text := "insert into done values ($1, $2) returning entry"
				if name == "no number" {
					arg, text = o.Count, "insert into done values ($1, $2::int::text) returning entry"
				}
				if o.Count == 1 {
					arg = bad
				}
				return workers.SQL{Text: text, Args: []any{o.Item, arg}}
			}, order{})
			for round := range 5 { // more often than the pool has connections
				orders := items(fmt.Sprint("some ", round, " "), 30)
				orders[9].Count = 1
				for i, id := range enqueueBound(t, client, orders...) {
					run := waitFor(t, client, id)
					if i == 9 {
						require.Equal(t, jobs.StatusFailed, run.Status)
						continue
					}
					require.Equal(t, jobs.StatusSucceeded, run.Status)
					require.Equal(t, int64(1), run.Attempt, "it was in doubt")
				}
			}
		})
	}
}

// A text that cannot be prepared, since somebody alters its table, holds its neighbours up for a moment only.
func TestStepGroup_ATextThatCannotBePreparedHoldsUpNobody(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t, pgtest.MaxConns(12))
	doneTable(t, pool)
	_, err := pool.Exec(t.Context(), "create table other (entry text)")
	require.NoError(t, err)
	client := bounded(t, pool, time.Minute, func(o order) workers.SQL {
		sql := enterOnly(o)
		if o.Count == 1 {
			sql.Text = "insert into other values ($1) returning entry"
		}
		return sql
	}, order{}, order{Count: 1})
	tx, err := pool.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), "lock table other in access exclusive mode")
	require.NoError(t, err)
	orders := items("some ", 40)
	orders[3].Count = 1
	orders[20].Count = 1
	began := time.Now()
	ids := enqueueBound(t, client, orders...)
	for i, id := range ids {
		if orders[i].Count == 0 {
			require.Equal(t, jobs.StatusSucceeded, waitFor(t, client, id).Status)
		}
	}
	require.Less(t, time.Since(began), 6*time.Second)
	require.NoError(t, tx.Rollback(t.Context()))
	for _, i := range []int{3, 20} {
		run := waitFor(t, client, ids[i])
		require.Equal(t, jobs.StatusSucceeded, run.Status)
		require.Equal(t, int64(1), run.Attempt)
	}
}

// What a function sets for its transaction alone, as the tenant that policies ask for, reaches no neighbour.
func TestStepGroup_TheTenantOfAStepReachesNoNeighbour(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t, pgtest.MaxConns(8))
	doneTable(t, pool)
	_, err := pool.Exec(t.Context(), `create function "As tenant"(name text) returns text language plpgsql as $$ begin
			return set_config('app.tenant', name, true);
		end $$;
		create function tenant() returns text stable language sql as $$ select coalesce(current_setting('app.tenant', true), '') $$`)
	require.NoError(t, err)
	client := bounded(t, pool, 10*time.Second, func(o order) workers.SQL {
		text := "insert into done values ($1, tenant()) returning entry"
		if o.Count == 1 {
			text = `insert into done values ($1, "As tenant" ('mine')) returning entry`
		}
		return workers.SQL{Text: text, Args: []any{o.Item}}
	}, order{}, order{Count: 1})
	orders := items("some ", 60)
	for i := range orders {
		orders[i].Count = i % 3 % 2
	}
	for _, id := range enqueueBound(t, client, orders...) {
		require.Equal(t, jobs.StatusSucceeded, waitFor(t, client, id).Status)
	}
	var mine int
	require.NoError(t, pool.QueryRow(t.Context(), "select count(*) from done where zone = 'mine' and starts_with(entry, 'some ')").Scan(&mine))
	require.Equal(t, 20, mine)
	txs, rows := commits(t, pool, "some ")
	require.Equal(t, 60, rows)
	require.Less(t, txs, 58, "those that call nothing of the sort share commits")
}
