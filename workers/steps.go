package workers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"runtime/debug"
	"time"

	"github.com/riverqueue/river"

	"github.com/weirqueue/weir/internal/fencing"
	"github.com/weirqueue/weir/internal/operation"
	"github.com/weirqueue/weir/internal/receipts"
	"github.com/weirqueue/weir/jobs"
)

// stepsWorker carries out the runs of one kind of the application's own.
type stepsWorker struct {
	service *Service
	binding Binding
	kind    workKind
}

func (s *Service) addBinding(workers *river.Workers, b Binding) error {
	w := &stepsWorker{service: s, binding: b}
	w.kind = workKind{
		kind: b.name, lease: b.cfg.Lease, stepTime: b.cfg.StepTime, backoff: b.cfg.Backoff, offers: []string{b.need}, do: w.run,
	}
	return s.addKind(workers, &w.kind, time.Duration(len(b.steps))*(b.cfg.StepTime+b.cfg.Lease)+b.cfg.Lease+time.Minute)
}

// try is one try of a run of several steps: what they share.
type try struct {
	service *Service
	kind    *workKind
	held    *fencing.Held
	claimed *fencing.Claimed
	outputs map[string]json.RawMessage
	// binding and payload are those of an application's own kind. The payload is decoded anew for each call of a function:
	// what one step changes in it, another never sees.
	binding Binding
	payload json.RawMessage
}

// run goes on after the last receipt: it never executes a step that has one.
func (w *stepsWorker) run(ctx context.Context, held *fencing.Held, c *fencing.Claimed) result {
	first := w.binding.steps[0].Step
	frozen, err := operation.Decode(c.Payload, c.Digest)
	if err == nil && frozen.Kind != w.binding.name {
		err = fmt.Errorf("the payload is of kind %s", frozen.Kind)
	}
	t := &try{service: w.service, kind: &w.kind, held: held, claimed: c, outputs: map[string]json.RawMessage{}, binding: w.binding}
	if err == nil {
		t.payload = frozen.Payload
		_, err = w.binding.decode(t.payload)
	}
	if err != nil {
		return result{step: first, event: fencing.Refuse, outcome: receipts.Failed, code: "payload_unreadable", err: err, notSent: true}
	}
	steps := make([]receipts.Step, len(w.binding.steps))
	for i, s := range w.binding.steps {
		steps[i] = s.Step
	}
	return t.through(ctx, steps, t.step)
}

// through executes, in their order, the steps that have no receipt that is ok. do is one step: stop says that the try
// ends with its result. A panic in it is a failed try.
func (t *try) through(ctx context.Context, steps []receipts.Step, do func(ctx context.Context, i int, r receipts.Receipt) (res result, stop bool)) result {
	var (
		done []receipts.Receipt
		err  error
	)
	if t.claimed.Attempt > 1 { // a run's first owner finds none: each receipt has needed a token
		if done, err = receipts.List(ctx, t.service.pool, t.claimed.Run); err != nil {
			return interrupted(steps[0], "database", err)
		}
	}
	byIndex := map[int]receipts.Receipt{}
	for _, r := range done {
		byIndex[r.Step.Index] = r
	}
	for i, s := range steps {
		if r, ok := byIndex[i]; ok && r.Outcome == receipts.OK {
			t.outputs[s.Name] = r.Output
			continue
		}
		if ctx.Err() != nil {
			return interrupted(s, "interrupted", context.Cause(ctx))
		}
		if t.service.stopping.Load() {
			// Between steps a run goes on elsewhere at once: the grace of a shutdown is for steps that have begun (R5).
			return result{step: s, event: fencing.Release, code: "shutdown", notSent: true}
		}
		if res, stop := guarded(s, func() (result, bool) { return do(ctx, i, byIndex[i]) }); stop {
			return res
		}
	}
	// Every step has its receipt, and none was the last: the run ends with what is there.
	last := steps[len(steps)-1]
	return result{step: last, event: fencing.Succeed, outcome: receipts.OK, output: t.outputs[last.Name], stepOutput: t.outputs[last.Name]}
}

