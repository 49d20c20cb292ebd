package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/weirqueue/weir/internal/fencing"
	"github.com/weirqueue/weir/internal/receipts"
)

// Why a step is not undone, beside the texts.
const (
	NotUndoneUnknown   = "outcome_unknown" // nobody knows whether it had an effect
	NotUndoneNoInverse = "no_inverse"
	NotUndoneMovedOn   = "moved_on"    // what it changed was changed again since
	NotUndoneFailed    = "undo_failed" // its tool could not say how, or said something that no plan may do
)

// ErrNothingToUndo: no step of the plan committed that could be undone.
var ErrNothingToUndo = errors.New("jobs: nothing of the plan can be undone")

// Compensation is a plan that undoes another one.
type Compensation struct {
	// Run is the new plan. It waits for an approval of its own, and has receipts of its own.
	Run RunRef `json:"run"`
	// Undone are the positions of the steps that it undoes, in its order: the last one first.
	Undone []int `json:"undone"`
	// Refused are the steps that may have had an effect and are left as they are.
	Refused []NotUndone `json:"refused,omitempty"`
}

// NotUndone is a step that a compensation leaves as it is.
type NotUndone struct {
	Step   int    `json:"step"`
	Tool   string `json:"tool"`
	Code   string `json:"code"`
	Reason string `json:"reason"`
}

// CompensatePlan proposes a plan that undoes the steps of a terminal plan, as its receipts have them: in reverse, and only
// those that committed. Steps without an inverse, with an unknown outcome, whose document has moved on since, or whose tool
// fails when it is asked how, are listed in Refused, and in the new plan's rationale for whoever approves it, and not
// touched. Compensation is not atomicity: between the two plans the world is as the first one left it.
//
// by says who proposes; may be empty. The error is a *StateError while the plan is not terminal, or when another
// compensation of it waits, goes on or was carried out, ErrNotFound, and ErrNothingToUndo beside the list of Refused.
func (c *Client) CompensatePlan(ctx context.Context, id RunID, by string) (*Compensation, error) {
	var out *Compensation
	err := c.inTx(ctx, func(tx pgx.Tx) (err error) {
		out, err = c.CompensatePlanTx(ctx, tx, id, by)
		return err
	})
	if err != nil && !errors.Is(err, ErrNothingToUndo) {
		return nil, err
	}
	return out, err
}

var otherCompensation = fencing.Compile("other compensation", `
select p.run_id::text, r.status from weir.plan p join weir.run r on r.id = p.run_id
where p.compensates = @run::text::uuid and r.status in ('pending', 'approved', 'executing', 'executed') limit 1`)

// CompensatePlanTx is CompensatePlan in the caller's transaction, which holds the old plan's lock from then on.
func (c *Client) CompensatePlanTx(ctx context.Context, tx pgx.Tx, id RunID, by string) (*Compensation, error) {
	l, _, err := lockPlan(ctx, tx, id)
	if err != nil {
		return nil, err
	}
	refused := &StateError{Run: id, Op: "compensate", Status: Status(l.Status)}
	if !l.Terminal {
		return nil, refused
	}
	var other, status string
	err = tx.QueryRow(ctx, otherCompensation.SQL, otherCompensation.Bind(fencing.Args{"run": id.String()})...).Scan(&other, &status)
	switch {
	case err == nil:
		refused.Detail = fmt.Sprintf("plan %s that undoes it is %s", other, status)
		return nil, refused
	case !errors.Is(err, pgx.ErrNoRows):
		return nil, fmt.Errorf("jobs: compensate plan %s: %w", id, err)
	}
	old, err := c.readPlan(ctx, tx, id)
	if err != nil {
		return nil, err
	}
	if old.Erased {
		refused.Detail = "its payload was erased"
		return nil, refused
	}
	out, steps, err := c.undo(ctx, tx, old)
	if err != nil {
		return nil, err
	}
	if len(steps) == 0 {
		return out, fmt.Errorf("plan %s: %w", id, ErrNothingToUndo)
	}
	res, err := c.propose(ctx, tx, PlanParams{
		Title: short("Undo: "+old.Title, MaxTitleBytes), Rationale: out.rationale(id), Risk: old.Risk, Owner: old.Owner,
		Steps: steps, Resume: old.Resume, ProposedBy: by,
	}, nil, uuid.UUID(id))
	if err != nil {
		return nil, err
	}
	out.Run = res.Run
	return out, nil
}

