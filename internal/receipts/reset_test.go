package receipts_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/internal/fencing"
	"github.com/weirqueue/weir/internal/fencing/fencetest"
	"github.com/weirqueue/weir/internal/postgres/pgtest"
	"github.com/weirqueue/weir/internal/receipts"
)

var issue = receipts.Step{Index: 0, Name: "issue", Effect: receipts.Reconciled}

// A branch reset whose cancellation was requested is walked over every event: what is under way at its provider ends it,
// and nothing else. An application's own kind, with the same machine, ends at the next of them.
func TestCancel_ARequestedOneOfABranchResetEndsWithItsOperationsOnly(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	reaper := &fencing.Reaper{DB: pool, Bells: fencetest.Bells(t, pool), Settle: receipts.SettleUnknown, MaxReaps: 5, Limit: 100}
	const requested fencetest.Set = "cancel_requested_at = clock_timestamp()"
	end := func(kind string, run uuid.UUID, attempt int64, e fencing.Event) (receipts.Ended, error) {
		return receipts.End{
			Event: e, Run: run, Kind: kind, Attempt: attempt, Owner: "w", Step: issue, Code: "code", Message: "message", Delay: time.Hour,
		}.Write(t.Context(), pool)
	}
	for event, want := range map[fencing.Event][2]fencing.Status{
		fencing.FailTry: {"running", "canceled"},
		fencing.Snooze:  {"running", "canceled"},
		fencing.Release: {"running", "canceled"},
		fencing.Reap:    {"running", "canceled"},
		fencing.Refuse:  {"failed", "failed"},
		fencing.Succeed: {"succeeded", "succeeded"},
		fencing.Cancel:  {"canceled", "canceled"},
	} {
		for i, kind := range []string{fencing.KindBranchReset, fencetest.Steps} {
			owned := fencetest.Owned
			if event == fencing.Reap {
				owned = fencetest.Expired
			}
			run := fencetest.Insert(t, pool, kind, "running", owned, requested)
			var err error
			if event == fencing.Reap {
				_, err = reaper.Reap(t.Context())
			} else {
				_, err = end(kind, run, fencetest.Read(t, pool, run).Attempt, event)
			}
			require.NoError(t, err)
			require.Equal(t, want[i], fencetest.Read(t, pool, run).Status, "%s of %s", event, kind)
		}
	}
	// The owner's own cancellation is fenced, as everything is that an owner writes.
	run := fencetest.Insert(t, pool, fencing.KindBranchReset, "running", fencetest.Owned, requested)
	_, err := end(fencing.KindBranchReset, run, fencetest.Read(t, pool, run).Attempt-1, fencing.Cancel)
	require.True(t, errors.Is(err, fencing.ErrLeaseLost))
	require.Equal(t, fencing.Status("running"), fencetest.Read(t, pool, run).Status)
	unowned := fencetest.Insert(t, pool, fencing.KindBranchReset, "running", requested)
	_, err = end(fencing.KindBranchReset, unowned, fencetest.Read(t, pool, unowned).Attempt, fencing.Cancel)
	require.True(t, errors.Is(err, fencing.ErrLeaseLost))
}

// Whether a cancellation ends a branch reset at once depends on its issue, owned or not.
func TestCancel_OfABranchResetLooksAtItsIssue(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	for outcome, atOnce := range map[string]bool{"": true, "failed": true, "started": false, "unknown": false, "ok": false} {
		for _, owned := range []bool{true, false} {
			sets := []fencetest.Set{}
			if owned {
				sets = append(sets, fencetest.Owned)
			}
			run := fencetest.Insert(t, pool, fencing.KindBranchReset, "running", sets...)
			if outcome != "" {
				fencetest.Exec(t, pool, `insert into weir.receipt (run_id, step_index, attempt, outcome, effect, step_name) values ($1, 0, 7, $2, 'reconciled', 'issue')`, run, outcome)
			}
			done, err := cancel(t.Context(), pool, run)
			require.NoError(t, err)
			require.Equal(t, atOnce, done, "%q, owned %v", outcome, owned)
			row := fencetest.Read(t, pool, run)
			require.Equal(t, atOnce, row.Terminal)
			require.True(t, row.CancelRequested)
		}
	}
}
