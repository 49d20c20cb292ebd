package fencing

import (
	"context"
	"sync"
	"time"

	"github.com/google/uuid"
)

// Held is a run that this process owns: its token, and the context that ends when the token is worth nothing.
//
// Two executions of one run may be in one process at a time: the one whose lease was lost and that has not returned
// yet, and its successor. So a Held is known by its address, never by its run id.
type Held struct {
	Run uuid.UUID

	keeper          *Keeper
	lease, stepTime time.Duration
	cancel          context.CancelCauseFunc

	mu        sync.Mutex
	attempt   int64
	proof     time.Time // when the renewal was sent that PostgreSQL last accepted
	skipped   bool      // a COMMIT of this run is in doubt: the beat would wait for it
	finishing bool      // the owner is giving the run away: losing it is no news any more
	dropped   bool
	// The stopwatch: until when the lease surely lasts, and until when the step may take. One timer watches both. What only moves
	// them on leaves it alone: it looks again when it rings.
	lasts, deadline time.Time
	alarm           *time.Timer
	rings           time.Time // when alarm does
}

// start starts the stopwatch of a lease and a step that began at since.
func (h *Held) start(since time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.proof, h.lasts, h.deadline = since, since.Add(h.lease-margin(h.lease)), since.Add(h.stepTime)
	h.rings = h.next()
	h.alarm = time.AfterFunc(time.Until(h.rings), h.ring)
}

// next needs h.mu.
func (h *Held) next() time.Time {
	if h.deadline.Before(h.lasts) {
		return h.deadline
	}
	return h.lasts
}

// watch sets the alarm earlier, where it would ring too late. It needs h.mu.
func (h *Held) watch() {
	if next := h.next(); next.Before(h.rings) {
		h.rings = next
		h.alarm.Reset(time.Until(next))
	}
}

// ring ends the context when the step's time is over, or the lease may be: for what came first.
func (h *Held) ring() {
	if cause := h.due(); cause != nil {
		h.end(cause)
	}
}

func (h *Held) due() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	next := h.next()
	left := time.Until(next)
	switch {
	case h.dropped:
		return nil
	case left > 0:
		h.rings = next
		h.alarm.Reset(left)
		return nil
	case h.deadline.Before(h.lasts):
		return ErrStepDeadline
	}
	return ErrLeaseLost
}

// Attempt is the token as it is now. It moves on when an unknown COMMIT was resolved.
func (h *Held) Attempt() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.attempt
}

// Renewed tells the stopwatch that PostgreSQL accepted a full lease and a new step's deadline. since is the moment
// before the statement was sent: the lease cannot have begun earlier.
func (h *Held) Renewed(since time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.prove(since)
	h.deadline = since.Add(h.stepTime)
	h.watch()
}

// Skip keeps the beat away from the run while a COMMIT of it is in doubt (R10).
func (h *Held) Skip() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.skipped = true
}

// Swap goes on under a new token, after the doubt about a COMMIT was resolved by raising it.
func (h *Held) Swap(attempt int64, since time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.attempt, h.skipped = attempt, false
	h.prove(since)
}

// Finishing says that the owner is about to give the run away. Beats go on, so that a slow write does not cost the
// lease, but a beat that finds the run gone no longer ends the context (LF-09).
func (h *Held) Finishing() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.finishing = true
}

// Drop ends the holding. The context ends with it.
func (h *Held) Drop() {
	h.mu.Lock()
	h.dropped = true
	h.alarm.Stop()
	h.mu.Unlock()
	h.keeper.forget(h)
	h.cancel(context.Canceled)
}

// Alive reports whether the lease surely lasts at this moment, by the stopwatch. A process that was frozen asks before
// it does something outside: its timers may not have fired yet.
func (h *Held) Alive() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return !h.dropped && time.Since(h.proof) < h.lease-margin(h.lease)
}

// end stops the work. The holder sees the cause through context.Cause.
func (h *Held) end(cause error) {
	h.mu.Lock()
	ignore := h.dropped || h.finishing
	h.mu.Unlock()
	if !ignore {
		h.cancel(cause)
	}
}

// prove needs h.mu.
func (h *Held) prove(since time.Time) {
	if since.Before(h.proof) || h.dropped {
		return
	}
	h.proof, h.lasts = since, since.Add(h.lease-margin(h.lease))
	h.watch()
}

// margin is how long before its lease can have run out a process stops itself.
func margin(lease time.Duration) time.Duration { return min(lease/20, time.Second) }

// dueBeat reports whether the run wants renewing at now, and under which token.
func (h *Held) dueBeat(now time.Time, slack time.Duration) (attempt int64, due bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.dropped || h.skipped {
		return 0, false
	}
	return h.attempt, !now.Add(slack).Before(h.proof.Add(h.lease / BeatsPerLease))
}

// proved records that a beat which was sent at since, under attempt, found the run in our hands.
func (h *Held) proved(attempt int64, since time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.attempt == attempt {
		h.prove(since)
	}
}

// verdict is what the row of a run says that a beat could not renew.
type verdict int

const (
	undecided verdict = iota
	locked
	lost
	overdue
)

// judge compares the row, as a beat that was sent at since read it, with the token as it is now: it may have moved on
// while the beat was under way. A row with an older attempt was read before a doubt was resolved, and says nothing; nor
// does anything while a doubt is being resolved, or once the owner gives the run away itself.
//
// A run that is only locked gets proof of life for one beat: the row's lease was not renewed, so it is no more than that.
func (h *Held) judge(attempt int64, ownable, isOverdue bool, since time.Time) verdict {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.dropped || h.skipped || h.finishing:
		return undecided
	case attempt < h.attempt && ownable:
		return undecided
	case attempt != h.attempt || !ownable:
		return lost
	case isOverdue:
		return overdue
	}
	if until := since.Add(2 * h.lease / BeatsPerLease); until.After(h.proof.Add(h.lease - margin(h.lease))) {
		h.lasts = until
	}
	return locked
}
