package workers

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/weirqueue/weir/internal/fencing"
	"github.com/weirqueue/weir/internal/receipts"
	"github.com/weirqueue/weir/internal/reset"
	"github.com/weirqueue/weir/workers/branch"
)

// statusGone is what is recorded of an operation that the provider has lost.
const statusGone = "gone"

// adopted commits the operations of an issue, this claim's or one that was found, and looks at them.
func (t *resetTry) adopted(ctx context.Context, ops []branch.Operation, found bool) result {
	is := issued{Since: t.claimed.Now, Adopted: found}
	ops = distinct(ops)
	for _, op := range ops {
		is.Operations = append(is.Operations, t.recordOf(op))
	}
	out, err := encode(is)
	if err != nil {
		return result{step: reset.Issue, event: fencing.Refuse, outcome: receipts.Unknown, code: "output_unstorable", err: err}
	}
	ref := ""
	if len(ops) > 0 {
		ref = ops[0].ID
	}
	if res, stop := t.settle(ctx, boundStep{Step: reset.Issue}, out, ref); stop && res.code != fencing.CodeCanceled {
		return res
	}
	return t.judge(ctx, is, ops, ops)
}

// distinct keeps one of each operation: a provider that names one twice means one.
func distinct(ops []branch.Operation) (out []branch.Operation) {
	for _, op := range ops {
		if !slices.ContainsFunc(out, func(o branch.Operation) bool { return o.ID == op.ID }) {
			out = append(out, op)
		}
	}
	return out
}

func (t *resetTry) recordOf(op branch.Operation) reset.Operation {
	return reset.Operation{
		ID: clean(op.ID, 200), Action: clean(op.Action, 100), Status: clean(op.Status, 100),
		State: string(cmp.Or(op.State, branch.Running)), Final: op.State.Final(), Error: clean(op.Error, 1000),
	}
}

// poll asks the provider for each operation that is not final.
func (t *resetTry) poll(ctx context.Context, is issued) result {
	recorded, err := reset.List(ctx, t.service.pool, t.claimed.Run)
	if err != nil {
		return t.later("database", err, t.pause(0))
	}
	known := map[string]reset.Recorded{}
	for _, r := range recorded {
		known[r.ID] = r
	}
	age := t.claimed.Now.Sub(is.Since)
	var (
		ops, seen []branch.Operation
		unseen    []error
		wait      time.Duration
	)
	for _, op := range is.Operations {
		r, ok := known[op.ID]
		if !ok {
			r.Operation = op
		}
		before := branch.Operation{ID: r.ID, Action: r.Action, Status: r.Status, State: branch.State(r.State), Error: r.Error}
		if r.Final {
			ops = append(ops, before)
			continue
		}
		now, err := t.provider.Poll(ctx, t.reset(), before)
		var e *branch.Error
		switch {
		case err == nil:
			seen = append(seen, now)
		case errors.As(err, &e) && e.Class == branch.ClassGone:
			if lost(r, t.claimed.Now, t.cfg.AskWait) {
				return t.reconcile(ctx, is)
			}
			now = branch.Operation{ID: r.ID, Action: r.Action, Status: statusGone, Error: textOf(err)}
			seen = append(seen, now)
		default:
			now = before
			unseen = append(unseen, err)
			if e != nil {
				wait = max(wait, e.After)
			}
		}
		ops = append(ops, now)
	}
	if err := errors.Join(unseen...); err != nil && age < t.cfg.Limit {
		if _, rerr := t.record(ctx, seen); rerr != nil {
			return t.unrecorded(rerr)
		}
		return t.failedLook(err, max(wait, t.pause(age)))
	}
	return t.judge(ctx, is, ops, seen)
}

// lost reports that an operation has been gone for so long that the provider is asked for the reset itself.
func lost(r reset.Recorded, now time.Time, wait time.Duration) bool {
	return r.Status == statusGone && len(r.Seen) > 0 && now.Sub(r.Seen[len(r.Seen)-1].At) >= wait
}

// reconcile is for a provider that has lost an operation: does it know of the reset?
func (t *resetTry) reconcile(ctx context.Context, is issued) result {
	ops, found, err := t.provider.Find(ctx, t.reset())
	if err != nil && t.claimed.Now.Sub(is.Since) < t.cfg.Limit {
		return t.failedLook(err, t.pause(t.cfg.PollMax))
	}
	if err != nil || !found {
		return t.ends("outcome_unknown", errors.Join(errors.New("the provider has no record of the operation any more"), err))
	}
	return t.judge(ctx, is, ops, ops)
}

