package fencing

import (
	"fmt"
	"slices"
)

// Status is where a run stands. Each kind has its own vocabulary.
type Status string

// Event is what moves a run from one status to the next.
type Event string

// The events of every kind. What each does to attempt, lease and budgets is written once, in effects.
const (
	Claim         Event = "claim"          // a worker becomes the owner
	StartStep     Event = "start_step"     // the owner is about to do something outside
	CommitStep    Event = "commit_step"    // the owner committed a step that is not the last one
	Succeed       Event = "succeed"        // the owner committed the last step
	Refuse        Event = "refuse"         // the owner learned that it will never work
	FailTry       Event = "fail_try"       // the owner's try failed: error, panic, step deadline
	Snooze        Event = "snooze"         // the owner comes back later; no failure is counted
	Release       Event = "release"        // the owner shuts down and hands the run over
	Reap          Event = "reap"           // the reaper ends a lease that has run out
	Cancel        Event = "cancel"         // somebody ends the run; nothing of it runs outside
	RequestCancel Event = "request_cancel" // somebody asks the owner to end the run at the next chance
	Redrive       Event = "redrive"        // an operator gives a run that ended badly another life
	Approve       Event = "approve"        // a person lets a run that waits for one go ahead
	Reject        Event = "reject"         // a person refuses it
	Expire        Event = "expire"         // nobody decided, or nobody took it up, within the written limit
)

// Guard is a condition on the locked row that picks one of several transitions for the same status and event.
type Guard string

// Guards are tried in the order in which a machine lists its transitions; "" is always true.
const (
	Always          Guard = ""
	CancelRequested Guard = "cancel was requested, and it is no branch reset"
	BudgetSpent     Guard = "failures + 1 reaches max_failures"
	DeadlineSpent   Guard = "the step's deadline has passed, and failures + 1 reaches max_failures"
	ReapsSpent      Guard = "reaps + 1 reaches max_reaps"
	NotCanceled     Guard = "it did not end by a cancellation"
	NotExpired      Guard = "its limit has not passed"
	LimitPassed     Guard = "its limit has passed"
	NotResumable    Guard = "it is not to be resumed"
)

// alone lists the guards that may be the only ones of a status and event: where they do not hold, nothing happens.
var alone = []Guard{Always, NotCanceled, NotExpired, LimitPassed}

// Transition is one row of a kind's table.
type Transition struct {
	From  Status
	Event Event
	When  Guard
	To    Status
	// Code is the error code that the run gets. Empty: the one that the caller gives.
	Code string
}

// Machine is the transition table of a kind, as data. SQL, docs and tests are made from it.
type Machine struct {
	// Name is the kind's vocabulary: the kind itself for built-in kinds, "steps" for an application's own.
	Name        string
	Initial     Status
	Claimable   []Status // may be claimed
	Ownable     []Status // may hold a lease
	Terminal    []Status
	Transitions []Transition
}

// Codes that Weir itself writes into error_code.
const (
	CodeCanceled        = "canceled"
	CodeCanceledInRiver = "canceled_in_river"
	CodeReaped          = "reaped"
	CodeStepDeadline    = "step_deadline"
	CodeInterrupted     = "interrupted"
	CodeRejected        = "rejected"
	CodeExpired         = "expired"
)

// Delivery is the machine of notification deliveries.
var Delivery = mustMachine(Machine{
	Name:      "delivery",
	Initial:   "pending",
	Claimable: []Status{"pending"},
	Ownable:   []Status{"processing"},
	Terminal:  []Status{"sent", "failed", "dead"},
	Transitions: []Transition{
		{From: "pending", Event: Claim, To: "processing"},
		{From: "processing", Event: Succeed, To: "sent"},
		{From: "processing", Event: StartStep, To: "processing"},
		{From: "processing", Event: CommitStep, To: "processing"},
		{From: "processing", Event: Refuse, To: "failed"},
		{From: "processing", Event: FailTry, When: CancelRequested, To: "failed", Code: CodeCanceled},
		{From: "processing", Event: FailTry, When: BudgetSpent, To: "dead"},
		{From: "processing", Event: FailTry, To: "pending"},
		{From: "processing", Event: Snooze, When: CancelRequested, To: "failed", Code: CodeCanceled},
		{From: "processing", Event: Snooze, To: "pending"},
		{From: "processing", Event: Release, When: CancelRequested, To: "failed", Code: CodeCanceled},
		{From: "processing", Event: Release, To: "pending"},
		{From: "processing", Event: Reap, When: CancelRequested, To: "failed", Code: CodeCanceled},
		{From: "processing", Event: Reap, When: ReapsSpent, To: "dead", Code: CodeReaped},
		{From: "processing", Event: Reap, When: DeadlineSpent, To: "dead", Code: CodeStepDeadline},
		{From: "processing", Event: Reap, To: "pending"},
		{From: "pending", Event: Cancel, To: "failed", Code: CodeCanceled},
		{From: "processing", Event: Cancel, To: "failed", Code: CodeCanceled},
		{From: "processing", Event: RequestCancel, To: "processing"},
		{From: "dead", Event: Redrive, To: "pending"},
		{From: "failed", Event: Redrive, When: NotCanceled, To: "pending"},
	},
})

