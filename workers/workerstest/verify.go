package workerstest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/weirqueue/weir/jobs"
	"github.com/weirqueue/weir/workers"
)

// verify looks at what is left of a run whose processes have all ended.
func (x *scene) verify(ctx context.Context, run *jobs.Run) error {
	faults := x.verifyCalls()
	if x.mayFail && run.Status == "failed" && run.ErrorCode == "outcome_unknown" {
		return errors.Join(faults...)
	}
	if run.Status != x.succeeded {
		return errors.Join(append(faults, fmt.Errorf("it is %s, not %s%s%s", run.Status, x.succeeded, endOf(run), x.hint(run)))...)
	}
	receipts, err := x.client.Receipts(ctx, run.ID)
	if err != nil {
		return err
	}
	for i, step := range x.steps {
		if i >= len(receipts) || receipts[i].StepName != step.Name || receipts[i].Outcome != "ok" || receipts[i].Effect != string(step.Effect) {
			faults = append(faults, fmt.Errorf("step %s (%s) has no receipt that is ok: %+v", step.Name, step.Effect, receipts))
			break
		}
	}
	if n := len(receipts); n > 0 && !sameJSON(receipts[n-1].Output, run.Output) {
		faults = append(faults, fmt.Errorf("the run's output %s is not that of its last step, %s", run.Output, receipts[n-1].Output))
	}
	if err := x.task.check(ctx, run, receipts, x.rec.calls); err != nil {
		faults = append(faults, err)
	}
	return errors.Join(faults...)
}

// endOf is why a run ended as it did.
func endOf(run *jobs.Run) string {
	why := ""
	if run.ErrorCode != "" {
		why += ": " + run.ErrorCode
	}
	if run.ErrorMessage != "" {
		why += ": " + run.ErrorMessage
	}
	return why
}

// hint is what of the kind's, or the channel's, makes a run end so that the scenario let succeed.
func (x *scene) hint(run *jobs.Run) string {
	switch run.ErrorCode {
	case "outcome_unknown":
		return "; did the asking function of a Reconciled step not find what was issued?"
	case "reaped", "lease_expired", "step_deadline":
		return fmt.Sprintf("; does a step take longer than %d leases of %s (see Lease in the suite's configuration), or not return when its context ends?", stepTimes, x.lease)
	}
	return ""
}

// verifyCalls looks at which functions were called, and how often.
func (x *scene) verifyCalls() []error {
	x.rec.mu.Lock()
	defer x.rec.mu.Unlock()
	var faults []error
	// A machine that is busy lets leases run out beside those that the scenario ended: such takeovers are real ones.
	expected := 0
	if x.twice >= 0 {
		expected = 1
	}
	unexpected := max(x.rec.count("", isReaped)-expected, 0)
	for i, step := range x.steps {
		var acts []*call
		for _, c := range x.rec.calls {
			// What surely did not happen may be done again.
			if c.Step == i && !c.Asking && !errors.Is(c.err, workers.ErrNotSent) {
				acts = append(acts, c)
			}
		}
		limit := 1
		if step.Effect != jobs.Reconciled {
			limit += unexpected
			if i == x.twice {
				limit++
			}
		}
		if len(acts) > limit {
			faults = append(faults, fmt.Errorf("step %s was executed %d times, at most %d was called for%s", step.Name, len(acts), limit, firstError(acts)))
		}
		if step.Effect == jobs.Idempotent && !slices.Contains(x.outputsVary, step.Name) {
			faults = append(faults, sameOutputs(step.Name, acts)...)
		}
	}
	return faults
}

// firstError is why a step was executed again that failed by itself.
func firstError(acts []*call) string {
	for _, c := range acts {
		if c.err != nil {
			return fmt.Sprintf("; it returned the error %q", c.err)
		}
	}
	return ""
}

func sameOutputs(step string, acts []*call) []error {
	var first []byte
	for _, c := range acts {
		if !c.ended || c.err != nil {
			continue
		}
		text, err := json.Marshal(c.out)
		if err != nil {
			continue // the run has failed with output_unstorable
		}
		if first != nil && !bytes.Equal(first, text) {
			return []error{fmt.Errorf("step %s is Idempotent, and returned %s and then %s for the same key", step, first, text)}
		}
		first = text
	}
	return nil
}

func sameJSON(a, b json.RawMessage) bool {
	var x, y any
	return bytes.Equal(a, b) || json.Unmarshal(a, &x) == nil && json.Unmarshal(b, &y) == nil && reflect.DeepEqual(x, y)
}
