package workers_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/internal/postgres/pgtest"
	"github.com/weirqueue/weir/jobs"
	"github.com/weirqueue/weir/workers/branch"
)

// A cancellation in every status: before the issue it ends the reset at once; after that it is a request, the provider
// is asked to stop, and the run is canceled when the operations are final, not before; what finished first has succeeded.
func TestCancelReset_InEveryStatus(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	client := newClient(t, pool)
	cancel := func(id jobs.RunID) { t.Helper(); require.NoError(t, client.CancelBranchReset(t.Context(), id)) }

	queued := resetBranch(t, client, "queued")
	cancel(queued)
	require.Equal(t, jobs.StatusCanceled, get(t, client, queued).Status)
	cancel(queued) // again

	var stopped, over atomic.Bool
	refusing := &fakeBranches{
		issue: func(_ context.Context, r branch.Reset) ([]branch.Operation, error) {
			if r.Branch == "not accepted" {
				return nil, branch.Later(0, "neon_423", errors.New("locked"))
			}
			return []branch.Operation{op(r.RunID, "running", "")}, nil
		},
		poll: func(_ context.Context, o branch.Operation, _ int) (branch.Operation, error) {
			switch {
			case stopped.Load() && over.Load():
				return op(o.ID, "cancelled", branch.Canceled), nil
			case over.Load():
				return op(o.ID, "finished", branch.Finished), nil
			}
			return op(o.ID, "running", ""), nil
		},
		cancel: func(ops []branch.Operation) error {
			if !stopped.Load() {
				return branch.ErrNotCancelable
			}
			return nil
		},
	}
	start(t, pool, branchConfig(refusing))

	id := resetBranch(t, client, "not accepted")
	require.NoError(t, eventually(func() bool { return refusing.times(&refusing.issues, id) > 1 }))
	cancel(id)
	untilEnd(t, client, id, jobs.StatusCanceled, "canceled")

	stopped.Store(true)
	id = resetBranch(t, client, "stopped")
	require.NoError(t, eventually(func() bool { return refusing.times(&refusing.polls, id) > 0 }))
	cancel(id)
	require.NoError(t, eventually(func() bool { return refusing.times(&refusing.cancels, id) > 2 }), "the provider is asked to stop")
	run := get(t, client, id)
	require.Equal(t, jobs.StatusRunning, run.Status, "its operations are not final")
	require.NotNil(t, run.CancelRequestedAt)
	_, err := client.ResetBranch(t.Context(), jobs.Reset{Branch: "stopped"}, nil)
	require.ErrorIs(t, err, jobs.ErrInFlight)
	over.Store(true)
	untilEnd(t, client, id, jobs.StatusCanceled, "canceled")
	cancel(id)

	stopped.Store(false)
	over.Store(false)
	id = resetBranch(t, client, "finishes")
	require.NoError(t, eventually(func() bool { return refusing.times(&refusing.polls, id) > 0 }))
	cancel(id)
	over.Store(true)
	untilEnd(t, client, id, jobs.StatusSucceeded, "")
	require.ErrorIs(t, client.CancelBranchReset(t.Context(), id), jobs.ErrState)

	refusing.issue = func(context.Context, branch.Reset) ([]branch.Operation, error) {
		return nil, branch.Refused("no", errors.New("no"))
	}
	id = resetBranch(t, client, "refused")
	untilEnd(t, client, id, jobs.StatusFailed, "no")
	require.ErrorIs(t, client.CancelBranchReset(t.Context(), id), jobs.ErrState)
}

// While the issue is under way nobody knows what will come of it: a cancellation waits for that.
func TestCancelReset_DuringTheIssue(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	client := newClient(t, pool)
	gate := make(chan struct{})
	p := &fakeBranches{
		issue: func(_ context.Context, r branch.Reset) ([]branch.Operation, error) {
			<-gate
			return []branch.Operation{op(r.RunID, "running", "")}, nil
		},
		poll: says(op("", "cancelled", branch.Canceled)),
	}
	start(t, pool, branchConfig(p))
	id := resetBranch(t, client, "dev")
	require.NoError(t, eventually(func() bool { return p.times(&p.issues, id) == 1 }))
	require.NoError(t, client.CancelBranchReset(t.Context(), id))
	require.Equal(t, jobs.StatusRunning, get(t, client, id).Status)
	close(gate)
	untilEnd(t, client, id, jobs.StatusCanceled, "canceled")
	require.Equal(t, 1, p.times(&p.cancels, id))
}

// A reset whose River job somebody cancelled goes on being polled: nothing else would see the end of it.
func TestCancelReset_InRiverIsFollowedToTheEnd(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	client := newClient(t, pool)
	var over atomic.Bool
	p := &fakeBranches{poll: func(_ context.Context, o branch.Operation, _ int) (branch.Operation, error) {
		if over.Load() {
			return op(o.ID, "cancelled", branch.Canceled), nil
		}
		return op(o.ID, "running", ""), nil
	}}
	cfg := branchConfig(p)
	cfg.Branches.PollFirst, cfg.Branches.PollMax = time.Second, time.Second
	proc := start(t, pool, cfg)
	id := resetBranch(t, client, "dev")
	require.NoError(t, eventually(func() bool { return p.times(&p.polls, id) > 0 }))
	run := until(t, client, id, "waiting", func(r *jobs.Run) bool { return r.LeaseOwner == "" })
	_, err := proc.River().JobCancel(t.Context(), *run.DoorbellID)
	require.NoError(t, err)
	run = until(t, client, id, "asked to cancel", func(r *jobs.Run) bool { return r.CancelRequestedAt != nil })
	require.Equal(t, jobs.StatusRunning, run.Status)
	polls := p.times(&p.polls, id)
	require.NoError(t, eventually(func() bool { return p.times(&p.polls, id) > polls+1 }), "it is polled on")
	over.Store(true)
	untilEnd(t, client, id, jobs.StatusCanceled, "canceled_in_river")
}
