package fencing_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/internal/fencing"
	"github.com/weirqueue/weir/internal/fencing/fencetest"
	"github.com/weirqueue/weir/internal/postgres/pgtest"
	"github.com/weirqueue/weir/internal/receipts"
)

// facts are what the guards of the tables ask about a run.
type facts struct{ cancelRequested, oneFailureLeft, oneReapLeft, deadlinePassed, limitPassed, resumable bool }

// allFacts are all combinations of what a machine's guards ask about.
func allFacts(m *fencing.Machine) []facts {
	n := 16
	if m == fencing.Plan {
		n = 64
	}
	var out []facts
	for i := range n {
		out = append(out, facts{i&1 > 0, i&2 > 0, i&4 > 0, i&8 > 0, i&16 > 0, i&32 > 0})
	}
	return out
}

func (f facts) hold(g fencing.Guard) bool {
	switch g {
	case fencing.Always:
		return true
	case fencing.CancelRequested:
		return f.cancelRequested
	case fencing.NotCanceled:
		return !f.cancelRequested
	case fencing.BudgetSpent:
		return f.oneFailureLeft
	case fencing.DeadlineSpent:
		return f.deadlinePassed && f.oneFailureLeft
	case fencing.ReapsSpent:
		return f.oneReapLeft
	case fencing.NotExpired:
		return !f.limitPassed
	case fencing.LimitPassed:
		return f.limitPassed
	case fencing.NotResumable:
		return !f.resumable
	}
	panic("unknown guard " + g)
}

func (f facts) sets() (out []fencetest.Set) {
	if f.cancelRequested {
		out = append(out, "cancel_requested_at = clock_timestamp()")
	}
	if f.oneFailureLeft {
		out = append(out, "failures = max_failures - 1")
	}
	if f.oneReapLeft {
		out = append(out, "reaps = 4")
	}
	if f.limitPassed {
		out = append(out, "expires_at = clock_timestamp() - interval '1 s'")
	}
	if f.resumable {
		out = append(out, "resumable = true")
	}
	return out
}

func pick(m *fencing.Machine, s fencing.Status, e fencing.Event, f facts) (fencing.Transition, bool) {
	for _, t := range m.Allowed(s, e) {
		if f.hold(t.When) {
			return t, true
		}
	}
	return fencing.Transition{}, false
}

// expected is what an event does beside the status, written here a second time.
type expected struct {
	raised, owned bool
	failures      func(was int, f facts) int
	reaps         func(was int) int
}

var (
	same     = func(was int, _ facts) int { return was }
	oneMore  = func(was int, _ facts) int { return was + 1 }
	reset    = func(int, facts) int { return 0 }
	sameReap = func(was int) int { return was }
	noReaps  = func(int) int { return 0 }
)

var expectations = map[fencing.Event]expected{
	fencing.Claim:      {raised: true, owned: true, failures: same, reaps: sameReap},
	fencing.StartStep:  {owned: true, failures: same, reaps: sameReap},
	fencing.CommitStep: {owned: true, failures: same, reaps: noReaps},
	fencing.Succeed:    {failures: same, reaps: noReaps},
	fencing.Refuse:     {failures: oneMore, reaps: sameReap},
	fencing.FailTry:    {raised: true, failures: oneMore, reaps: sameReap},
	fencing.Snooze:     {raised: true, failures: same, reaps: sameReap},
	fencing.Release:    {raised: true, failures: same, reaps: sameReap},
	fencing.Reap: {raised: true, reaps: func(was int) int { return was + 1 }, failures: func(was int, f facts) int {
		if f.deadlinePassed {
			return was + 1
		}
		return was
	}},
	fencing.Cancel:        {raised: true, failures: same, reaps: sameReap},
	fencing.RequestCancel: {owned: true, failures: same, reaps: sameReap},
	fencing.Redrive:       {raised: true, failures: reset, reaps: noReaps},
	fencing.Approve:       {failures: same, reaps: sameReap},
	fencing.Reject:        {raised: true, failures: same, reaps: sameReap},
	fencing.Expire:        {raised: true, failures: same, reaps: sameReap},
}

