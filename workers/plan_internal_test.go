package workers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"

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
