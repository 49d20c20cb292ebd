package receipts

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/weirqueue/weir/internal/fencing"
)

// What is written for many runs in one statement: claims, ends that succeed, and the receipts of outside steps. Each
// element is fenced by itself. What a batch leaves out, because it is lost, locked, or not claimable, its caller
// writes alone and learns why.

var (
	claimColumns  = []fencing.Column{{Name: "doorbell", Type: "bigint"}, {Name: "doorbell_attempted_at", Type: "timestamptz"}, {Name: "suspect", Type: "boolean"}}
	startColumns  = []fencing.Column{{Name: "attempt", Type: "bigint"}, {Name: "step_index", Type: "integer"}, {Name: "step_name", Type: "text"}, {Name: "effect", Type: "text"}}
	settleColumns = append(startColumns[:4:4], fencing.Column{Name: "external_ref", Type: "text"}, fencing.Column{Name: "step_output", Type: "jsonb"})
	endColumns    = append(settleColumns[:6:6], fencing.Column{Name: "output", Type: "jsonb"}, fencing.Column{Name: "settles", Type: "boolean"})
	sendColumns   = []fencing.Column{{Name: "attempt", Type: "bigint"}, {Name: "external_ref", Type: "text"}}
)

// settleOK is settle for a step that is ok, which needs to know nothing of who began it. endOK leaves out the runs that are receipts
// themselves.
const (
	settleOK = insertOK + overwriteOK
	endOK    = insertOK + " where @settles" + overwriteOK

	insertOK fencing.Rider = `
    insert into weir.receipt (run_id, step_index, step_name, effect, outcome, attempt, external_ref, output)
    select fenced.id, @step_index::integer, @step_name, @effect, 'ok', @attempt::bigint, @external_ref, @step_output from fenced`
	overwriteOK fencing.Rider = `
    on conflict (run_id, step_index) do update
        set outcome = 'ok', effect = excluded.effect, attempt = excluded.attempt, external_ref = excluded.external_ref,
            output = excluded.output, recorded_at = clock_timestamp()
        where receipt.outcome <> 'ok'`
)

const (
	succeedManyFinal = `select fenced.id, fenced.status, fenced.attempt, fenced.failures from fenced`
	settleManyFinal  = `select fenced.id, fenced.cancel_requested_at is not null, true from fenced`
	startManyFinal   = `select fenced.id, fenced.cancel_requested_at is not null, exists (select from rider0 s where s.run_id = fenced.id) from fenced`
)

type byMachine map[string]*fencing.Statement

var (
	claimStartedMany = fencing.Delivery.Batch("claim and start many", fencing.Claim, fencing.ClaimScope, fencing.ClaimFinal(manySteps, outcomeBefore), claimColumns, startedAgain)
	// sendMany is succeedMany for deliveries whose runs are their receipts.
	sendMany = fencing.Delivery.Batch("send many", fencing.Succeed, ownRun, succeedManyFinal, sendColumns)
)

var claimMany, succeedMany, startMany, startManyReconciled, settleMany = byMachine{}, byMachine{}, byMachine{}, byMachine{}, byMachine{}

func init() {
	for _, m := range fencing.Machines {
		claimMany[m.Name] = m.Batch("claim many", fencing.Claim, fencing.ClaimScope, fencing.ClaimFinal("false", "''"), claimColumns)
		succeedMany[m.Name] = m.Batch("succeed many", fencing.Succeed, ownRun, succeedManyFinal, endColumns, endOK)
		startMany[m.Name] = m.Batch("start many", fencing.StartStep, stepScope(m), startManyFinal, startColumns, startStep)
		startManyReconciled[m.Name] = m.Batch("start many reconciled", fencing.StartStep, stepScope(m), startManyFinal, startColumns, startReconciled)
		settleMany[m.Name] = m.Batch("settle many", fencing.CommitStep, ownRun, settleManyFinal, settleColumns, settleOK)
	}
}