// apply lets the event happen to a run through the functions that the workers and clients use. moved is false when it
// was refused.
func apply(ctx context.Context, pool *pgxpool.Pool, reaper *fencing.Reaper, m *fencing.Machine, run uuid.UUID, attempt int64, e fencing.Event) (moved bool, err error) {
	kind := fencetest.KindOf(m)
	step := receipts.Step{Index: 0, Name: "send", Effect: receipts.AtLeastOnce}
	switch e {
	case fencing.Claim:
		_, ok, err := receipts.Claim(ctx, pool, func() fencing.ClaimRequest {
			req := fencetest.Request(kind, run)
			req.Suspect = true
			return req
		}())
		return ok, err
	case fencing.StartStep:
		_, _, err := receipts.Outside{Run: run, Kind: kind, Attempt: attempt, Step: step, Lease: time.Minute, StepTime: time.Minute}.Start(ctx, pool)
		return err == nil, ignore(err, fencing.ErrLeaseLost)
	case fencing.CommitStep:
		err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			return receipts.StepFence{Run: run, Kind: kind, Attempt: attempt, Step: step, Lease: time.Minute, StepTime: time.Minute}.Write(ctx, tx)
		})
		return err == nil, ignore(err, fencing.ErrLeaseLost)
	case fencing.Succeed, fencing.Refuse, fencing.FailTry, fencing.Snooze, fencing.Release:
		_, err := receipts.End{
			Event: e, Run: run, Kind: kind, Attempt: attempt, Owner: "w", Step: step, Outcome: receipts.Unknown,
			Code: "code", Message: "message", Delay: time.Hour,
		}.Write(ctx, pool)
		return err == nil, ignore(err, fencing.ErrLeaseLost)
	case fencing.Reap:
		reaped, err := reaper.Reap(ctx)
		return len(reaped) == 1, err
	case fencing.Expire:
		expired, err := fencing.ExpirePlans(ctx, pool, 10)
		return len(expired) == 1, err
	}
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if _, _, err := fencing.LockRun(ctx, tx, run); err != nil {
			return err
		}
		switch e {
		case fencing.Cancel:
			return fencing.CancelLocked(ctx, tx, m, run, fencing.CodeCanceled)
		case fencing.RequestCancel:
			return fencing.RequestCancelLocked(ctx, tx, m, run, fencing.CodeCanceled)
		case fencing.Redrive:
			ok, err := fencing.RedriveLocked(ctx, tx, m, run)
			if err == nil && !ok {
				return pgx.ErrNoRows
			}
			return err
		case fencing.Approve:
			return decided(fencing.ApproveLocked(ctx, tx, run, time.Minute))
		case fencing.Reject:
			return decided(fencing.RejectLocked(ctx, tx, run))
		}
		return fmt.Errorf("no function for the event %s", e)
	})
	return err == nil, ignore(err, pgx.ErrNoRows)
}

func decided(ok bool, err error) error {
	if err == nil && !ok {
		return pgx.ErrNoRows
	}
	return err
}

func ignore(err, expected error) error {
	if errors.Is(err, expected) {
		return nil
	}
	return err
}

// Every status × event × guard of every table, against PostgreSQL: what the SQL does is what the Go table says, and a
// status that an event does not leave stays untouched (R1, R4, F10, invariant 1).
func TestTransitions_EveryStatusAndEvent(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	reaper := fencetest.Reaper(t, pool)
	for _, m := range fencing.Machines {
		for _, s := range m.Statuses() {
			for _, e := range fencing.Events() {
				walk(t, pool, reaper, m, s, e)
			}
		}
	}
}

