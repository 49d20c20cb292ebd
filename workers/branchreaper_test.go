package workers_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/internal/postgres/pgtest"
	"github.com/weirqueue/weir/jobs"
	"github.com/weirqueue/weir/workers"
	"github.com/weirqueue/weir/workers/branch"
)

// BR-15: when every worker that knew the operation is dead and its doorbell is lost, whoever comes next polls on; the
// record is enough.
func TestDbopsReaper_GoesOnWhenEveryWorkerThatKnewIsGone(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	client := newClient(t, pool)
	p := &fakeBranches{poll: says(op("", "running", ""))}
	first := start(t, pool, branchConfig(p))
	id := resetBranch(t, client, "dev")
	require.NoError(t, eventually(func() bool { return p.times(&p.polls, id) > 1 }))
	require.NoError(t, first.stop())
	execSQL(t, pool, "delete from river_job")
	other := &fakeBranches{}
	start(t, pool, branchConfig(other, func(c *workers.Config) { c.DoorbellGrace = 500 * time.Millisecond }))
	untilEnd(t, client, id, jobs.StatusSucceeded, "")
	require.Equal(t, 1, p.times(&p.issues, id))
	require.Zero(t, other.times(&other.issues, id))
}

// Many processes, each with the upkeep of its own and the periodic job now here, now there: one issue a reset.
func TestDbopsReaper_ManyAtOnceAndALeaderThatChanges(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t, pgtest.MaxConns(40))
	client := newClient(t, pool)
	var over atomic.Bool
	p := &fakeBranches{poll: func(_ context.Context, o branch.Operation, _ int) (branch.Operation, error) {
		if over.Load() {
			return op(o.ID, "finished", branch.Finished), nil
		}
		return op(o.ID, "running", ""), nil
	}}
	config := func() *workers.Config {
		return branchConfig(p, func(c *workers.Config) {
			c.ReaperInterval, c.DoorbellGrace = 100*time.Millisecond, 500*time.Millisecond
		})
	}
	leader := start(t, pool, config())
	start(t, pool, config())
	start(t, pool, config())
	var ids []jobs.RunID
	for _, name := range []string{"a", "b", "c", "d"} {
		ids = append(ids, resetBranch(t, client, name))
	}
	require.NoError(t, eventually(func() bool {
		return value[int](t, pool, "select count(*)::int from river_job where kind = 'dbops-reaper' and state = 'completed'") > 0
	}), "the periodic job runs on start")
	require.NoError(t, leader.stop())
	execSQL(t, pool, "delete from river_job where kind = 'weir_branch_reset'") // all doorbells are lost
	before := p.times(&p.polls, ids[3])
	require.NoError(t, eventually(func() bool { return p.times(&p.polls, ids[3]) > before+2 }))
	over.Store(true)
	for _, id := range ids {
		untilEnd(t, client, id, jobs.StatusSucceeded, "")
		require.Equal(t, 1, p.times(&p.issues, id))
	}
	// The job itself, once more, on a node that is not the leader perhaps.
	execSQL(t, pool, "insert into river_job (kind, args, queue, max_attempts, state) values ('dbops-reaper', '{}', 'weir_dbops', 3, 'available')")
	require.NoError(t, eventually(func() bool {
		return value[int](t, pool, "select count(*)::int from river_job where kind = 'dbops-reaper' and state in ('available', 'running')") == 0
	}))
	require.Empty(t, value[string](t, pool, "select coalesce(string_agg(errors::text, ' '), '') from river_job where kind = 'dbops-reaper' and errors is not null"))
}

