package drill

import (
	"fmt"
	"time"

	"github.com/weirqueue/weir/jobs"
)

// change is one row of history.
type change struct {
	Seq         int64      `json:"seq"`
	At          time.Time  `json:"at"`
	XID         uint64     `json:"xid"`
	Backend     int        `json:"backend"`
	Worker      string     `json:"worker"`
	What        string     `json:"what"`
	Op          string     `json:"op"`
	Run         jobs.RunID `json:"run_id"`
	Step        *int       `json:"step,omitempty"`
	Attempt     *int64     `json:"attempt,omitempty"`
	OldAttempt  *int64     `json:"old_attempt,omitempty"`
	State       *string    `json:"state,omitempty"`
	OldState    *string    `json:"old_state,omitempty"`
	Lease       *time.Time `json:"lease,omitempty"`
	OldLease    *time.Time `json:"old_lease,omitempty"`
	Deadline    *time.Time `json:"deadline,omitempty"`
	OldDeadline *time.Time `json:"old_deadline,omitempty"`
	Reaps       *int       `json:"reaps,omitempty"`
	Finished    *bool      `json:"finished,omitempty"`
	OldFinished *bool      `json:"old_finished,omitempty"`
	Result      *string    `json:"result,omitempty"`
}

// takeover is a lease that ended although its owner did not end it.
type takeover struct {
	worker    string
	since, at time.Time // of the ownership
	alive     time.Time // the last that the owner wrote to the run
	overdue   bool      // the step's own deadline had passed
	suspect   bool      // it had been reaped before: it waits for its process's one slot
	next      time.Time // when somebody owned the run again, or it was terminal
}

// fenced is what one transaction did to the run itself.
type fenced struct {
	attempts map[int64]bool
	owners   map[string]bool
}

// RunRecord is what the records say about one run.
type RunRecord struct {
	ID   jobs.RunID
	Kind string
	// N is its number: the first one of a drill is 1.
	N int64
	// Status is the run's last; empty when the run is gone.
	Status   string
	Terminal bool
	// Unknown counts by step how often an outcome became unknown.
	Unknown map[int]int
	// Receipts are the last outcomes by step.
	Receipts map[int]string

	effects     map[int]int
	takeovers   []takeover
	stale       int
	shortLeases []shortLease
	faults      []string

	owner      string
	since      time.Time
	alive      time.Time
	attempt    int64
	reaps      int
	result     string
	txs        map[uint64]*fenced
	okReceipts map[uint64]map[int]int64 // by transaction and step: the attempt
}

func newRun(id jobs.RunID, kind string) *RunRecord {
	return &RunRecord{
		ID: id, Kind: kind, Unknown: map[int]int{}, Receipts: map[int]string{}, effects: map[int]int{},
		txs: map[uint64]*fenced{}, okReceipts: map[uint64]map[int]int64{},
	}
}

const maxFaultsOfRun = 10

func (r *RunRecord) fault(c change, format string, args ...any) {
	if len(r.faults) < maxFaultsOfRun {
		r.faults = append(r.faults, fmt.Sprintf("run %s, change %d by %s: ", r.ID, c.Seq, who(c.Worker))+fmt.Sprintf(format, args...))
	}
}

func (r *RunRecord) staleCommit(c change, format string, args ...any) {
	r.stale++
	r.fault(c, format, args...)
}

func who(worker string) string {
	if worker == "" {
		return "the parent"
	}
	return worker
}

// replay follows the run's life, change by change, in the order in which they were made.
func (r *RunRecord) replay(changes []change, lease time.Duration) {
	for _, c := range changes {
		if c.What == "run" {
			r.runChange(c, lease)
		}
	}
	for _, c := range changes {
		if c.What == "receipt" {
			r.receiptChange(c)
		}
	}
	for _, c := range changes {
		if c.What == "effect" {
			r.effectChange(c)
		}
	}
	r.txs, r.okReceipts = nil, nil
}