// ClaimMany is Claim, or ClaimStarted where it starts, for many runs of one kind. All requests have the kind, the owner, the times
// and the offers of the first.
func ClaimMany(ctx context.Context, db fencing.DB, reqs []fencing.ClaimRequest, starts bool) (map[uuid.UUID]*fencing.Claimed, error) {
	reqs = byRun(reqs, func(r fencing.ClaimRequest) uuid.UUID { return r.Run })
	var (
		runs      = make([]pgtype.UUID, len(reqs))
		doorbells = make([]int64, len(reqs))
		attempted = make([]time.Time, len(reqs))
		suspects  = make([]bool, len(reqs))
	)
	for i, r := range reqs {
		runs[i], doorbells[i], attempted[i], suspects[i] = pgID(r.Run), r.Doorbell, r.DoorbellAttemptedAt, r.Suspect
	}
	args := reqs[0].Args()
	args["run_list"], args["doorbell_list"], args["doorbell_attempted_at_list"], args["suspect_list"] = runs, doorbells, attempted, suspects
	stmt := claimMany[fencing.MachineOf(reqs[0].Kind).Name]
	if starts {
		stmt, args = claimStartedMany, sendArgs(args)
	}
	kind := reqs[0].Kind
	rows, err := db.Query(ctx, stmt.SQL, stmt.Bind(args)...)
	if err != nil {
		return nil, fmt.Errorf("claim %d runs: %w", len(reqs), err)
	}
	claimed, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (fencing.Claimed, error) {
		c, _, err := fencing.ScanClaimed(row, kind)
		return c, err
	})
	if err != nil {
		return nil, fmt.Errorf("claim %d runs: %w", len(reqs), err)
	}
	out := make(map[uuid.UUID]*fencing.Claimed, len(claimed))
	for i := range claimed {
		out[claimed[i].Run] = &claimed[i]
	}
	return out, nil
}

