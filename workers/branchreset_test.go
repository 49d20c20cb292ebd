package workers_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/internal/postgres/pgtest"
	"github.com/weirqueue/weir/jobs"
	"github.com/weirqueue/weir/workers"
	"github.com/weirqueue/weir/workers/branch"
)

// A reset is issued once, polled by snoozing, and every status that was seen is on record.
func TestReset_IssuedOnceAndPolledToTheEnd(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	client := newClient(t, pool)
	p := &fakeBranches{poll: says(op("", "scheduling", branch.Running), op("", "running", branch.Running), op("", "running", branch.Running), op("", "finished", branch.Finished))}
	start(t, pool, branchConfig(p))
	id := resetBranch(t, client, "dev")
	run := untilEnd(t, client, id, jobs.StatusSucceeded, "")
	require.Equal(t, 1, p.times(&p.issues, id))
	require.Equal(t, 4, p.times(&p.polls, id))
	require.Zero(t, p.times(&p.finds, id))
	require.Zero(t, run.Failures)
	r := getReset(t, client, id)
	require.Equal(t, []string{id.String() + " running", id.String() + " scheduling", id.String() + " running", id.String() + " finished"}, seenWords(r))
	require.Equal(t, "dev", r.Branch)
	require.Len(t, outcomes(t, client, id), 2)
	require.Empty(t, hows(t, client, id), "a poll is no failed try")
	require.JSONEq(t, `[{"id":"`+id.String()+`","action":"restore","status":"finished","state":"finished","final":true}]`, string(run.Output))
}

// Between two polls nobody owns the run, and no worker of this process is taken.
func TestReset_WaitsWithoutAWorker(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	client := newClient(t, pool)
	var done atomic.Bool
	p := &fakeBranches{poll: func(_ context.Context, o branch.Operation, _ int) (branch.Operation, error) {
		if done.Load() {
			return op(o.ID, "finished", branch.Finished), nil
		}
		return op(o.ID, "running", branch.Running), nil
	}}
	start(t, pool, branchConfig(p, func(c *workers.Config) { c.Branches.MaxWorkers = 1 }))
	var ids []jobs.RunID
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		ids = append(ids, resetBranch(t, client, name))
	}
	for _, id := range ids { // all are under way at once, by one worker
		until(t, client, id, "polled and waiting", func(r *jobs.Run) bool {
			return r.LeaseOwner == "" && p.times(&p.polls, id) > 2
		})
	}
	done.Store(true)
	for _, id := range ids {
		untilEnd(t, client, id, jobs.StatusSucceeded, "")
		require.Equal(t, 1, p.times(&p.issues, id))
	}
}

// BR-01: failed is not final while the provider may try again; an unknown word is polled on; what was skipped or
// canceled is no success.
func TestReset_EveryWordOfAProvider(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	client := newClient(t, pool)
	running := op("", "running", branch.Running)
	for name, c := range map[string]struct {
		words  []branch.Operation
		status jobs.Status
		code   string
	}{
		"recovers":  {[]branch.Operation{op("", "scheduling", ""), running, op("", "failed", branch.Retrying), running, op("", "finished", branch.Finished)}, jobs.StatusSucceeded, ""},
		"skipped":   {[]branch.Operation{running, op("", "skipped", branch.Skipped)}, jobs.StatusFailed, "operation_skipped"},
		"cancelled": {[]branch.Operation{op("", "cancelling", branch.Running), op("", "cancelled", branch.Canceled)}, jobs.StatusFailed, "operation_canceled"},
		"failed":    {[]branch.Operation{running, op("", "broken", branch.Failed)}, jobs.StatusFailed, "operation_failed"},
		"unheard":   {[]branch.Operation{op("", "pondering", branch.Unheard), op("", "finished", branch.Finished)}, jobs.StatusSucceeded, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := pgtest.Pool(t)
			client := newClient(t, pool)
			p := &fakeBranches{poll: says(c.words...)}
			start(t, pool, branchConfig(p))
			id := resetBranch(t, client, name)
			untilEnd(t, client, id, c.status, c.code)
			require.Equal(t, 1, p.times(&p.issues, id))
			require.Equal(t, len(c.words), p.times(&p.polls, id))
		})
	}
	// While an operation is failed the branch is held, up to the limit.
	p := &fakeBranches{poll: says(op("", "failed", branch.Retrying))}
	start(t, pool, branchConfig(p))
	id := resetBranch(t, client, "held")
	require.NoError(t, eventually(func() bool { return p.times(&p.polls, id) > 3 }))
	_, err := client.ResetBranch(t.Context(), jobs.Reset{Branch: "held"}, nil)
	require.ErrorIs(t, err, jobs.ErrInFlight)
	age(t, pool, id, 11*time.Minute)
	untilEnd(t, client, id, jobs.StatusFailed, "operation_failed")
	// Nothing is polled for ever.
	p.poll = says(running)
	id = resetBranch(t, client, "slow")
	require.NoError(t, eventually(func() bool { return p.times(&p.polls, id) > 1 }))
	age(t, pool, id, 61*time.Minute)
	untilEnd(t, client, id, jobs.StatusFailed, "limit")
	require.Equal(t, 1, p.times(&p.issues, id))
}