func (r *RunRecord) runChange(c change, lease time.Duration) {
	if c.Op == "DELETE" {
		r.fault(c, "the run was deleted")
		r.Status = ""
		return
	}
	tx := r.txs[c.XID]
	if tx == nil {
		tx = &fenced{attempts: map[int64]bool{}, owners: map[string]bool{}}
		r.txs[c.XID] = tx
	}
	tx.owners[r.owner] = true
	tx.attempts[*c.Attempt] = true
	if c.Op == "UPDATE" {
		tx.attempts[*c.OldAttempt] = true
		r.runUpdate(c, lease)
	}
	tx.owners[r.owner] = true
	r.attempt, r.reaps, r.Status, r.Terminal = *c.Attempt, *c.Reaps, *c.State, *c.Finished
	if c.Result != nil {
		r.result = *c.Result
	}
}

// shortBy is how much of a lease may be gone when its row was written: more is a lease that was stamped before a wait, or
// on a machine that is busy.
const shortBy = 0.12

// shortLease is a lease of which more was gone: when it was stamped, and when its row was written.
type shortLease struct{ stamped, written time.Time }

func (r *RunRecord) runUpdate(c change, lease time.Duration) {
	wasOwned, isOwned := c.OldLease != nil, c.Lease != nil
	raised := *c.Attempt > *c.OldAttempt
	renewed := isOwned && (!wasOwned || !c.Lease.Equal(*c.OldLease))
	if *c.Attempt < *c.OldAttempt {
		r.staleCommit(c, "the attempt went from %d back to %d", *c.OldAttempt, *c.Attempt)
	}
	if *c.OldFinished {
		if c.Result == nil || *c.Result != r.result {
			r.staleCommit(c, "a terminal run was changed: %s, before %s", deref(c.Result), r.result)
		}
		return
	}
	if renewed && c.Lease.Sub(c.At) < lease-time.Duration(float64(lease)*shortBy) {
		r.shortLeases = append(r.shortLeases, shortLease{c.Lease.Add(-lease), c.At})
	}
	switch {
	case !wasOwned && isOwned:
		if !raised {
			r.staleCommit(c, "claimed without a new attempt: %d", *c.Attempt)
		}
		r.claimed(c)
	case wasOwned && isOwned:
		if c.Worker == r.owner {
			r.alive = c.At
		}
		same := !raised && !renewed && sameTime(c.Deadline, c.OldDeadline)
		switch {
		case !same && c.Worker != r.owner:
			r.staleCommit(c, "%s owns it, and somebody else renewed it", who(r.owner))
		case renewed && !raised && sameTime(c.Deadline, c.OldDeadline) && c.At.After(c.OldDeadline.Add(lease/8)):
			r.staleCommit(c, "renewed %s after its step's deadline", c.At.Sub(*c.OldDeadline))
		}
	case wasOwned:
		r.given(c, raised)
	case (raised || *c.Finished) && c.Worker != "":
		r.staleCommit(c, "nobody owns it, and somebody wrote attempt %d, status %s", *c.Attempt, *c.State)
	}
}

// claimed begins an ownership.
func (r *RunRecord) claimed(c change) {
	r.owner, r.since, r.alive = c.Worker, c.At, c.At
	for i := range r.takeovers {
		if r.takeovers[i].next.IsZero() {
			r.takeovers[i].next = c.At
		}
	}
}

// given ends an ownership.
func (r *RunRecord) given(c change, raised bool) {
	owner := r.owner
	r.owner = ""
	switch {
	case *c.Reaps > r.reaps:
		t := takeover{worker: owner, since: r.since, alive: r.alive, at: c.At, overdue: c.OldDeadline.Before(c.At), suspect: *c.Reaps >= 2}
		if *c.Finished {
			t.next = c.At
		}
		r.takeovers = append(r.takeovers, t)
		if c.At.Before(*c.OldLease) {
			r.staleCommit(c, "reaped %s before its lease ran out", c.OldLease.Sub(c.At))
		}
	case c.Worker != owner && c.Worker != "":
		r.staleCommit(c, "%s owned it, and somebody else ended that with status %s", who(owner), *c.State)
	}
	if !*c.Finished && !raised {
		r.staleCommit(c, "given away under an attempt that is still good: %d", *c.Attempt)
	}
}

