package receipts

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/weirqueue/weir/internal/fencing"
)

// The receipt takes its attempt from the fence. A lost fence is NULL there and NOT NULL aborts the whole transaction,
// so nobody can overlook it (L5). Only ok stops a step of a live run: what a try left that failed or is unknown is
// overwritten, and a step that is ok already gets a NULL effect, which aborts in the same way.
const stepReceipt = `insert into weir.receipt (run_id, step_index, step_name, effect, outcome, attempt, output)
values (@run, @step_index::integer, @step_name, 'transactional', 'ok', (select fenced.attempt from fenced), @step_output)
on conflict (run_id, step_index) do update
    set effect = case when receipt.outcome <> 'ok' then excluded.effect end, outcome = excluded.outcome, step_name = excluded.step_name,
        attempt = excluded.attempt, output = excluded.output, external_ref = null, recorded_at = clock_timestamp()`

var stepFences, lastStepFences = map[string]*fencing.Statement{}, map[string]*fencing.Statement{}

// What a plan's step commits, or is about to begin outside, is fenced by the approval too: the database digests the frozen
// bytes anew, and compares them with what the person approved (PL-05).
const ownApprovedRun = ownRun + ` and exists (select from weir.plan a join weir.payload p on p.run_id = a.run_id
        where a.run_id = r.id and a.decision = 'approved' and a.approved_digest = sha256(p.body))`

// stepScope is the fence of whatever does, or is about to do, a step.
func stepScope(m *fencing.Machine) string {
	if m == fencing.Plan {
		return ownApprovedRun
	}
	return ownRun
}

func init() {
	for _, m := range fencing.Machines {
		stepFences[m.Name] = m.Transition("fence step", fencing.CommitStep, stepScope(m), stepReceipt)
		lastStepFences[m.Name] = m.Transition("fence last step", fencing.Succeed, stepScope(m), stepReceipt)
	}
}

// StepFence is the fence and the receipt of one transactional step.
type StepFence struct {
	Run     uuid.UUID
	Kind    string
	Attempt int64
	Step    Step
	Output  json.RawMessage
	// Last ends the run with the step; RunOutput is its output then.
	Last            bool
	RunOutput       json.RawMessage
	Lease, StepTime time.Duration
}

// Write locks the run, checks the attempt, renews the lease and writes the receipt, in the transaction of the step's
// own effect. It belongs directly before the COMMIT: a fence that is locked earlier and then freezes keeps the reaper
// waiting (F4).
//
// It returns ErrLeaseLost when the run is not owned under this attempt any more, ErrAlreadyDone when the step has a
// receipt; in both cases PostgreSQL has aborted the transaction, and the step's effects with it. Where the fence is the
// last thing that a frozen owner did, idle_in_transaction_session_timeout frees its locks.
func (f StepFence) Write(ctx context.Context, tx pgx.Tx) error {
	stmt, args := f.Statement()
	_, err := tx.Exec(ctx, stmt.SQL, args...)
	return f.MapError(err)
}

// Statement is what Write executes, for a caller that sends it in a pipeline with its COMMIT. The caller maps the error
// with MapError.
func (f StepFence) Statement() (*fencing.Statement, []any) {
	stmts := stepFences
	if f.Last {
		stmts = lastStepFences
	}
	stmt := stmts[fencing.MachineOf(f.Kind).Name]
	return stmt, stmt.Bind(fencing.Args{
		"run": f.Run, "attempt": f.Attempt, "lease": f.Lease, "step_time": f.StepTime,
		"step_index": f.Step.Index, "step_name": f.Step.Name,
		"step_output": nullJSON(f.Output), "output": nullJSON(f.RunOutput), "external_ref": nil,
	})
}

// StepStatements are the statements that Statement may return for a kind, for a connection that prepares them before
// the step's own SQL can have changed its role.
func StepStatements(kind string) []*fencing.Statement {
	name := fencing.MachineOf(kind).Name
	return []*fencing.Statement{stepFences[name], lastStepFences[name]}
}

// MapError says what an error of the fence means; see Write.
func (f StepFence) MapError(err error) error { return mapFenceError(err, f.Run, f.Step.Index) }

// ErrAlreadyDone says that the step has its receipt: somebody else committed it, once.
var ErrAlreadyDone = errors.New("weir: the step has its receipt already")

// mapFenceError tells by SQLSTATE, table and column what a refused fence means, never by text.
func mapFenceError(err error, run uuid.UUID, step int) error {
	var pgErr *pgconn.PgError
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &pgErr) || pgErr.SchemaName != "weir" || pgErr.TableName != "receipt":
	case pgErr.Code == "23502" && pgErr.ColumnName == "attempt":
		return fmt.Errorf("step %d of run %s: %w", step, run, fencing.ErrLeaseLost)
	case pgErr.Code == "23502" && pgErr.ColumnName == "effect":
		return fmt.Errorf("step %d of run %s: %w", step, run, ErrAlreadyDone)
	}
	return fmt.Errorf("step %d of run %s: %w", step, run, err)
}
