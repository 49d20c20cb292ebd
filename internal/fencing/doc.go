// Package fencing decides who owns a run, and keeps everybody else from writing for it. It is the only writer of
// weir.run.
//
// # The run row
//
// A run is one row. Its status says where it stands, in its kind's own vocabulary (see Machines). Its attempt is the
// fencing token: an integer that every claim raises, and everything that takes the run away from its owner raises too.
// It never repeats and never goes back; a trigger refuses that. It is not River's attempt, which goes down on a snooze
// and on a soft stop and so can name two executions.
//
// Three facts are one: a run is owned; it has a lease; its next_attempt_at is infinity. A CHECK says so. That makes one
// partial index, on next_attempt_at, serve the claim, the sweep for silent doorbells and the reaper, and it leaves the
// lease's own columns out of every index, so that renewing it is a HOT update.
//
//	            claim                          succeed, refuse
//	due ───────────────────────────▶ owned ───────────────────────▶ terminal
//	 ▲   attempt + 1, lease,           │ │                             │
//	 │   next_attempt_at = infinity    │ └── commit_step: the lease    │ redrive
//	 │                                 │     begins anew               │
//	 └─────────────────────────────────┴───────────────────────────────┘
//	   fail_try, snooze, release (owner) or reap (reaper): attempt + 1
//
// # Safety
//
// The row's lock and the attempt give safety. Every statement by which an owner writes first locks the row, in a CTE,
// and checks the attempt on the locked row; receipts ride in the same statement, or in the same transaction. Whoever
// lost the run matches no row, and a transaction that carries a step's effect is aborted by NOT NULL on the receipt's
// attempt. A lease that has run out but was not reaped may still commit: the attempt decides, time does not.
//
// # Liveness
//
// Time gives liveness only, and it is the database's: clock_timestamp(), stamped after the row was locked. now() is
// frozen at the start of the transaction, and SET in a plain UPDATE is computed before it waits for the row; a lease
// stamped by either can be born expired.
//
// A process renews all its leases with one statement for each 5,000 (Keeper), on a connection of its own. What was not
// renewed is classified: locked by a slow commit of the owner's is proof of life; an attempt that moved on ends the
// work's context with ErrLeaseLost; a step past its declared time ends it with ErrStepDeadline, and is not renewed any
// more. When the database is silent, a stopwatch in the process, started before the last accepted renewal was sent,
// ends the context before the lease can have run out. Work that ignores its context is stopped by the fence.
//
// Only the reaper ends a lease that has run out (Reaper), on every node, in one transaction: the UPDATE with its whole
// predicate over rows locked SKIP LOCKED; open receipts to unknown, in a second statement; the dead worker's River job
// retired; a new doorbell, noted on the run. A claim never takes over a lease.
//
// # An unknown COMMIT
//
// A COMMIT whose answer was lost may still happen. ResolveDoubt raises the own attempt on another connection: that
// waits for the transaction in doubt, and makes it fail if it has not committed. Then the receipt, or the status, says
// what happened.
//
// # Order of locks
//
// weir.run, weir.receipt, weir.key, river_job; many rows by id. A multi-row statement that meets a deadlock or a lock
// timeout falls back to one row at a time.
package fencing
