package receipts

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/weirqueue/weir/internal/fencing"
)

// An outside step that is not the only one commits `started` by a statement of its own, before it acts.
const startStep fencing.Rider = `
    insert into weir.receipt (run_id, step_index, step_name, effect, outcome, attempt)
    select fenced.id, @step_index::integer, @step_name, @effect, 'started', fenced.attempt from fenced
    on conflict (run_id, step_index) do update
        set outcome = 'started', attempt = excluded.attempt, recorded_at = clock_timestamp()
        where receipt.outcome <> 'ok'
    returning run_id`

// For a Reconciled step nothing overwrites what another attempt started, or left unknown: whoever comes next asks.
// What surely did not happen may be started.
const startReconciled fencing.Rider = `
    insert into weir.receipt (run_id, step_index, step_name, effect, outcome, attempt)
    select fenced.id, @step_index::integer, @step_name, @effect, 'started', fenced.attempt from fenced
    on conflict (run_id, step_index) do update
        set outcome = 'started', attempt = excluded.attempt, recorded_at = clock_timestamp()
        where receipt.outcome = 'failed'
    returning run_id`

const (
	startFinal  = `select fenced.cancel_requested_at is not null, exists (select from rider0) from fenced`
	settleFinal = `select fenced.cancel_requested_at is not null, true from fenced`
)

var starts, startsReconciled, settles = map[string]*fencing.Statement{}, map[string]*fencing.Statement{}, map[string]*fencing.Statement{}

func init() {
	for _, m := range fencing.Machines {
		starts[m.Name] = m.Transition("start step", fencing.StartStep, stepScope(m), startFinal, startStep)
		startsReconciled[m.Name] = m.Transition("start reconciled step", fencing.StartStep, stepScope(m), startFinal, startReconciled)
		settles[m.Name] = m.Transition("settle step", fencing.CommitStep, ownRun, settleFinal, settle)
	}
}

// Outside is a step with an effect outside the database, under the attempt of the run's owner.
type Outside struct {
	Run             uuid.UUID
	Kind            string
	Attempt         int64
	Step            Step
	Lease, StepTime time.Duration
}

// Start commits `started` and renews the lease with the step's declared time. began is false when the step has a receipt
// that must not be overwritten: it is ok, or, for a Reconciled step, somebody else started it. It returns ErrLeaseLost
// when the run is not owned under this attempt, and has written nothing then.
func (o Outside) Start(ctx context.Context, db fencing.DB) (began, cancelRequested bool, err error) {
	stmts := starts
	if o.Step.Effect == Reconciled {
		stmts = startsReconciled
	}
	cancelRequested, began, err = o.write(ctx, db, stmts, "start", nil, "")
	return began, cancelRequested, err
}

// Settle commits that the step is ok, and renews the lease with the next step's declared time. It returns ErrLeaseLost
// when the run is not owned under this attempt, and has written nothing then.
func (o Outside) Settle(ctx context.Context, db fencing.DB, output json.RawMessage, externalRef string) (cancelRequested bool, err error) {
	cancelRequested, _, err = o.write(ctx, db, settles, "settle", output, externalRef)
	return cancelRequested, err
}

func (o Outside) write(ctx context.Context, db fencing.DB, stmts map[string]*fencing.Statement, verb string, output json.RawMessage, ref string) (cancelRequested, written bool, err error) {
	stmt := stmts[fencing.MachineOf(o.Kind).Name]
	err = db.QueryRow(ctx, stmt.SQL, stmt.Bind(fencing.Args{
		"run": o.Run, "attempt": o.Attempt, "lease": o.Lease, "step_time": o.StepTime,
		"step_index": o.Step.Index, "step_name": o.Step.Name, "effect": string(o.Step.Effect),
		"began": o.Attempt, "outcome": string(OK), "external_ref": nullText(ref), "step_output": nullJSON(output),
	})...).Scan(&cancelRequested, &written)
	if errors.Is(err, pgx.ErrNoRows) {
		return false, false, fmt.Errorf("%s step %d of run %s: %w", verb, o.Step.Index, o.Run, fencing.ErrLeaseLost)
	}
	if err != nil {
		return false, false, fmt.Errorf("%s step %d of run %s: %w", verb, o.Step.Index, o.Run, err)
	}
	return cancelRequested, written, nil
}