// BR-02: done only when every operation is final; a call that was not accepted is not an issue, and is made again until
// the limit.
func TestReset_SeveralOperationsAndALockedProject(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	client := newClient(t, pool)
	var refusals atomic.Int64
	p := &fakeBranches{
		issue: func(_ context.Context, r branch.Reset) ([]branch.Operation, error) {
			if r.Branch == "locked" || refusals.Add(1) <= 2 {
				return nil, branch.Later(0, "neon_423", errors.New("project is locked"))
			}
			return []branch.Operation{op("1", "finished", branch.Finished), op("2", "running", ""), op("3", "scheduling", ""), op("3", "scheduling", "")}, nil
		},
		poll: func(_ context.Context, o branch.Operation, n int) (branch.Operation, error) {
			if o.ID == "3" && n < 8 {
				return op("3", "running", branch.Running), nil
			}
			return op(o.ID, "finished", branch.Finished), nil
		},
	}
	start(t, pool, branchConfig(p))
	id := resetBranch(t, client, "dev")
	run := untilEnd(t, client, id, jobs.StatusSucceeded, "")
	require.Equal(t, 3, p.times(&p.issues, id))
	require.Zero(t, run.Failures, "not accepted is no failure")
	operations := getReset(t, client, id).Operations
	require.Len(t, operations, 3)
	for _, o := range operations {
		require.True(t, o.Final, "operation %s was open when the reset ended", o.ID)
	}

	id = resetBranch(t, client, "locked")
	require.NoError(t, eventually(func() bool { return p.times(&p.issues, id) > 2 }))
	require.NoError(t, eventually(func() bool { return strings.HasPrefix(outcomes(t, client, id)[0], "failed") }), "it surely did not happen")
	age(t, pool, id, 61*time.Minute)
	untilEnd(t, client, id, jobs.StatusFailed, "not_accepted")
}

