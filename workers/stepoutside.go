package workers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/weirqueue/weir/internal/fencing"
	"github.com/weirqueue/weir/internal/receipts"
)

// outside executes a step with an effect outside: commit `started`, act, settle. No transaction is open meanwhile.
// before is the receipt that an earlier try has left.
func (t *try) outside(ctx context.Context, s boundStep, last bool, before receipts.Receipt) (result, bool) {
	began, res, stop := t.start(ctx, s)
	if stop {
		return res, true
	}
	var (
		value any
		err   error
	)
	if began {
		value, err = s.impl.act(ctx, t.in(s))
	} else if s.impl.ask == nil {
		// Only a receipt that is ok keeps such a step from being started.
		if done, res, stop := t.adopt(ctx, s, last); done {
			return res, stop
		}
		return interrupted(s.Step, "database", errors.New("the step could not be started")), true
	} else {
		// Somebody else's started: only the provider knows what became of it.
		var found bool
		value, found, err = s.impl.ask(ctx, t.in(s))
		if err == nil && !found {
			return result{
				step: s.Step, event: fencing.Refuse, outcome: receipts.Unknown, code: "outcome_unknown",
				err: errors.New("an earlier try began this step, and the provider does not know of it"),
			}, true
		}
		if err != nil {
			// Refuse and Later mean what they say; about the earlier try's effect no error says anything. This try did
			// nothing outside, so it can be handed over.
			res := t.failed(s, fmt.Errorf("ask what happened: %w", err))
			res.outcome, res.notSent = receipts.Unknown, true
			return res, true
		}
	}
	var out json.RawMessage
	if err == nil {
		out, err = encode(value)
		if err != nil { // it happened, and what it returned cannot be kept
			return result{step: s.Step, event: fencing.Refuse, outcome: receipts.Unknown, code: "output_unstorable", err: err}, true
		}
	}
	if err != nil {
		res := t.failed(s, err)
		if mayHaveHappened(s, before, res) {
			res.outcome, res.notSent = receipts.Unknown, false
		}
		return res, true
	}
	if last {
		return result{step: s.Step, event: fencing.Succeed, outcome: receipts.OK, stepOutput: out, output: out}, true
	}
	return t.settle(ctx, s, out, "")
}

// mayHaveHappened reports that an earlier try may have had the step's effect, of which this one's error says nothing. A
// provider that refuses a key speaks of all calls with it.
func mayHaveHappened(s boundStep, before receipts.Receipt, res result) bool {
	open := before.Outcome == receipts.Unknown || before.Outcome == receipts.Started
	return open && (s.Effect != receipts.Idempotent || res.event != fencing.Refuse)
}

func (t *try) point(s boundStep) receipts.Outside {
	k := t.kind
	return receipts.Outside{Run: t.claimed.Run, Kind: k.kind, Attempt: t.held.Attempt(), Step: s.Step, Lease: k.lease, StepTime: k.stepTime}
}

// start commits `started`. began is false where a Reconciled step must be asked about instead. Where the try does not
// end, the lease surely lasts.
func (t *try) start(ctx context.Context, s boundStep) (began bool, res result, stop bool) {
	service := t.service
	writeCtx, cancel := context.WithTimeout(ctx, writeTimeout(t.kind.lease))
	defer cancel()
	starts := t.kind.writes.starts
	if s.Effect == receipts.Reconciled {
		starts = t.kind.writes.asks
	}
	sent := time.Now()
	stood, err := starts.Do(writeCtx, t.point(s))
	switch {
	case errors.Is(err, fencing.ErrLeaseLost):
		return false, interrupted(s.Step, "lease_lost", err), true
	case fencing.IsTransient(err):
		res = interrupted(s.Step, "contention", err)
		res.event, res.delay = fencing.Snooze, jitter(contentionPause)
		return false, res, true
	case err != nil:
		dropReadOnly(service.pool, err)
		return false, notBegun(s.Step, "database", err), true
	case stood.CancelRequested && stood.Written:
		return false, notBegun(s.Step, fencing.CodeCanceled, errors.New("cancel was requested")), true
	}
	t.held.Renewed(sent)
	if ctx.Err() != nil || !t.held.Alive() {
		return false, notBegun(s.Step, "interrupted", context.Cause(ctx)), true
	}
	return stood.Written, result{}, false
}

// settle commits that the step is ok. It tries for as long as the lease may last: what it knows, nobody else does.
func (t *try) settle(ctx context.Context, s boundStep, out json.RawMessage, externalRef string) (result, bool) {
	k, service := t.kind, t.service
	ctx = context.WithoutCancel(ctx)
	deadline := time.Now().Add(k.lease)
	pause := 50 * time.Millisecond
	for {
		sent := time.Now()
		writeCtx, cancel := context.WithTimeout(ctx, writeTimeout(k.lease))
		stood, err := k.writes.settles.Do(writeCtx, receipts.Settlement{Outside: t.point(s), Output: out, ExternalRef: clean(externalRef, maxExternalRef)})
		cancel()
		switch {
		case err == nil && stood.CancelRequested:
			t.outputs[s.Name] = out
			return interrupted(s.Step, fencing.CodeCanceled, errors.New("cancel was requested")), true
		case err == nil:
			t.held.Renewed(sent)
			return t.committed(s, out, false)
		case errors.Is(err, fencing.ErrLeaseLost):
			return t.lost(s)
		}
		dropReadOnly(service.pool, err)
		if inDoubt(err) {
			// Written again under the new attempt, also where it was committed: that changes nothing of a receipt that is ok,
			// and says whether a cancellation waits.
			t.held.Skip()
			if _, err := service.resolve(ctx, t.held, t.held.Attempt(), t.claimed, k, time.Now().Add(k.lease)); err != nil {
				return t.lost(s)
			}
			continue
		}
		if !sleepUntil(ctx, &pause, deadline) {
			return result{step: s.Step, event: fencing.FailTry, outcome: receipts.Unknown, code: "database", err: err, unsettled: true}, true
		}
	}
}