const (
	// KindDelivery is the kind of notification deliveries.
	KindDelivery = "delivery"
	// KindBranchReset is the kind whose runs have something going on outside between their owners: a requested cancel does
	// not end them by itself.
	KindBranchReset = "branch_reset"
)

// Plan is the machine of approved plans. Between owners such a run stays executing, without a lease. Nothing is retried: a
// step that fails ends the plan, and so does an owner that vanished, unless the plan is to be resumed.
var Plan = mustMachine(Machine{
	Name:      "plan",
	Initial:   "pending",
	Claimable: []Status{"approved", "executing"},
	Ownable:   []Status{"executing"},
	Terminal:  []Status{"rejected", "expired", "executed", "failed"},
	Transitions: []Transition{
		{From: "pending", Event: Approve, When: NotExpired, To: "approved"},
		{From: "pending", Event: Reject, To: "rejected", Code: CodeRejected},
		{From: "pending", Event: Expire, When: LimitPassed, To: "expired", Code: CodeExpired},
		{From: "approved", Event: Expire, When: LimitPassed, To: "expired", Code: CodeExpired},
		{From: "approved", Event: Claim, When: NotExpired, To: "executing"},
		{From: "executing", Event: Claim, To: "executing"},
		{From: "executing", Event: StartStep, To: "executing"},
		{From: "executing", Event: CommitStep, To: "executing"},
		{From: "executing", Event: Succeed, To: "executed"},
		{From: "executing", Event: Refuse, To: "failed"},
		{From: "executing", Event: FailTry, When: CancelRequested, To: "failed", Code: CodeCanceled},
		{From: "executing", Event: FailTry, To: "failed"},
		{From: "executing", Event: Snooze, When: CancelRequested, To: "failed", Code: CodeCanceled},
		{From: "executing", Event: Snooze, To: "executing"},
		{From: "executing", Event: Release, When: CancelRequested, To: "failed", Code: CodeCanceled},
		{From: "executing", Event: Release, To: "executing"},
		{From: "executing", Event: Reap, When: CancelRequested, To: "failed", Code: CodeCanceled},
		{From: "executing", Event: Reap, When: NotResumable, To: "failed", Code: CodeInterrupted},
		{From: "executing", Event: Reap, When: ReapsSpent, To: "failed", Code: CodeReaped},
		{From: "executing", Event: Reap, To: "executing"},
		{From: "pending", Event: Cancel, To: "failed", Code: CodeCanceled},
		{From: "approved", Event: Cancel, To: "failed", Code: CodeCanceled},
		{From: "executing", Event: Cancel, To: "failed", Code: CodeCanceled},
		{From: "executing", Event: RequestCancel, To: "executing"},
	},
})