// BR-15: a reset that no worker can work is closed after the limit, so its branch is free; one that is owned, or not due
// for so long, is left alone, and stands before no other.
func TestDbopsReaper_ClosesWhatNobodyWorks(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	client := newClient(t, pool)
	abandoned := resetBranch(t, client, "nobody's")
	fresh := resetBranch(t, client, "fresh")
	owned := resetBranch(t, client, "owned")
	issued := resetBranch(t, client, "issued")
	asked := resetBranch(t, client, "asked")
	for _, id := range []jobs.RunID{abandoned, issued, asked} {
		execSQL(t, pool, "update weir.run set next_attempt_at = next_attempt_at - interval '61 min' where id = $1", id.String())
	}
	execSQL(t, pool, "update weir.run set status = 'running' where id = any($1::text[]::uuid[])", []string{issued.String(), asked.String()})
	const receipt = "insert into weir.receipt (run_id, step_index, attempt, outcome, effect, step_name) values ($1, 0, 0, $2, 'reconciled', 'issue')"
	execSQL(t, pool, receipt, issued.String(), "ok")
	execSQL(t, pool, receipt, asked.String(), "started")
	execSQL(t, pool, `update weir.run set status = 'running', lease_owner = 'x', lease_expires_at = now() + interval '1 h',
		step_deadline_at = now() + interval '1 h', next_attempt_at = 'infinity' where id = $1`, owned.String())
	// Two processes without any provider.
	quick := func(c *workers.Config) { c.DoorbellGrace = 500 * time.Millisecond }
	first := start(t, pool, branchConfig(nil, quick))
	second := start(t, pool, branchConfig(nil, quick))
	untilEnd(t, client, abandoned, jobs.StatusFailed, "abandoned")
	untilEnd(t, client, issued, jobs.StatusFailed, "limit")
	untilEnd(t, client, asked, jobs.StatusFailed, "outcome_unknown")
	require.Equal(t, []string{"unknown 0"}, outcomes(t, client, asked))
	require.Equal(t, jobs.StatusQueued, get(t, client, fresh).Status)
	require.Equal(t, "x", get(t, client, owned).LeaseOwner)
	closed := 0
	require.NoError(t, eventually(func() bool {
		closed = 0
		for _, e := range append(of[workers.ResetsTended](first.events), of[workers.ResetsTended](second.events)...) {
			closed += e.Closed
		}
		return closed >= 3
	}))
	require.Equal(t, 3, closed, "each once")
	_, err := client.ResetBranch(t.Context(), jobs.Reset{Branch: "nobody's"}, nil)
	require.NoError(t, err)
}

// The sweep of resets is one statement on an index of its own, so a backlog of other kinds does not stand before them.
func TestDbopsReaper_ABacklogDoesNotDelayIt(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	client := newClient(t, pool)
	execSQL(t, pool, `insert into weir.run (id, root_id, kind, status, queue, max_failures, next_attempt_at)
		select gen_random_uuid(), gen_random_uuid(), 'delivery', 'pending', 'paused', 5, now() - interval '1 day' from generate_series(1, 30000)`)
	execSQL(t, pool, "analyze weir.run")
	p := &fakeBranches{}
	id := resetBranch(t, client, "dev")
	execSQL(t, pool, "delete from river_job where kind = 'weir_branch_reset'")
	start(t, pool, branchConfig(p, func(c *workers.Config) { c.DoorbellGrace = 500 * time.Millisecond }))
	untilEnd(t, client, id, jobs.StatusSucceeded, "")
	require.Equal(t, 1, p.times(&p.issues, id))
}

// After an outage of the whole fleet every reset is long due, and its doorbell may be lost. The workers come first: what
// was waiting is worked, and what the provider has finished meanwhile has succeeded.
func TestDbopsReaper_AfterAnOutageTheWorkersComeFirst(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	client := newClient(t, pool)
	running := &fakeBranches{poll: says(op("", "running", ""))}
	before := start(t, pool, branchConfig(running))
	issued := resetBranch(t, client, "issued")
	require.NoError(t, eventually(func() bool { return running.times(&running.polls, issued) > 0 }))
	require.NoError(t, before.stop())
	queued := resetBranch(t, client, "queued")
	age(t, pool, issued, 3*time.Hour)
	execSQL(t, pool, "update weir.run set next_attempt_at = clock_timestamp() - interval '3 h'")
	execSQL(t, pool, "delete from river_job")
	// One worker, which is at one of them while upkeep looks at the other.
	gate := make(chan struct{})
	p := &fakeBranches{
		issue: func(_ context.Context, r branch.Reset) ([]branch.Operation, error) {
			<-gate
			return []branch.Operation{op(r.RunID, "finished", branch.Finished)}, nil
		},
		poll: func(_ context.Context, o branch.Operation, _ int) (branch.Operation, error) {
			<-gate
			return op(o.ID, "finished", branch.Finished), nil
		},
	}
	after := start(t, pool, branchConfig(p, func(c *workers.Config) { c.Branches.MaxWorkers = 1 }))
	require.NoError(t, eventually(func() bool { return p.times(&p.issues, queued)+p.times(&p.polls, issued) > 0 }))
	rounds := len(of[workers.MaintenanceDone](after.events))
	require.NoError(t, eventually(func() bool { return len(of[workers.MaintenanceDone](after.events)) > rounds+2 }))
	close(gate)
	for _, id := range []jobs.RunID{issued, queued} {
		untilEnd(t, client, id, jobs.StatusSucceeded, "")
	}
	require.Zero(t, p.times(&p.issues, issued))
}