func (r *RunRecord) receiptChange(c change) {
	step := *c.Step
	tx := r.txs[c.XID]
	switch {
	case tx == nil:
		r.staleCommit(c, "the receipt of step %d was written in a transaction without a fence", step)
		return
	case c.OldState != nil && *c.OldState == "ok":
		r.staleCommit(c, "the receipt of step %d was ok, and was changed", step)
	case c.Op == "DELETE":
		delete(r.Receipts, step)
		return
	}
	if c.OldAttempt == nil || *c.OldAttempt != *c.Attempt || *c.State == "ok" {
		if !tx.attempts[*c.Attempt] {
			r.staleCommit(c, "the receipt of step %d has attempt %d, the run has another", step, *c.Attempt)
		}
	}
	if *c.State != "unknown" && !tx.owners[c.Worker] {
		r.staleCommit(c, "the receipt of step %d was written by somebody who did not own the run", step)
	}
	if *c.State == "unknown" && deref(c.OldState) != "unknown" {
		r.Unknown[step]++
	}
	if *c.State == "ok" {
		if r.okReceipts[c.XID] == nil {
			r.okReceipts[c.XID] = map[int]int64{}
		}
		r.okReceipts[c.XID][step] = *c.Attempt
	}
	r.Receipts[step] = *c.State
}

func (r *RunRecord) effectChange(c change) {
	r.effects[*c.Step]++
	if attempt, ok := r.okReceipts[c.XID][*c.Step]; !ok || attempt != *c.Attempt {
		r.staleCommit(c, "the effect of step %d, attempt %d, was committed without its receipt", *c.Step, *c.Attempt)
	}
}

func sameTime(a, b *time.Time) bool { return (a == nil) == (b == nil) && (a == nil || a.Equal(*b)) }

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// succeeded reports whether the run says that all of its steps are done.
func (r *RunRecord) succeeded() bool {
	return r.Status == "succeeded" || r.Status == "sent" || r.Status == "executed"
}

// Missing is the fault of a run that has succeeded without the step's receipt.
func (r *RunRecord) Missing(step int) []string {
	if !r.succeeded() || r.Receipts[step] == "ok" {
		return nil
	}
	return []string{fmt.Sprintf("run %s: it has succeeded, and the receipt of step %d says %q", r.ID, step, r.Receipts[step])}
}

// unexplained is the fault of a run that ended badly, although nothing that was done to it has that end.
func (r *RunRecord) unexplained(explained bool) []string {
	if !r.Terminal || r.succeeded() || explained {
		return nil
	}
	return []string{fmt.Sprintf("run %s: it is %s, and nothing that was done to it explains that", r.ID, r.Status)}
}

// inDatabase compares the receipt of a transactional step with its effects: once, or not at all.
func (r *RunRecord) inDatabase(step int) Effects {
	e := Effects{Count: r.effects[step], Faults: r.Missing(step)}
	switch ok := r.Receipts[step] == "ok"; {
	case ok && r.effects[step] == 0:
		e.Faults = append(e.Faults, fmt.Sprintf("run %s: step %d has a receipt and no effect", r.ID, step))
	case !ok && r.effects[step] > 0:
		e.Faults = append(e.Faults, fmt.Sprintf("run %s: step %d has an effect and no receipt", r.ID, step))
	}
	if r.effects[step] > 1 {
		e.Duplicates = r.effects[step] - 1
		e.Faults = append(e.Faults, fmt.Sprintf("run %s: step %d has its effect %d times in the database", r.ID, step, r.effects[step]))
	}
	return e
}

// outside compares the receipt of a step with how often its effect is outside.
func (r *RunRecord) outside(step, times, allowed int) Effects {
	e := Effects{Count: times, Faults: r.Missing(step)}
	if r.Receipts[step] == "ok" && times == 0 {
		e.Faults = append(e.Faults, fmt.Sprintf("run %s: step %d has a receipt, and nothing is outside", r.ID, step))
	}
	if times > allowed {
		e.Duplicates = times - allowed
		e.Faults = append(e.Faults, fmt.Sprintf("run %s: step %d took effect %d times outside, at most %d is allowed", r.ID, step, times, allowed))
	}
	return e
}