// undo asks the tools, in reverse, for the calls that take back what committed.
func (c *Client) undo(ctx context.Context, tx pgx.Tx, old *Plan) (*Compensation, []PlanStep, error) {
	out := &Compensation{}
	var steps []PlanStep
	undone := map[string]any{}
	for i := len(old.Steps) - 1; i >= 0; i-- {
		s := old.Steps[i]
		refuse := func(code, reason string) {
			out.Refused = append(out.Refused, NotUndone{Step: i, Tool: s.Tool, Code: code, Reason: reason})
		}
		switch receipts.Outcome(s.Outcome) {
		case receipts.OK:
		case receipts.Started, receipts.Unknown:
			refuse(NotUndoneUnknown, "nobody knows whether it had an effect")
			continue
		default:
			continue // it had none
		}
		tool := c.tool(s.Tool)
		if tool == nil || tool.cfg.Undo == nil {
			reason := ErrNoInverse.Error()
			if tool == nil {
				reason = "this program does not have the tool"
			}
			refuse(NotUndoneNoInverse, reason)
			continue
		}
		call, err := c.askUndo(ctx, tx, tool, DoneStep{Owner: old.Owner, Step: i, Args: s.Args, Output: outputOf(s.Receipt), Undone: undone})
		var failed *undoError
		switch {
		case errors.Is(err, ErrMovedOn):
			refuse(NotUndoneMovedOn, storable(err.Error()))
		case errors.Is(err, ErrNoInverse), err == nil && call == nil:
			refuse(NotUndoneNoInverse, ErrNoInverse.Error())
		case errors.As(err, &failed):
			refuse(NotUndoneFailed, storable(failed.Error()))
		case err != nil:
			return nil, nil, fmt.Errorf("jobs: undo step %d of plan %s: %w", i, old.Run.ID, err)
		default:
			if call.Rationale == "" {
				call.Rationale = fmt.Sprintf("undoes step %d, %s", i, s.Tool)
			}
			steps, out.Undone = append(steps, *call), append(out.Undone, i)
		}
	}
	return out, steps, nil
}

// undoError is what a tool answered in place of a call that undoes.
type undoError struct{ err error }

func (e *undoError) Error() string { return e.err.Error() }
func (e *undoError) Unwrap() error { return e.err }

// askUndo asks a tool within a savepoint, so that an error of its SQL spoils this answer and no other. Any other error than an
// *undoError is of the transaction.
func (c *Client) askUndo(ctx context.Context, tx pgx.Tx, t *Tool, done DoneStep) (*PlanStep, error) {
	nested, err := tx.Begin(ctx)
	if err != nil {
		return nil, err
	}
	call, err := t.cfg.Undo(ctx, nested, done)
	if err == nil && call != nil {
		err = c.checkUndo(*call)
	}
	// It reads only: what it wrote nevertheless goes, too.
	if rollbackErr := nested.Rollback(ctx); rollbackErr != nil {
		return nil, errors.Join(rollbackErr, err)
	}
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil:
		return nil, &undoError{err}
	}
	return call, nil
}

func (c *Client) checkUndo(call PlanStep) error {
	t := c.tool(call.Tool)
	if t == nil {
		return invalid("Tool", call.Tool, "one of "+c.toolNames())
	}
	_, err := t.Check("Args", call.Args)
	return errors.Join(err, validateText("Rationale", call.Rationale, MaxRationaleBytes))
}

// storable makes an error's text fit for a rationale.
func storable(s string) string {
	return strings.ReplaceAll(short(strings.ToValidUTF8(s, "?"), 500), "\x00", "?")
}

// rationale tells whoever approves what stays as it is.
func (c *Compensation) rationale(id RunID) string {
	var b strings.Builder
	fmt.Fprintf(&b, "It undoes plan %s.", id)
	if len(c.Refused) > 0 {
		b.WriteString("\nThese steps of it stay as they are:")
	}
	for i, r := range c.Refused {
		if b.Len() > MaxRationaleBytes-1000 {
			fmt.Fprintf(&b, "\nand %d more", len(c.Refused)-i)
			break
		}
		fmt.Fprintf(&b, "\nstep %d, %s: %s: %s", r.Step, r.Tool, r.Code, r.Reason)
	}
	return b.String()
}

func outputOf(r *Receipt) json.RawMessage {
	if r == nil {
		return nil
	}
	return r.Output
}

// short cuts a text between two characters.
func short(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	return strings.ToValidUTF8(s[:limit], "")
}
