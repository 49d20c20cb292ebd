package workers_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/internal/postgres/pgtest"
	"github.com/weirqueue/weir/jobs"
	"github.com/weirqueue/weir/workers"
)

var groupKind = jobs.MustKind[order]("group", jobs.KindConfig{MaxAttempts: 2, Steps: []jobs.Step{
	{Name: "first", Effect: jobs.Transactional}, {Name: "second", Effect: jobs.Transactional},
}})

// groups runs a kind of two statement steps, each an entry "<item> <step>" of the table done, whose text has been proven.
// The statement also says in which time zone it ran.
func groups(t *testing.T, pool *pgxpool.Pool, text string) *jobs.Client {
	t.Helper()
	step := func(name string) workers.StepFunc[order] {
		return workers.Statement(name, func(_ context.Context, in *workers.In[order]) (workers.SQL, error) {
			return workers.SQL{Text: text, Args: []any{fmt.Sprint(in.Payload.Item, " ", in.Step), in.Payload.Count}}, nil
		})
	}
	client := runKinds(t, pool, workers.Bind(groupKind, workers.KindConfig{
		MaxWorkers: 60, Lease: 4 * time.Second, Backoff: workers.Backoff{First: 50 * time.Millisecond, Max: 200 * time.Millisecond},
	}, step("first"), step("second")))
	for i := range 3 {
		require.Equal(t, jobs.StatusSucceeded, waitFor(t, client, enqueueGroup(t, client, order{Item: fmt.Sprint("proof ", i)})[0]).Status)
	}
	return client
}

func enqueueGroup(t *testing.T, client *jobs.Client, orders ...order) []jobs.RunID {
	t.Helper()
	return enqueueAll(t, client, groupKind, orders)
}

func enqueueAll(t *testing.T, client *jobs.Client, kind *jobs.Kind[order], orders []order) []jobs.RunID {
	t.Helper()
	params := make([]jobs.EnqueueParams, len(orders))
	for i, o := range orders {
		params[i].Request = kind.Of(o)
	}
	res, err := client.EnqueueMany(t.Context(), params)
	require.NoError(t, err)
	ids := make([]jobs.RunID, len(res))
	for i, r := range res {
		ids[i] = r.Run.ID
	}
	return ids
}

func items(prefix string, n int) []order {
	out := make([]order, n)
	for i := range out {
		out[i].Item = fmt.Sprint(prefix, i)
	}
	return out
}

func doneTable(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	_, err := pool.Exec(t.Context(), "create table done (entry text primary key, zone text)")
	require.NoError(t, err)
}

// commits is how many transactions wrote the entries of a prefix, and how many entries there are.
func commits(t *testing.T, pool *pgxpool.Pool, prefix string) (txs, rows int) {
	t.Helper()
	require.NoError(t, pool.QueryRow(t.Context(), "select count(distinct xmin::text), count(*) from done where starts_with(entry, $1)", prefix).Scan(&txs, &rows))
	return txs, rows
}

const enterDone = "insert into done values ($1, current_setting('TimeZone')) returning entry, $2::int as count"

// Steps of many runs share commits, and each has what it returned.
func TestStepGroup_StepsOfDifferentRunsShareACommit(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t, pgtest.MaxConns(8))
	doneTable(t, pool)
	client := groups(t, pool, enterDone)
	for i, id := range enqueueGroup(t, client, items("many ", 60)...) {
		run := waitFor(t, client, id)
		require.Equal(t, jobs.StatusSucceeded, run.Status)
		require.JSONEq(t, fmt.Sprintf(`[{"entry": "many %d 1", "count": 0}]`, i), string(run.Output))
	}
	txs, rows := commits(t, pool, "many ")
	require.Equal(t, 120, rows)
	require.Less(t, txs, 60, "steps do not share commits")
}

