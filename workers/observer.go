package workers

import (
	"context"
	"time"

	"github.com/weirqueue/weir/jobs"
)

// Observer hears what happens in a process of the fleet. Observe is called by many goroutines at once, in the path of
// the work: it must be quick and must not block. docs/telemetry.md lists the events.
type Observer interface {
	Observe(ctx context.Context, e Event)
}

// ObserverFunc is a function as an Observer. Nil observes nothing.
type ObserverFunc func(ctx context.Context, e Event)

// Observe calls f.
func (f ObserverFunc) Observe(ctx context.Context, e Event) {
	if f != nil {
		f(ctx, e)
	}
}

// Observers calls several observers in order.
type Observers []Observer

// Observe calls each.
func (o Observers) Observe(ctx context.Context, e Event) {
	for _, each := range o {
		each.Observe(ctx, e)
	}
}

// Event is one of the types below, and no other. None holds personal data or secrets.
type Event interface {
	// EventName is the event's stable name, as in docs/telemetry.md.
	EventName() string
	event()
}

// RunClaimed: this process became the owner of a run.
type RunClaimed struct {
	Run      jobs.RunID
	Kind     string
	Attempt  int64
	Reaps    int
	Failures int
	// Waited is how long the run had been there, by the database's clock.
	Waited time.Duration
}

// RunNotClaimed: a doorbell rang for a run that this process did not claim.
type RunNotClaimed struct {
	Run  jobs.RunID
	Kind string
	// Reason is unknown, terminal, owned, not_due, suspect, waits, raced, blocked, stopping, unanswered or database.
	Reason string
}

// TryEnded: a try of a run ended and this process wrote how.
type TryEnded struct {
	Run     jobs.RunID
	Kind    string
	Channel string
	Attempt int64
	// Status is the run's afterwards.
	Status jobs.Status
	// How is succeeded, refused, failed, snoozed, released or canceled.
	How  string
	Code string
	Took time.Duration
}

// LeaseLost: this process learned that a run is not its own any more; what it wanted to write was refused.
type LeaseLost struct {
	Run     jobs.RunID
	Kind    string
	Attempt int64
	// Write is what was refused: succeed, refuse, fail_try, snooze, release or cancel.
	Write string
}

// LeaseLeft: a shutdown left a run whose effect may be on its way; its lease runs out.
type LeaseLeft struct {
	Run     jobs.RunID
	Kind    string
	Attempt int64
}

// DoubtResolved: the answer to a write was lost, and this process found out what had happened.
type DoubtResolved struct {
	Run  jobs.RunID
	Kind string
	// Verdict is still_owner, finished or lost.
	Verdict string
}

// Heartbeat: one statement renewed leases.
type Heartbeat struct {
	Renewed, Locked, Lost, Overdue int
	Took                           time.Duration
	Err                            error
}

// RunReaped: this process ended a lease that had run out.
type RunReaped struct {
	Run     jobs.RunID
	Kind    string
	Status  jobs.Status
	Attempt int64
	Reaps   int
	Owner   string
}

// DoorbellsRung: this process rang for runs that were due and whose doorbell was silent.
type DoorbellsRung struct{ Runs int }

// RunCanceledInRiver: this process canceled a run whose River job was cancelled.
type RunCanceledInRiver struct{ Run jobs.RunID }

// MaintenanceDone: one round of reaping and sweeping ended.
type MaintenanceDone struct {
	Took time.Duration
	Err  error
	// OldestDue is for how long the run that waits longest has been due; zero when none waits.
	OldestDue time.Duration
	// OldestQueue is that run's queue.
	OldestQueue string
}

// RunsCleaned: finished runs were deleted.
type RunsCleaned struct {
	Runs int
	Took time.Duration
}

// ResetsTended: one round of upkeep of branch resets ended, by every node's own or by the periodic dbops-reaper.
type ResetsTended struct {
	// Periodic says that it was the dbops-reaper.
	Periodic bool
	Took     time.Duration
	Err      error
	// Rang is how many resets were rung for, Closed how many were ended because nobody worked them.
	Rang, Closed int
}

// Misconfigured: a provider refused our own settings. Deliveries, or branch resets, wait until somebody mends them.
type Misconfigured struct {
	Run jobs.RunID
	// Channel is the channel, or the provider of branches.
	Channel string
	Code    string
}

// EventName is run_claimed.
func (RunClaimed) EventName() string { return "run_claimed" }

// EventName is run_not_claimed.
func (RunNotClaimed) EventName() string { return "run_not_claimed" }

// EventName is try_ended.
func (TryEnded) EventName() string { return "try_ended" }

// EventName is lease_lost.
func (LeaseLost) EventName() string { return "lease_lost" }

// EventName is lease_left.
func (LeaseLeft) EventName() string { return "lease_left" }

// EventName is doubt_resolved.
func (DoubtResolved) EventName() string { return "doubt_resolved" }

// EventName is heartbeat.
func (Heartbeat) EventName() string { return "heartbeat" }

// EventName is run_reaped.
func (RunReaped) EventName() string { return "run_reaped" }

// EventName is doorbells_rung.
func (DoorbellsRung) EventName() string { return "doorbells_rung" }

// EventName is run_canceled_in_river.
func (RunCanceledInRiver) EventName() string { return "run_canceled_in_river" }

// EventName is maintenance_done.
func (MaintenanceDone) EventName() string { return "maintenance_done" }

// EventName is runs_cleaned.
func (RunsCleaned) EventName() string { return "runs_cleaned" }

// EventName is resets_tended.
func (ResetsTended) EventName() string { return "resets_tended" }

// EventName is misconfigured.
func (Misconfigured) EventName() string { return "misconfigured" }

func (RunClaimed) event()         {}
func (RunNotClaimed) event()      {}
func (TryEnded) event()           {}
func (LeaseLost) event()          {}
func (LeaseLeft) event()          {}
func (DoubtResolved) event()      {}
func (Heartbeat) event()          {}
func (RunReaped) event()          {}
func (DoorbellsRung) event()      {}
func (RunCanceledInRiver) event() {}
func (MaintenanceDone) event()    {}
func (RunsCleaned) event()        {}
func (ResetsTended) event()       {}
func (Misconfigured) event()      {}
