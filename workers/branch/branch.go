// Package branch is the seam between a branch reset and the outside world: a Provider resets a branch of a database,
// and says, by what it returns, what is known about the outcome.
//
// A reset destroys what was in the branch, so a second one would destroy what was written after the first. Weir calls
// Issue at most once for a reset that may have had an effect; whatever comes after that only looks.
package branch

import (
	"context"
	"time"
)

// Reset is what is to be done. Everything in it but Attempt and StillMine is the same on every call for a run.
type Reset struct {
	// RunID is the run, in UUID form: the root of every name that a provider makes for it.
	RunID string
	// Attempt is the fencing token of the caller.
	Attempt int64
	// Branch is the application's name of the branch, Target the provider's. Project and Parent may be empty.
	Branch, Project, Target, Parent string
	// PointInTime is nil for the parent's present.
	PointInTime *time.Time
	// RequestedAt is when the reset was asked for, by Weir's database.
	RequestedAt time.Time
	// StillMine asks Weir's database whether the caller owns the run under Attempt, and returns an error when it does not
	// or when nobody knows. A provider that can keep others out while it works asks as soon as it does so, and last
	// before what cannot be undone.
	StillMine func(ctx context.Context) error
}

// State is what a provider's status word means.
type State string

// The states. The zero value is Running.
const (
	// Running: go on asking.
	Running State = "running"
	// Finished: it happened. Final.
	Finished State = "finished"
	// Retrying: it failed, and the provider may try again by itself. The branch is held for a limited time.
	Retrying State = "retrying"
	// Failed: it failed for good. Final.
	Failed State = "failed"
	// Canceled: it was stopped by somebody. Final.
	Canceled State = "canceled"
	// Skipped: the provider found nothing to do. Final, and no success.
	Skipped State = "skipped"
	// Unheard: the provider's word is not one that we know. Go on asking, and warn.
	Unheard State = "unheard"
)

// Final says that the provider will not change the state any more.
func (s State) Final() bool {
	return s == Finished || s == Failed || s == Canceled || s == Skipped
}

// Operation is one of the provider's operations that carry out a reset.
type Operation struct {
	// ID is the provider's own, at most 200 bytes.
	ID string
	// Action says what the operation does, Status how it stands, both in the provider's words.
	Action, Status string
	State          State
	// Error is what the provider says of a failure; it may be empty.
	Error string
}

// Provider resets branches. Its methods are called by many goroutines at once, and must return soon after ctx ends.
//
// Errors made by Later, Refused, Misconfigured, Gone and NotApplied mean what they say. Of any other error, a panic
// included, Issue's means that nobody knows whether the reset happened, and the others' that they are to be called again.
type Provider interface {
	// Issue begins the reset and returns the operations by which the provider carries it out, also those that are over
	// already. None means that there is nothing to wait for.
	Issue(ctx context.Context, r Reset) ([]Operation, error)
	// Find says what became of an Issue for the same run whose answer nobody has. found is false when the provider does
	// not know of it now, which says nothing about later: a call may be on its way. NotApplied says that there was none
	// and that none will come.
	Find(ctx context.Context, r Reset) (ops []Operation, found bool, err error)
	// Poll says how an operation stands. Gone says that the provider has no such operation any more.
	Poll(ctx context.Context, r Reset, op Operation) (Operation, error)
	// Cancel asks the provider to stop operations that are not final. It may be called many times. Whether it worked is
	// seen by Poll. ErrNotCancelable says that the provider cannot.
	Cancel(ctx context.Context, r Reset, ops []Operation) error
}
