package fencing

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

const oneRun = "r.id = @run"

// endedByCancel records the try that a cancellation took away from its owner.
const endedByCancel Rider = `
    insert into weir.ended_try (run_id, attempt, claimed_at, doorbell_id, owner, how, error_code)
    select fenced.id, fenced.attempt - 1, fenced.claimed_at, fenced.doorbell_id, locked.owner, 'canceled', fenced.error_code
    from fenced join locked on locked.id = fenced.id where locked.owner is not null
    on conflict (run_id, attempt) do nothing`

var (
	lockRun = Compile("lock run", `
select kind, status, attempt, finished_at is not null, lease_expires_at is not null, coalesce(error_code, ''), queue, priority
from weir.run where id = @run for no key update`)

	cancels, cancelRequests, redrives = map[string]*Statement{}, map[string]*Statement{}, map[string]*Statement{}
)

func init() {
	for _, m := range Machines {
		cancels[m.Name] = m.Transition("cancel", Cancel, oneRun, "select fenced.status from fenced", endedByCancel)
		cancelRequests[m.Name] = m.Transition("request cancel", RequestCancel, oneRun, "select fenced.status from fenced")
		if len(m.from(Redrive)) > 0 {
			redrives[m.Name] = m.Transition("redrive", Redrive, oneRun, "select fenced.status from fenced")
		}
	}
}

// Locked is a run as it stands while the caller's transaction holds its lock.
type Locked struct {
	Run             uuid.UUID
	Kind, Queue     string
	Priority        int
	Status          Status
	Attempt         int64
	Terminal, Owned bool
	ErrorCode       string
}

// LockRun locks a run and says how it stands. ok is false when there is no such run.
func LockRun(ctx context.Context, tx pgx.Tx, run uuid.UUID) (l Locked, ok bool, err error) {
	l.Run = run
	err = tx.QueryRow(ctx, lockRun.SQL, lockRun.Bind(Args{"run": run})...).
		Scan(&l.Kind, &l.Status, &l.Attempt, &l.Terminal, &l.Owned, &l.ErrorCode, &l.Queue, &l.Priority)
	if errors.Is(err, pgx.ErrNoRows) {
		return l, false, nil
	}
	if err != nil {
		return l, false, fmt.Errorf("lock run %s: %w", run, err)
	}
	return l, true, nil
}

// CancelLocked ends a run at once. The caller holds its lock and has looked, in a statement after the lock, that
// nothing of it runs outside (F15).
func CancelLocked(ctx context.Context, tx pgx.Tx, m *Machine, run uuid.UUID, code string) error {
	return moveLocked(ctx, tx, cancels[m.Name], Args{"run": run, "cancel_code": code})
}

// RequestCancelLocked asks the owner to end the run at its next chance. The caller holds the run's lock.
func RequestCancelLocked(ctx context.Context, tx pgx.Tx, m *Machine, run uuid.UUID, code string) error {
	return moveLocked(ctx, tx, cancelRequests[m.Name], Args{"run": run, "cancel_code": code})
}

// RedriveLocked gives a run that ended badly another life: budgets at zero, receipts kept, due now. The caller holds
// the run's lock and rings. It reports false when the machine has no such transition from where the run is.
func RedriveLocked(ctx context.Context, tx pgx.Tx, m *Machine, run uuid.UUID) (bool, error) {
	stmt := redrives[m.Name]
	if stmt == nil {
		return false, nil
	}
	err := moveLocked(ctx, tx, stmt, Args{"run": run})
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	}
	return err == nil, err
}

func moveLocked(ctx context.Context, tx pgx.Tx, stmt *Statement, args Args) error {
	var status string
	if err := tx.QueryRow(ctx, stmt.SQL, stmt.Bind(args)...).Scan(&status); err != nil {
		return fmt.Errorf("%s run %v: %w", stmt.Name, args["run"], err)
	}
	return nil
}