// BR-03, BR-04: an answer that is lost after the provider has applied the call is found, not issued again; what the
// provider does not show within the written wait ends as unknown; a provider that cannot be asked is asked on.
func TestReset_LostAnswerIsAskedFor(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	client := newClient(t, pool)
	var asked atomic.Int64
	p := &fakeBranches{
		issue: func(_ context.Context, r branch.Reset) ([]branch.Operation, error) {
			if r.Branch == "panics" {
				panic("in the middle of the call")
			}
			return nil, errors.New("connection reset by peer")
		},
		find: func(_ context.Context, r branch.Reset) ([]branch.Operation, bool, error) {
			n := asked.Add(1)
			switch {
			case r.Branch == "nowhere":
				return nil, false, nil
			case n == 1:
				return nil, false, errors.New("timeout")
			case n == 2:
				return nil, false, nil
			}
			return []branch.Operation{op("found", "running", "")}, true, nil
		},
	}
	start(t, pool, branchConfig(p))
	for _, name := range []string{"dev", "panics"} {
		asked.Store(0)
		id := resetBranch(t, client, name)
		untilEnd(t, client, id, jobs.StatusSucceeded, "")
		require.Equal(t, 1, p.times(&p.issues, id), name)
		require.Equal(t, []string{"found running", "found finished"}, seenWords(getReset(t, client, id)))
	}
	id := resetBranch(t, client, "nowhere")
	require.NoError(t, eventually(func() bool { return p.times(&p.finds, id) > 3 }))
	require.False(t, get(t, client, id).Terminal(), "the written wait is not over")
	age(t, pool, id, 6*time.Minute)
	untilEnd(t, client, id, jobs.StatusFailed, "outcome_unknown")
	require.Equal(t, 1, p.times(&p.issues, id))
	require.Contains(t, outcomes(t, client, id)[0], "unknown", "it may still arrive")
	_, err := client.ResetBranch(t.Context(), jobs.Reset{Branch: "nowhere"}, nil)
	require.NoError(t, err, "the branch is free")
}

// BR-06: what the provider refuses for good fails with its code, frees the branch, and is not tried again.
func TestReset_RefusedIsFinal(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	client := newClient(t, pool)
	p := &fakeBranches{issue: func(context.Context, branch.Reset) ([]branch.Operation, error) {
		return nil, branch.Refused("neon_422", errors.New("the timestamp is before the history window"))
	}}
	start(t, pool, branchConfig(p))
	id := resetBranch(t, client, "dev")
	run := untilEnd(t, client, id, jobs.StatusFailed, "neon_422")
	require.Contains(t, run.ErrorMessage, "history window")
	require.Equal(t, 1, p.times(&p.issues, id))
}

// BR-07, BR-08: being told to come back later, or that our key is wrong, fails nothing, at the issue and at a poll; an
// operation that the provider has lost is unknown after a while, and then the reset itself is asked for.
func TestReset_TroubleWhilePolling(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	client := newClient(t, pool)
	p := &fakeBranches{
		poll: func(_ context.Context, o branch.Operation, n int) (branch.Operation, error) {
			switch n {
			case 1:
				return o, branch.Later(20*time.Millisecond, "neon_429", nil)
			case 2:
				return o, branch.Misconfigured("neon_401", nil)
			case 3:
				return o, errors.New("timeout")
			case 4:
				panic("in a poll")
			}
			return op(o.ID, "finished", branch.Finished), nil
		},
	}
	proc := start(t, pool, branchConfig(p))
	id := resetBranch(t, client, "dev")
	untilEnd(t, client, id, jobs.StatusSucceeded, "")
	require.Equal(t, 1, p.times(&p.issues, id))
	require.Equal(t, 5, p.times(&p.polls, id))
	require.Len(t, of[workers.Misconfigured](proc.events), 1)

	p.poll = func(_ context.Context, o branch.Operation, _ int) (branch.Operation, error) {
		return o, branch.Gone("neon_404", nil)
	}
	id = resetBranch(t, client, "lost")
	require.NoError(t, eventually(func() bool { return p.times(&p.polls, id) > 3 }))
	require.Zero(t, p.times(&p.finds, id))
	age(t, pool, id, 6*time.Minute)
	untilEnd(t, client, id, jobs.StatusFailed, "outcome_unknown")
	p.find = func(context.Context, branch.Reset) ([]branch.Operation, bool, error) {
		return []branch.Operation{op("again", "finished", branch.Finished)}, true, nil
	}
	id = resetBranch(t, client, "shown")
	require.NoError(t, eventually(func() bool { return p.times(&p.polls, id) > 1 }))
	age(t, pool, id, 6*time.Minute)
	untilEnd(t, client, id, jobs.StatusSucceeded, "")
	require.Equal(t, 1, p.times(&p.issues, id))
}
