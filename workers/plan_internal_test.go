package workers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/riverqueue/river"
	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/internal/fencing"
	"github.com/weirqueue/weir/internal/receipts"
)

// A plan fails for what a step did, and for nothing else: a worker that stops itself because its lease might be over, or
// whose database is gone, hands the plan over or puts it off.
func TestPlan_FailsOnlyForWhatAStepDid(t *testing.T) {
	t.Parallel()
	transact := receipts.Step{Name: "x", Effect: receipts.Transactional}
	outside := receipts.Step{Name: "x", Effect: receipts.Idempotent}
	failed := func(s receipts.Step, o receipts.Outcome, notSent bool, err error) result {
		return result{step: s, event: fencing.FailTry, outcome: o, notSent: notSent, err: err}
	}
	boom := errors.New("boom")
	for name, c := range map[string]struct {
		cause   error
		in      result
		event   fencing.Event
		outcome receipts.Outcome
	}{
		"a step failed":                {nil, failed(transact, receipts.Failed, true, boom), fencing.FailTry, receipts.Failed},
		"nobody knows":                 {nil, failed(outside, receipts.Unknown, false, boom), fencing.FailTry, receipts.Unknown},
		"the connection broke":         {nil, failed(transact, receipts.Failed, true, fmt.Errorf("x: %w", io.ErrUnexpectedEOF)), fencing.Snooze, ""},
		"the provider's broke":         {nil, failed(outside, receipts.Unknown, false, io.ErrUnexpectedEOF), fencing.FailTry, receipts.Unknown},
		"between two steps":            {nil, interrupted(transact, "database", boom), fencing.Snooze, ""},
		"started was not written":      {nil, notBegun(outside, "database", boom), fencing.Release, receipts.Failed},
		"done, and not written":        {nil, result{step: outside, event: fencing.FailTry, outcome: receipts.Unknown, err: boom, unsettled: true}, fencing.Snooze, ""},
		"done, not written, too late":  {fencing.ErrLeaseLost, result{step: outside, event: fencing.FailTry, outcome: receipts.Unknown, err: boom, unsettled: true}, fencing.Snooze, ""},
		"stopped itself":               {fencing.ErrLeaseLost, failed(transact, receipts.Failed, true, boom), fencing.Release, receipts.Failed},
		"stopped itself, between":      {fencing.ErrLeaseLost, interrupted(transact, "interrupted", boom), fencing.Release, ""},
		"stopped itself, outside":      {fencing.ErrLeaseLost, failed(outside, receipts.Unknown, false, boom), fencing.FailTry, receipts.Unknown},
		"too long":                     {fencing.ErrStepDeadline, failed(transact, receipts.Failed, true, boom), fencing.FailTry, receipts.Failed},
		"shutdown":                     {ErrShutdown, failed(transact, receipts.Failed, true, boom), fencing.FailTry, receipts.Failed},
		"canceled in River":            {river.ErrJobCancelledRemotely, failed(transact, receipts.Failed, true, boom), fencing.FailTry, receipts.Failed},
		"another transaction's in way": {nil, result{step: transact, event: fencing.Snooze, outcome: receipts.Failed}, fencing.Snooze, ""},
	} {
		ctx, cancel := context.WithCancelCause(t.Context())
		if c.cause != nil {
			cancel(c.cause)
		}
		got := later(ctx, c.in)
		require.Equal(t, []any{c.event, c.outcome}, []any{got.event, got.outcome}, name)
		cancel(nil)
	}
}

// A process that finds out right after the claim that its lease might be over has done nothing of the plan: it hands it over.
func TestPlan_IsNotFailedByAWorkerThatDidNotBegin(t *testing.T) {
	t.Parallel()
	keeper := fencing.NewKeeper(nil, time.Hour, nil)
	k := (&planWorker{}).workKind(PlanConfig{}.withDefaults())
	k.do = func(context.Context, *fencing.Held, *fencing.Claimed) result { panic("it began") }
	ctx, held := keeper.Hold(t.Context(), uuid.New(), 1, time.Minute, time.Minute, time.Now().Add(-time.Hour))
	defer held.Drop()
	<-ctx.Done()
	res := (&Service{}).actAndJudge(ctx, held, &fencing.Claimed{}, &k)
	require.Equal(t, []any{fencing.Release, receipts.Outcome("")}, []any{res.event, res.outcome}, res.code)

	canceled, cancel := context.WithCancelCause(t.Context())
	ctx, fresh := keeper.Hold(canceled, uuid.New(), 1, time.Minute, time.Minute, time.Now())
	defer fresh.Drop()
	cancel(ErrShutdown)
	res = (&Service{}).actAndJudge(ctx, fresh, &fencing.Claimed{}, &k)
	require.True(t, res.notSent, "conclude hands it over at a shutdown")
}
