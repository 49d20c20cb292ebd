package fencing

// ownership is what an event does to the lease.
type ownership int

const (
	keeps  ownership = iota // the lease stays as it is
	takes                   // the caller becomes the owner
	renews                  // the owner stays, with a full lease and the next step's deadline
	gives                   // nobody owns the run afterwards
)

// effect is what an event does to a run beside its status: the same for every kind.
type effect struct {
	// fenced: only the owner may do it, and it names its attempt.
	fenced bool
	owner  ownership
	// raisesAttempt makes the token of whoever owned the run useless (R4).
	raisesAttempt bool
	// failures and reaps are SQL over the locked row r; empty leaves the counter alone.
	failures, reaps string
	// due is when a run that is not terminal afterwards wants work again; empty leaves it alone.
	due string
	who string
}

var events = []Event{Claim, StartStep, CommitStep, Succeed, Refuse, FailTry, Snooze, Release, Reap, Cancel, RequestCancel, Redrive, Approve, Reject, Expire}

const (
	stepDeadlinePassed = "(r.step_deadline_at <= clock_timestamp())"
	anyLeaseIsOver     = "r.next_attempt_at = 'infinity' and r.lease_expires_at < clock_timestamp()"
)

var effects = map[Event]effect{
	Claim: {owner: takes, raisesAttempt: true, due: "'infinity'::timestamptz", who: "worker"},
	// It does not reset the reaps: a step that kills its process each time it is begun must run out of them.
	StartStep:  {fenced: true, owner: renews, who: "owner"},
	CommitStep: {fenced: true, owner: renews, reaps: "0", who: "owner"},
	// Terminal writes keep the attempt, so that whoever looks after an unknown outcome finds its own.
	Succeed: {fenced: true, owner: gives, reaps: "0", who: "owner"},
	Refuse:  {fenced: true, owner: gives, failures: "r.failures + 1", who: "owner"},
	FailTry: {fenced: true, owner: gives, raisesAttempt: true, failures: "r.failures + 1", due: "clock_timestamp() + @delay::interval", who: "owner"},
	Snooze:  {fenced: true, owner: gives, raisesAttempt: true, due: "clock_timestamp() + @delay::interval", who: "owner"},
	Release: {fenced: true, owner: gives, raisesAttempt: true, due: "clock_timestamp()", who: "owner"},
	Reap: {
		owner: gives, raisesAttempt: true, reaps: "r.reaps + 1",
		failures: "r.failures + " + stepDeadlinePassed + "::int", due: "clock_timestamp()", who: "reaper",
	},
	Cancel:        {owner: gives, raisesAttempt: true, who: "client, operator"},
	RequestCancel: {owner: keeps, who: "client, operator"},
	Redrive:       {owner: gives, raisesAttempt: true, failures: "0", reaps: "0", due: "clock_timestamp()", who: "operator"},
	// Nobody owns a run that waits for a person, so there is no token that an approval would have to make useless.
	Approve: {owner: keeps, due: "clock_timestamp()", who: "approver"},
	Reject:  {owner: gives, raisesAttempt: true, who: "approver"},
	Expire:  {owner: gives, raisesAttempt: true, who: "sweep"},
}

// guards are SQL over the locked row r.
var guards = map[Guard]string{
	CancelRequested: "r.cancel_requested_at is not null and r.kind <> '" + KindBranchReset + "'",
	BudgetSpent:     "r.failures + 1 >= r.max_failures",
	DeadlineSpent:   stepDeadlinePassed + " and r.failures + 1 >= r.max_failures",
	ReapsSpent:      "r.reaps + 1 >= @max_reaps::int",
	NotCanceled:     "r.cancel_requested_at is null",
	NotExpired:      "(r.expires_at is null or r.expires_at > clock_timestamp())",
	LimitPassed:     "r.expires_at <= clock_timestamp()",
	NotResumable:    "not r.resumable",
}