// A step that PostgreSQL refuses fails alone: its neighbours succeed on their first try, each once. Its text shares no
// commit for a while after.
func TestStepGroup_ARefusedStepFailsAlone(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t, pgtest.MaxConns(8))
	doneTable(t, pool)
	client := groups(t, pool, enterDone)
	orders := items("some ", 60)
	orders[7].Item = "proof 0" // there already
	for i, id := range enqueueGroup(t, client, orders...) {
		run := waitFor(t, client, id)
		if i == 7 {
			require.Equal(t, jobs.StatusFailed, run.Status)
			require.Equal(t, 2, run.Failures)
			continue
		}
		require.Equal(t, jobs.StatusSucceeded, run.Status)
		require.Zero(t, run.Failures)
		require.Equal(t, int64(1), run.Attempt)
	}
	_, rows := commits(t, pool, "some ")
	require.Equal(t, 118, rows)
	for _, id := range enqueueGroup(t, client, items("later ", 20)...) {
		require.Equal(t, jobs.StatusSucceeded, waitFor(t, client, id).Status)
	}
	txs, rows := commits(t, pool, "later ")
	require.Equal(t, []int{40, 40}, []int{txs, rows}, "it shares commits again at once")
}

// A step that waits for somebody's row holds its neighbours up for a moment only.
func TestStepGroup_AStepThatWaitsForARowWaitsAlone(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t, pgtest.MaxConns(10))
	doneTable(t, pool)
	client := groups(t, pool, enterDone)
	tx, err := pool.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), "insert into done values ('some 7 0', '')")
	require.NoError(t, err)
	ids := enqueueGroup(t, client, items("some ", 30)...)
	for i, id := range ids {
		if i != 7 {
			run := waitFor(t, client, id)
			require.Equal(t, jobs.StatusSucceeded, run.Status)
			require.Equal(t, int64(1), run.Attempt, "it was in doubt")
		}
	}
	require.NoError(t, tx.Rollback(t.Context()))
	run := waitFor(t, client, ids[7])
	require.Equal(t, jobs.StatusSucceeded, run.Status)
	require.Zero(t, run.Failures)
}

// What a step does to its session reaches no neighbour, though its text did nothing of the sort before.
func TestStepGroup_TheSessionOfAStepReachesNoNeighbour(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t, pgtest.MaxConns(8))
	doneTable(t, pool)
	_, err := pool.Exec(t.Context(), `alter table done add n int;
		create function zone() returns trigger language plpgsql as $$ begin
			if new.n > 0 then perform pg_catalog.set_config('TimeZone', 'Asia/Tokyo', false); end if;
			new.zone = current_setting('TimeZone');
			return new;
		end $$;
		create trigger zone before insert on done for each row execute function zone()`)
	require.NoError(t, err)
	client := groups(t, pool, "insert into done values ($1, '', $2) returning entry")
	orders := items("some ", 60)
	orders[3].Count = 1
	for _, id := range enqueueGroup(t, client, orders...) {
		require.Equal(t, jobs.StatusSucceeded, waitFor(t, client, id).Status)
	}
	var tokyo int
	require.NoError(t, pool.QueryRow(t.Context(), "select count(*) from done where zone = 'Asia/Tokyo'").Scan(&tokyo))
	require.Equal(t, 2, tokyo, "the steps of the one run, and no other")
}

// R10: the answer to a group is lost, before it was executed or after it was committed. Each owner finds out for its own
// run, and each step is done once.
func TestStepGroup_ALostAnswerIsResolvedForEachRun(t *testing.T) {
	t.Parallel()
	for name, after := range map[string]bool{"before": false, "after": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			address := pgtest.URL(t)
			direct := pgtest.Connect(t, address)
			doneTable(t, direct)
			c := &cutter{text: []byte("cut 5 "), after: after}
			pool := pgtest.Connect(t, c.listen(t, address), pgtest.MaxConns(8))
			client := groups(t, pool, enterDone)
			c.left.Store(1)
			began, raised := time.Now(), 0
			for _, id := range enqueueGroup(t, client, items("cut ", 40)...) {
				run := waitFor(t, client, id)
				require.Equal(t, jobs.StatusSucceeded, run.Status)
				require.Zero(t, run.Failures)
				if run.Attempt > 1 {
					raised++
				}
			}
			require.Less(t, time.Since(began), 20*time.Second)
			require.LessOrEqual(t, c.left.Load(), int64(0), "nothing was cut")
			_, rows := commits(t, direct, "cut ")
			require.Equal(t, 80, rows)
			t.Logf("%d runs were in doubt", raised)
			require.Positive(t, raised, "no doubt was resolved")
		})
	}
}
