package fencing

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

const (
	onePlan = oneRun + " and r.kind = 'plan'"
	// expireScope picks what nobody decided, or nobody took up, within its limit. It reads run_expiry_idx.
	expireScope = `r.kind = 'plan' and r.expires_at <= (select clock_timestamp())`
)

var (
	approvePlan = Plan.Transition("approve", Approve, onePlan, "select fenced.status from fenced")
	rejectPlan  = Plan.Transition("reject", Reject, onePlan, "select fenced.status from fenced")
	expirePlans = Plan.Transition("expire", Expire, expireScope, "select fenced.id from fenced order by fenced.id")
	expirePlan  = Plan.Transition("expire one", Expire, oneRun+" and "+expireScope, "select fenced.id from fenced")
)

// ApproveLocked lets a plan go ahead: it is due now, and expires when nobody takes it up within the limit. The caller
// holds its lock, and rings. ok is false when it does not wait for an approval, or its limit has passed.
func ApproveLocked(ctx context.Context, tx pgx.Tx, run uuid.UUID, limit time.Duration) (ok bool, err error) {
	return decideLocked(ctx, tx, approvePlan, Args{"run": run, "limit": limit})
}

// RejectLocked refuses a plan that waits for an approval. The caller holds its lock.
func RejectLocked(ctx context.Context, tx pgx.Tx, run uuid.UUID) (ok bool, err error) {
	return decideLocked(ctx, tx, rejectPlan, Args{"run": run})
}

func decideLocked(ctx context.Context, tx pgx.Tx, stmt *Statement, args Args) (bool, error) {
	err := moveLocked(ctx, tx, stmt, args)
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	}
	return err == nil, err
}

// ExpirePlans ends up to limit plans whose limit has passed, in one statement that waits for no row, and returns them.
func ExpirePlans(ctx context.Context, db DB, limit int) ([]uuid.UUID, error) {
	rows, err := db.Query(ctx, expirePlans.SQL, expirePlans.Bind(Args{"limit": limit})...)
	if err != nil {
		return nil, fmt.Errorf("expire plans: %w", err)
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
	if err != nil {
		return nil, fmt.Errorf("expire plans: %w", err)
	}
	return ids, nil
}

// ExpirePlan ends one plan whose limit has passed, unless somebody has its row locked: for a reader that heals. ok is false
// when there was nothing to end, or somebody else is at it.
func ExpirePlan(ctx context.Context, db DB, run uuid.UUID) (ok bool, err error) {
	tag, err := db.Exec(ctx, expirePlan.SQL, expirePlan.Bind(Args{"run": run, "limit": 1})...)
	if err != nil {
		return false, fmt.Errorf("expire plan %s: %w", run, err)
	}
	return tag.RowsAffected() == 1, nil
}

// ReapRun ends the lease of one run, if it has run out and nobody has the row locked: for a reader that heals. ok is
// false when there was nothing to end, or somebody else is at it.
func (r *Reaper) ReapRun(ctx context.Context, kind string, run uuid.UUID) (ok bool, err error) {
	reaped, err := r.reap(ctx, MachineOf(kind), uuid.NullUUID{UUID: run, Valid: true}, 1)
	if err != nil {
		return false, fmt.Errorf("reap run %s: %w", run, err)
	}
	return len(reaped) == 1, nil
}