// Steps is the machine of branch resets and of an application's own kinds. Between owners such a run stays running,
// without a lease.
var Steps = mustMachine(Machine{
	Name:      "steps",
	Initial:   "queued",
	Claimable: []Status{"queued", "running"},
	Ownable:   []Status{"running"},
	Terminal:  []Status{"succeeded", "failed", "canceled"},
	Transitions: []Transition{
		{From: "queued", Event: Claim, To: "running"},
		{From: "running", Event: Claim, To: "running"},
		{From: "running", Event: StartStep, To: "running"},
		{From: "running", Event: CommitStep, To: "running"},
		{From: "running", Event: Succeed, To: "succeeded"},
		{From: "running", Event: Refuse, To: "failed"},
		{From: "running", Event: FailTry, When: CancelRequested, To: "canceled", Code: CodeCanceled},
		{From: "running", Event: FailTry, When: BudgetSpent, To: "failed"},
		{From: "running", Event: FailTry, To: "running"},
		{From: "running", Event: Snooze, When: CancelRequested, To: "canceled", Code: CodeCanceled},
		{From: "running", Event: Snooze, To: "running"},
		{From: "running", Event: Release, When: CancelRequested, To: "canceled", Code: CodeCanceled},
		{From: "running", Event: Release, To: "running"},
		{From: "running", Event: Reap, When: CancelRequested, To: "canceled", Code: CodeCanceled},
		{From: "running", Event: Reap, When: ReapsSpent, To: "failed", Code: CodeReaped},
		{From: "running", Event: Reap, When: DeadlineSpent, To: "failed", Code: CodeStepDeadline},
		{From: "running", Event: Reap, To: "running"},
		{From: "queued", Event: Cancel, To: "canceled", Code: CodeCanceled},
		{From: "running", Event: Cancel, To: "canceled", Code: CodeCanceled},
		{From: "running", Event: RequestCancel, To: "running"},
	},
})

// Machines lists every table, in the order of the docs.
var Machines = []*Machine{Delivery, Plan, Steps}

// MachineOf returns the table that a kind uses.
func MachineOf(kind string) *Machine {
	switch kind {
	case Delivery.Name:
		return Delivery
	case Plan.Name:
		return Plan
	}
	return Steps
}

// Statuses returns every status of the machine, live ones first.
func (m *Machine) Statuses() []Status {
	all := []Status{m.Initial}
	for _, group := range [][]Status{m.Claimable, m.Ownable, m.Terminal} {
		for _, s := range group {
			if !slices.Contains(all, s) {
				all = append(all, s)
			}
		}
	}
	return all
}

// IsTerminal reports whether s is final but for a redrive.
func (m *Machine) IsTerminal(s Status) bool { return slices.Contains(m.Terminal, s) }

// Allowed returns the transitions from s on e, in the order in which their guards are tried.
func (m *Machine) Allowed(s Status, e Event) []Transition {
	var out []Transition
	for _, t := range m.Transitions {
		if t.From == s && t.Event == e {
			out = append(out, t)
		}
	}
	return out
}

// from returns the statuses that an event leaves.
func (m *Machine) from(e Event) []Status {
	var out []Status
	for _, t := range m.Transitions {
		if t.Event == e && !slices.Contains(out, t.From) {
			out = append(out, t.From)
		}
	}
	return out
}

// mustMachine checks a table when the program starts: a table with a hole is a bug of ours, not an input.
func mustMachine(m Machine) *Machine {
	known := m.Statuses()
	for _, t := range m.Transitions {
		if !slices.Contains(known, t.From) || !slices.Contains(known, t.To) {
			panic(fmt.Sprintf("fencing: machine %s: %s on %s to %s: unknown status", m.Name, t.From, t.Event, t.To))
		}
		if m.IsTerminal(t.From) && t.Event != Redrive {
			panic(fmt.Sprintf("fencing: machine %s: %s leaves the terminal status %s", m.Name, t.Event, t.From))
		}
		effect := effects[t.Event]
		if effect.owner == takes && !slices.Contains(m.Ownable, t.To) {
			panic(fmt.Sprintf("fencing: machine %s: %s leases the status %s, which is not ownable", m.Name, t.Event, t.To))
		}
		if !effect.raisesAttempt && effect.owner == gives && !m.IsTerminal(t.To) {
			panic(fmt.Sprintf("fencing: machine %s: %s gives the run away and keeps its attempt", m.Name, t.Event))
		}
	}
	for _, s := range known {
		for _, e := range events {
			rows := m.Allowed(s, e)
			for i, t := range rows {
				if last := i == len(rows)-1; (t.When == Always) != last && !(last && slices.Contains(alone, t.When)) {
					panic(fmt.Sprintf("fencing: machine %s: guards of %s on %s do not end in one that is always true", m.Name, s, e))
				}
			}
		}
	}
	return &m
}