func walk(t *testing.T, pool *pgxpool.Pool, reaper *fencing.Reaper, m *fencing.Machine, s fencing.Status, e fencing.Event) {
	ownable := contains(m.Ownable, s)
	for _, f := range allFacts(m) {
		// A running run of many steps is between owners when it is claimed; a lease is what all else acts on.
		owned := ownable && e != fencing.Claim
		if f.deadlinePassed && !owned {
			continue
		}
		name := fmt.Sprintf("%s: %s on %s, %+v", m.Name, e, s, f)
		run := fencetest.Insert(t, pool, fencetest.KindOf(m), s, f.sets()...)
		if owned {
			fencetest.Update(t, pool, run, fencetest.Expired)
		}
		if f.deadlinePassed {
			fencetest.Update(t, pool, run, "step_deadline_at = clock_timestamp() - interval '1 s'")
		}
		was := fencetest.Read(t, pool, run)
		moved, err := apply(t.Context(), pool, reaper, m, run, was.Attempt, e)
		require.NoError(t, err, name)
		got := fencetest.Read(t, pool, run)

		want, allowed := pick(m, s, e, f)
		require.Equal(t, allowed, moved, name)
		if !allowed {
			require.Equal(t, was.RowChangedBy, got.RowChangedBy, "%s: the row was written", name)
			require.Empty(t, fencetest.Outcomes(t, pool, run), "%s: a receipt without a fence", name)
			require.Empty(t, fencetest.Tries(t, pool, run), "%s: a try without a fence", name)
		} else {
			compare(t, name, m, e, f, want, was, got)
		}
		fencetest.Exec(t, pool, "delete from weir.run where id = $1", run)
	}
}

func compare(t *testing.T, name string, m *fencing.Machine, e fencing.Event, f facts, want fencing.Transition, was, got fencetest.Row) {
	exp := expectations[e]
	require.Equal(t, want.To, got.Status, name)
	if exp.raised {
		require.Equal(t, was.Attempt+1, got.Attempt, "%s: attempt", name)
	} else {
		require.Equal(t, was.Attempt, got.Attempt, "%s: attempt", name)
	}
	require.Equal(t, exp.failures(was.Failures, f), got.Failures, "%s: failures", name)
	require.Equal(t, exp.reaps(was.Reaps), got.Reaps, "%s: reaps", name)
	require.Equal(t, m.IsTerminal(want.To), got.Terminal, "%s: finished_at", name)
	require.Equal(t, exp.owned && !got.Terminal, got.Owned, "%s: lease", name)
	if e == fencing.Claim || e == fencing.StartStep || e == fencing.CommitStep {
		require.InDelta(t, time.Minute.Seconds(), got.LeaseLeft.Seconds(), 5, "%s: a full lease", name)
	}
	if want.Code != "" {
		require.Equal(t, want.Code, got.Code, "%s: error code", name)
	}
	if got.Terminal {
		require.True(t, got.Waits, "%s: a terminal run is not due", name)
	} else if !got.Owned {
		late := time.Duration(0)
		if e == fencing.FailTry || e == fencing.Snooze {
			late = time.Hour
		}
		require.InDelta(t, late.Seconds(), got.DueIn.Seconds(), 5, "%s: due", name)
	}
}

func contains(list []fencing.Status, s fencing.Status) bool {
	for _, x := range list {
		if x == s {
			return true
		}
	}
	return false
}

// A token that is one behind moves nothing, whatever the event (F9, L2).
func TestTransitions_StaleTokenMovesNothing(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	for _, m := range fencing.Machines {
		for _, e := range []fencing.Event{fencing.StartStep, fencing.CommitStep, fencing.Succeed, fencing.Refuse, fencing.FailTry, fencing.Snooze, fencing.Release} {
			run := fencetest.Insert(t, pool, fencetest.KindOf(m), m.Ownable[0], fencetest.Owned)
			was := fencetest.Read(t, pool, run)
			for _, token := range []int64{was.Attempt - 1, was.Attempt + 1, 0} {
				moved, err := apply(t.Context(), pool, nil, m, run, token, e)
				require.NoError(t, err)
				require.False(t, moved, "%s: %s under token %d of %d", m.Name, e, token, was.Attempt)
			}
			require.Equal(t, was.RowChangedBy, fencetest.Read(t, pool, run).RowChangedBy)
			require.Empty(t, fencetest.Outcomes(t, pool, run))
		}
	}
}
