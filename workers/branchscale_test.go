package workers_test

import (
	"context"
	"os"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/internal/postgres/pgtest"
	"github.com/weirqueue/weir/jobs"
	"github.com/weirqueue/weir/workers"
	"github.com/weirqueue/weir/workers/branch"
)

// resetsAtOnce is how many resets run at once in TestReset_ManyWait; WEIR_TEST_RESETS says another number.
func resetsAtOnce(t *testing.T) int {
	n := 2000
	if raceEnabled {
		n = 300
	}
	if s := os.Getenv("WEIR_TEST_RESETS"); s != "" {
		var err error
		n, err = strconv.Atoi(s)
		require.NoError(t, err)
	}
	return n
}

// cloneReset copies a reset that is under way, with all that is on record of it, to n others, whose doorbells are lost.
const cloneReset = `
with runs as (
    insert into weir.run select (jsonb_populate_record(p, jsonb_build_object('id', f.id, 'root_id', f.id, 'exclusive_key', 'dev ' || f.n,
        'doorbell_id', null, 'doorbell_attempted_at', null, 'next_attempt_at', clock_timestamp()))).*
    from weir.run p, (select gen_random_uuid() as id, n from generate_series(1, $2::int) n) f where p.id = $1 returning id
), payloads as (
    insert into weir.payload select (jsonb_populate_record(p, jsonb_build_object('run_id', r.id))).* from weir.payload p, runs r where p.run_id = $1
), receipts as (
    insert into weir.receipt select (jsonb_populate_record(p, jsonb_build_object('run_id', r.id))).* from weir.receipt p, runs r where p.run_id = $1
)
insert into weir.branch_operation select (jsonb_populate_record(p, jsonb_build_object('run_id', r.id))).* from weir.branch_operation p, runs r where p.run_id = $1`

// Thousands of resets run on four workers: each costs a worker for a poll, and none between two. Upkeep finds all of them when
// their doorbells are lost, each is polled once and not more, and a new one does not wait behind those that wait.
func TestReset_ManyWaitAndEachCostsAPoll(t *testing.T) {
	t.Parallel()
	n := resetsAtOnce(t)
	const slots = 4
	pool := pgtest.Pool(t)
	client := newClient(t, pool)
	config := func(p branch.Provider) *workers.Config {
		return branchConfig(p, func(c *workers.Config) {
			c.Branches.MaxWorkers, c.Branches.Lease = slots, 30*time.Second
			c.Branches.PollFirst, c.Branches.PollMax = time.Hour, time.Hour
			c.DoorbellGrace = 500 * time.Millisecond
		})
	}
	running := says(op("", "running", branch.Running))
	maker := start(t, pool, config(&fakeBranches{poll: running}))
	id := resetBranch(t, client, "dev")
	until(t, client, id, "issued and waiting", func(r *jobs.Run) bool { return r.Status == jobs.StatusRunning && r.LeaseOwner == "" })
	require.NoError(t, maker.stop())
	execSQL(t, pool, cloneReset, id.String(), n)
	execSQL(t, pool, "analyze weir.run")

	var polls, inFlight, most atomic.Int64
	p := &fakeBranches{
		poll: func(ctx context.Context, o branch.Operation, k int) (branch.Operation, error) {
			now := inFlight.Add(1)
			defer inFlight.Add(-1)
			for m := most.Load(); now > m && !most.CompareAndSwap(m, now); m = most.Load() {
			}
			polls.Add(1)
			return running(ctx, o, k)
		},
		issue: func(_ context.Context, r branch.Reset) ([]branch.Operation, error) {
			return []branch.Operation{op(r.RunID, "finished", branch.Finished)}, nil
		},
	}
	began := time.Now()
	start(t, pool, config(p))
	for last, seen := time.Now(), int64(0); polls.Load() < int64(n); time.Sleep(20 * time.Millisecond) {
		if now := polls.Load(); now > seen {
			last, seen = time.Now(), now
		}
		require.Less(t, time.Since(last), time.Minute, "%d of %d were polled", seen, n)
	}
	took := time.Since(began)
	const atWork = "select count(*)::int from river_job where kind = 'weir_branch_reset' and state = 'running'"
	require.NoError(t, eventually(func() bool { return value[int](t, pool, atWork) == 0 }), "no worker is taken")
	require.Equal(t, n+1, value[int](t, pool, "select count(*)::int from weir.run where status = 'running' and lease_owner is null"))

	began = time.Now()
	fresh := resetBranch(t, client, "fresh")
	untilEnd(t, client, fresh, jobs.StatusSucceeded, "")
	t.Logf("%d running resets: all rung and polled once in %s by %d workers, %.2f ms each; a new one took %s",
		n, took.Round(time.Millisecond), slots, took.Seconds()*1000/float64(n), time.Since(began).Round(time.Millisecond))
	require.EqualValues(t, n, polls.Load(), "each once")
	require.LessOrEqual(t, most.Load(), int64(slots))
}