// guarded turns a panic of a step into a failed try.
func guarded(s receipts.Step, do func() (result, bool)) (res result, stop bool) {
	defer func() {
		if p := recover(); p != nil {
			res, stop = result{
				step: s, event: fencing.FailTry, outcome: outcomeOfPanic(s.Effect), code: "panic",
				err: fmt.Errorf("panic: %v\n%s", p, debug.Stack()), notSent: s.Effect == receipts.Transactional,
			}, true
		}
	}()
	return do()
}

// interrupted is a try that ends between steps: nothing of it is outside, and nothing is known of the step that would
// have been next.
func interrupted(step receipts.Step, code string, err error) result {
	return result{step: step, event: fencing.FailTry, code: code, err: err, notSent: true}
}

// notBegun is a try that ends after `started` may have been written, and before anything was done outside.
func notBegun(step receipts.Step, code string, err error) result {
	res := interrupted(step, code, err)
	res.outcome, res.notBegun = receipts.Failed, true
	return res
}

// step executes one step of an application's own kind. stop says that the try ends with the result.
func (t *try) step(ctx context.Context, i int, r receipts.Receipt) (res result, stop bool) {
	s := t.binding.steps[i]
	last := i == len(t.binding.steps)-1
	switch {
	case s.impl.live != nil:
		return t.live(ctx, s, last)
	case s.impl.statement != nil:
		return t.statement(ctx, s, last)
	default:
		return t.outside(ctx, s, last, r)
	}
}

func outcomeOfPanic(e receipts.Effect) receipts.Outcome {
	if e == receipts.Transactional {
		return receipts.Failed
	}
	return receipts.Unknown
}

func (t *try) in(s boundStep) callIn {
	payload, _ := t.binding.decode(t.payload) // run has seen that it can be decoded
	return callIn{
		run: jobs.RunID(t.claimed.Run), payload: payload, step: s.Index, attempt: t.held.Attempt(),
		key: fmt.Sprintf("%s:%d", t.claimed.Run, s.Index),
		// Its own: what a function leaves running may read while the next step's output comes in.
		outputs: maps.Clone(t.outputs),
	}
}

// contentionPause is how long a run waits that another transaction was in the way of.
const contentionPause = 200 * time.Millisecond

// failed reads what a step's error means.
func (t *try) failed(s boundStep, err error) result {
	res := result{step: s.Step, event: fencing.FailTry, outcome: receipts.Unknown, code: "error", err: err}
	if s.Effect == receipts.Transactional || errors.Is(err, ErrNotSent) {
		res.outcome, res.notSent = receipts.Failed, true
	}
	var (
		refused *RefusedError
		later   *LaterError
	)
	switch {
	case errors.As(err, &refused):
		res.event, res.code = fencing.Refuse, refused.Code
	case errors.As(err, &later):
		res.event, res.code, res.delay = fencing.Snooze, "later", max(later.After, minRetry)
	case errors.Is(err, ErrOutput):
		res.event, res.code = fencing.Refuse, "output_unstorable"
	case s.Effect == receipts.Transactional && fencing.IsTransient(err):
		// Another transaction was in the way: it says nothing about the run (R11). An outside step that returns such an
		// error may have acted: it counts.
		res.event, res.code, res.delay = fencing.Snooze, "contention", jitter(contentionPause)
	}
	return res
}

// committed goes on after a step that has its receipt; after the last one the run has ended.
func (t *try) committed(s boundStep, out json.RawMessage, last bool) (result, bool) {
	t.outputs[s.Name] = out
	if !last {
		return result{}, false
	}
	m := fencing.MachineOf(t.claimed.Kind)
	to := m.Allowed(t.claimed.Status, fencing.Succeed)[0].To
	return result{
		step: s.Step, event: fencing.Succeed, outcome: receipts.OK,
		ended: &receipts.Ended{Status: to, Attempt: t.held.Attempt(), Terminal: true},
	}, true
}

// lost ends a try whose fence was refused, or that cannot find out whether it still owns the run. The write that follows
// is refused in the first case; in the second it may come through, and then says what is known of the step: what an
// outside step did is not.
func (t *try) lost(s boundStep) (result, bool) {
	res := interrupted(s.Step, "lease_lost", fencing.ErrLeaseLost)
	if s.Effect != receipts.Transactional {
		res.outcome, res.notSent = receipts.Unknown, false
	}
	return res, true
}