func (t *resetTry) record(ctx context.Context, ops []branch.Operation) (cancelRequested bool, err error) {
	if len(ops) == 0 {
		return false, nil
	}
	seen := make([]reset.Operation, len(ops))
	for i, op := range ops {
		seen[i] = t.recordOf(op)
	}
	writeCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeTimeout(t.kind.lease))
	defer cancel()
	conn, err := t.service.acquire(writeCtx)
	if err != nil {
		return false, err
	}
	defer conn.Release()
	sent := time.Now()
	owner := reset.Owner{Run: t.claimed.Run, Attempt: t.held.Attempt(), Lease: t.kind.lease, StepTime: t.kind.stepTime}
	if cancelRequested, err = owner.Record(writeCtx, conn, seen); err == nil {
		t.held.Renewed(sent)
	}
	return cancelRequested, err
}

// unrecorded puts the poll off: what was seen will be seen again.
func (t *resetTry) unrecorded(err error) result {
	dropReadOnly(t.service.pool, err)
	return t.later("database", err, t.pause(0))
}

// judge records what was seen and says what it means for the reset. ops are all of its operations.
func (t *resetTry) judge(ctx context.Context, is issued, ops, seen []branch.Operation) result {
	age := t.claimed.Now.Sub(is.Since)
	cancelRequested, err := t.record(ctx, distinct(seen))
	if err != nil && age <= t.cfg.Limit {
		return t.unrecorded(err)
	}
	t.cancelRequested = t.cancelRequested || cancelRequested
	var (
		open, retrying []branch.Operation
		bad            *branch.Operation
	)
	for i, op := range ops {
		switch op.State {
		case branch.Finished:
		case branch.Failed, branch.Canceled, branch.Skipped:
			if bad == nil || op.State == branch.Failed {
				bad = &ops[i]
			}
		case branch.Unheard:
			t.service.log.WarnContext(ctx, "weir: a provider of branches says a word that is not known; the reset is polled on",
				"run", t.claimed.Run, "provider", t.payload.Provider, "status", clean(op.Status, 100))
			open = append(open, op)
		case branch.Retrying:
			retrying = append(retrying, op)
			open = append(open, op)
		default:
			open = append(open, op)
		}
	}
	if len(open) == 0 {
		return t.finish(ops, bad)
	}
	switch {
	case age > t.cfg.Limit:
		return t.ends("limit", fmt.Errorf("the provider's operations are not final after %s: %s", t.cfg.Limit, words(open)))
	case len(retrying) > 0 && t.failedFor(ctx, retrying) > t.cfg.FailedLimit:
		return t.ends("operation_failed", fmt.Errorf("an operation has been failed for more than %s: %s", t.cfg.FailedLimit, words(retrying)))
	}
	if t.cancelRequested {
		if err := t.provider.Cancel(ctx, t.reset(), open); err != nil && !errors.Is(err, branch.ErrNotCancelable) {
			t.service.log.WarnContext(ctx, "weir: the provider could not be asked to cancel yet", "run", t.claimed.Run, "error", clean(textOf(err), maxMessage))
		}
	}
	return t.later(receipts.CodePolling, errors.New(words(open)), t.pause(age))
}

// finish ends a reset whose operations are all final.
func (t *resetTry) finish(ops []branch.Operation, bad *branch.Operation) result {
	final := make([]reset.Operation, len(ops))
	for i, op := range ops {
		final[i] = t.recordOf(op)
	}
	out, err := encode(final)
	if err != nil {
		out = json.RawMessage("[]")
	}
	if bad == nil {
		return result{step: reset.Await, event: fencing.Succeed, outcome: receipts.OK, stepOutput: out, output: out}
	}
	res := result{
		step: reset.Await, event: fencing.Refuse, outcome: receipts.Failed, stepOutput: out, notSent: true,
		code: map[branch.State]string{branch.Failed: "operation_failed", branch.Canceled: "operation_canceled", branch.Skipped: "operation_skipped"}[bad.State],
		err:  errors.New(words([]branch.Operation{*bad})),
	}
	if t.cancelRequested {
		res.event, res.code = fencing.Cancel, fencing.CodeCanceled
	}
	return res
}

// failedFor is for how long the provider has said failed, by what is recorded.
func (t *resetTry) failedFor(ctx context.Context, ops []branch.Operation) (longest time.Duration) {
	recorded, err := reset.List(ctx, t.service.pool, t.claimed.Run)
	if err != nil {
		return 0
	}
	for _, r := range recorded {
		for _, op := range ops {
			if r.ID == clean(op.ID, 200) && len(r.Seen) > 0 {
				longest = max(longest, t.claimed.Now.Sub(r.Seen[len(r.Seen)-1].At))
			}
		}
	}
	return longest
}

func words(ops []branch.Operation) string {
	text := ""
	for _, op := range ops {
		text += fmt.Sprintf("operation %s is %s", op.ID, op.Status)
		if op.Error != "" {
			text += " (" + op.Error + ")"
		}
		text += "; "
	}
	return text[:max(len(text)-2, 0)]
}