// SucceedMany is End.Write for ends that all are Succeed with an outcome that is ok, of runs of one kind.
func SucceedMany(ctx context.Context, db fencing.DB, ends []End) (map[uuid.UUID]Ended, error) {
	ends = byRun(ends, func(e End) uuid.UUID { return e.Run })
	stmt, args := succeedManyArgs(ends)
	rows, err := db.Query(ctx, stmt.SQL, stmt.Bind(args)...)
	if err != nil {
		return nil, fmt.Errorf("end %d runs: %w", len(ends), err)
	}
	out := make(map[uuid.UUID]Ended, len(ends))
	var (
		id    uuid.UUID
		ended = Ended{Terminal: true}
	)
	_, err = pgx.ForEachRow(rows, []any{&id, &ended.Status, &ended.Attempt, &ended.Failures}, func() error {
		out[id] = ended
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("end %d runs: %w", len(ends), err)
	}
	return out, nil
}

func succeedManyArgs(ends []End) (*fencing.Statement, fencing.Args) {
	if !slices.ContainsFunc(ends, func(e End) bool { return !e.runIsReceipt() }) {
		var (
			runs     = make([]pgtype.UUID, len(ends))
			attempts = make([]int64, len(ends))
			refs     = make([]*string, len(ends))
		)
		for i, e := range ends {
			runs[i], attempts[i], refs[i] = pgID(e.Run), e.Attempt, nullText(e.ExternalRef)
		}
		return sendMany, fencing.Args{"run_list": runs, "attempt_list": attempts, "external_ref_list": refs, "output": nil}
	}
	w := newWrites(len(ends))
	outputs, settles := make([]*string, len(ends)), make([]bool, len(ends))
	for i, e := range ends {
		w.set(i, e.Run, e.Attempt, e.Step)
		w.refs[i], w.stepOutputs[i], outputs[i] = nullText(e.ExternalRef), nullJSON(e.StepOutput), nullJSON(e.Output)
		settles[i] = !e.runIsReceipt()
	}
	args := w.settleArgs()
	args["output_list"], args["settles_list"] = outputs, settles
	return succeedMany[fencing.MachineOf(ends[0].Kind).Name], args
}

// Stood is what Start and Settle return of one run.
type Stood struct{ CancelRequested, Written bool }

// StartMany is Outside.Start for steps of one effect, of runs of one kind.
func StartMany(ctx context.Context, db fencing.DB, steps []Outside) (map[uuid.UUID]Stood, error) {
	steps = byRun(steps, func(o Outside) uuid.UUID { return o.Run })
	w := newWrites(len(steps))
	for i, o := range steps {
		w.set(i, o.Run, o.Attempt, o.Step)
	}
	stmts := startMany
	if steps[0].Step.Effect == Reconciled {
		stmts = startManyReconciled
	}
	return w.write(ctx, db, stmts, "start", steps[0], w.startArgs())
}

// Settlement is an outside step that is ok, with what it left.
type Settlement struct {
	Outside
	Output      json.RawMessage
	ExternalRef string
}

// SettleMany is Outside.Settle for steps of runs of one kind.
func SettleMany(ctx context.Context, db fencing.DB, steps []Settlement) (map[uuid.UUID]Stood, error) {
	steps = byRun(steps, func(s Settlement) uuid.UUID { return s.Run })
	w := newWrites(len(steps))
	for i, s := range steps {
		w.set(i, s.Run, s.Attempt, s.Step)
		w.refs[i], w.stepOutputs[i] = nullText(s.ExternalRef), nullJSON(s.Output)
	}
	return w.write(ctx, db, settleMany, "settle", steps[0].Outside, w.settleArgs())
}

// byRun is the order of locks.
func byRun[T any](list []T, run func(T) uuid.UUID) []T {
	return slices.SortedFunc(slices.Values(list), func(a, b T) int {
		x, y := run(a), run(b)
		return bytes.Compare(x[:], y[:])
	})
}

// pgID is an id as pgx encodes it fastest: a uuid.UUID it asks for its text.
func pgID(id uuid.UUID) pgtype.UUID { return pgtype.UUID{Bytes: id, Valid: true} }

// writes are the columns of a batch of writes by owners.
type writes struct {
	runs              []pgtype.UUID
	attempts          []int64
	indexes           []int32
	names, effects    []string
	refs, stepOutputs []*string
}

func newWrites(n int) *writes {
	return &writes{
		runs: make([]pgtype.UUID, n), attempts: make([]int64, n), indexes: make([]int32, n), names: make([]string, n),
		effects: make([]string, n), refs: make([]*string, n), stepOutputs: make([]*string, n),
	}
}

func (w *writes) set(i int, run uuid.UUID, attempt int64, step Step) {
	w.runs[i], w.attempts[i], w.indexes[i] = pgID(run), attempt, int32(step.Index) // #nosec G115 -- a kind has at most 100 steps
	w.names[i], w.effects[i] = step.Name, string(step.Effect)
}

func (w *writes) startArgs() fencing.Args {
	return fencing.Args{
		"run_list": w.runs, "attempt_list": w.attempts, "step_index_list": w.indexes, "step_name_list": w.names, "effect_list": w.effects,
	}
}

func (w *writes) settleArgs() fencing.Args {
	args := w.startArgs()
	args["external_ref_list"], args["step_output_list"] = w.refs, w.stepOutputs
	return args
}

func (w *writes) write(ctx context.Context, db fencing.DB, stmts byMachine, verb string, first Outside, args fencing.Args) (map[uuid.UUID]Stood, error) {
	args["lease"], args["step_time"] = first.Lease, first.StepTime
	stmt := stmts[fencing.MachineOf(first.Kind).Name]
	rows, err := db.Query(ctx, stmt.SQL, stmt.Bind(args)...)
	if err != nil {
		return nil, fmt.Errorf("%s %d steps: %w", verb, len(w.runs), err)
	}
	out := make(map[uuid.UUID]Stood, len(w.runs))
	var (
		id    uuid.UUID
		stood Stood
	)
	_, err = pgx.ForEachRow(rows, []any{&id, &stood.CancelRequested, &stood.Written}, func() error {
		out[id] = stood
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("%s %d steps: %w", verb, len(w.runs), err)
	}
	return out, nil
}
