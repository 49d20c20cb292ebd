// Package receipts writes and reads weir.receipt: the rows that say what a step did. It is the only author of
// statements on that table, and each of them carries a fence that internal/fencing composes, so a receipt cannot be
// written by somebody who does not own the run.
package receipts

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/weirqueue/weir/internal/fencing"
)

// Outcome is what is known about a step.
type Outcome string

// Only OK, and Failed on a terminal run, stop a step from being executed again.
const (
	Started Outcome = "started" // its effect may be on its way outside
	OK      Outcome = "ok"
	Failed  Outcome = "failed"  // it surely had no effect
	Unknown Outcome = "unknown" // nobody knows whether it had one
)

// Effect is what an unknown outcome means for a step.
type Effect string

// See docs/concepts.md, "External effects".
const (
	Transactional Effect = "transactional"
	Idempotent    Effect = "idempotent"
	AtLeastOnce   Effect = "at_least_once"
	Reconciled    Effect = "reconciled"
)

// Step is a step's identity: its position in the frozen payload, never a counter of calls.
type Step struct {
	Index  int
	Name   string
	Effect Effect
}

// Receipt is one row.
type Receipt struct {
	Run         uuid.UUID
	Step        Step
	Outcome     Outcome
	Attempt     int64
	ExternalRef string
	Output      json.RawMessage
	RecordedAt  time.Time
}

var list = fencing.Compile("receipts of a run", `
select step_index, step_name, effect, outcome, attempt, coalesce(external_ref, ''), output, recorded_at
from weir.receipts where run_id = @run order by step_index`)

// List returns the receipts of a run by step.
func List(ctx context.Context, db fencing.DB, run uuid.UUID) ([]Receipt, error) {
	rows, err := db.Query(ctx, list.SQL, list.Bind(fencing.Args{"run": run})...)
	if err != nil {
		return nil, fmt.Errorf("receipts of run %s: %w", run, err)
	}
	out, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (Receipt, error) {
		r := Receipt{Run: run}
		err := row.Scan(&r.Step.Index, &r.Step.Name, &r.Step.Effect, &r.Outcome, &r.Attempt, &r.ExternalRef, &r.Output, &r.RecordedAt)
		return r, err
	})
	if err != nil {
		return nil, fmt.Errorf("receipts of run %s: %w", run, err)
	}
	return out, nil
}

const settleStarted = `
update weir.receipt set outcome = 'unknown', recorded_at = clock_timestamp()
where run_id = any(@runs::text[]::uuid[]) and outcome = 'started'`

var (
	settleRows = fencing.Compile("settle to unknown", settleStarted)
	// A first owner's delivery has no row of its Send yet. The token is raised already.
	settleOwned = fencing.Compile("settle owned to unknown", `
with rows as (`+settleStarted+`
)
insert into weir.receipt (run_id, step_index, step_name, effect, outcome, attempt)
select id, @step_index::integer, @step_name, @effect, 'unknown', attempt - 1 from weir.run
where id = any(@runs::text[]::uuid[]) and kind = '`+fencing.KindDelivery+`' and not '`+ManySteps+`' = any(needs)
on conflict (run_id, step_index) do nothing`)
)

// SettleUnknown turns what is open of runs into unknown, once their owners have been taken away. The caller's transaction has
// done that in an earlier statement (F13), and holds the runs' locks.
func SettleUnknown(ctx context.Context, tx pgx.Tx, runs []uuid.UUID) error {
	_, err := tx.Exec(ctx, settleOwned.SQL, settleOwned.Bind(sendArgs(fencing.Args{"runs": fencing.Texts(runs)}))...)
	return err
}

var openStarted = fencing.Compile("open started", `
select exists (select from weir.receipts where run_id = @run and outcome = 'started')`)

// A branch reset that was issued, or may have been, goes on at its provider whether somebody owns the run or not.
var openReset = fencing.Compile("open reset", `
select exists (select from weir.receipt where run_id = @run and outcome <> 'failed')`)

// Cancel ends a run: at once where nothing of it runs outside, else by a request that its owner honours. It locks,
// looks and writes in three statements, because a look in the same statement as the lock would decide on a snapshot
// from before a claim that it waited for (F15).
//
// done is false when the cancellation was only requested. A terminal run is left alone; see Locked.
func Cancel(ctx context.Context, tx pgx.Tx, run uuid.UUID, code string) (l fencing.Locked, found, done bool, err error) {
	l, found, err = fencing.LockRun(ctx, tx, run)
	if err != nil || !found || l.Terminal {
		return l, found, false, err
	}
	isOpen := openStarted
	if l.Kind == fencing.KindBranchReset {
		isOpen = openReset
	}
	var open bool
	if err := tx.QueryRow(ctx, isOpen.SQL, isOpen.Bind(fencing.Args{"run": run})...).Scan(&open); err != nil {
		return l, true, false, fmt.Errorf("cancel run %s: %w", run, err)
	}
	m := fencing.MachineOf(l.Kind)
	if open && (l.Owned || l.Kind == fencing.KindBranchReset) {
		return l, true, false, fencing.RequestCancelLocked(ctx, tx, m, run, code)
	}
	if _, err := tx.Exec(ctx, settleRows.SQL, settleRows.Bind(fencing.Args{"runs": fencing.Texts([]uuid.UUID{run})})...); err != nil {
		return l, true, false, fmt.Errorf("cancel run %s: %w", run, err)
	}
	return l, true, true, fencing.CancelLocked(ctx, tx, m, run, code)
}

var erase = fencing.Compile("erase receipts", `
update weir.receipt set external_ref = null, output = null
where run_id = @run and exists (select from weir.run r where r.id = @run and r.finished_at is not null)`)

// Erase removes outputs and references from the receipts of a terminal run whose lock the caller holds.
func Erase(ctx context.Context, tx pgx.Tx, run uuid.UUID) error {
	if _, err := tx.Exec(ctx, erase.SQL, erase.Bind(fencing.Args{"run": run})...); err != nil {
		return fmt.Errorf("erase receipts of run %s: %w", run, err)
	}
	return nil
}
