package jobs

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/weirqueue/weir/internal/fencing"
	"github.com/weirqueue/weir/internal/plan"
	"github.com/weirqueue/weir/internal/receipts"
)

// OutcomeNotRun is the outcome of a step that nobody began.
const OutcomeNotRun = "not_run"

// Plan is a plan as it stood when it was read.
type Plan struct {
	Run Run `json:"run"`
	// Erased says that the personal data was removed; the texts and the steps are gone with it.
	Erased    bool   `json:"erased,omitempty"`
	Title     string `json:"title"`
	Rationale string `json:"rationale,omitempty"`
	Risk      Risk   `json:"risk"`
	Owner     string `json:"owner"`
	Resume    bool   `json:"resume"`
	// Digest is the SHA-256 of the frozen bytes, in hexadecimal: what ApprovePlan asks for.
	Digest string `json:"digest"`
	// ExpiresAt is until when it waits to be approved, or its approval to be taken up. Overdue says that it had passed when
	// the plan was read, and nobody has ended it yet; see GetPlan.
	ExpiresAt *time.Time `json:"expires_at,omitempty"`
	Overdue   bool       `json:"overdue,omitempty"`
	// Interrupted says that its worker's lease had run out, and nobody has ended it yet; see GetPlan.
	Interrupted bool   `json:"interrupted,omitempty"`
	ProposedBy  string `json:"proposed_by,omitempty"`
	// Compensates is the plan whose steps this one undoes; CompensatedBy the newest that undoes this one's.
	Compensates   *RunID `json:"compensates,omitempty"`
	CompensatedBy *RunID `json:"compensated_by,omitempty"`
	// Decision is approved or rejected; empty while nobody has decided.
	Decision  string          `json:"decision,omitempty"`
	DecidedBy string          `json:"decided_by,omitempty"`
	DecidedAt *time.Time      `json:"decided_at,omitempty"`
	Reason    string          `json:"reason,omitempty"`
	Steps     []PlanStepState `json:"steps"`
}

// PlanStepState is a step with what came of it.
type PlanStepState struct {
	PlanStep
	// Effect is the tool's.
	Effect Effect `json:"effect"`
	// Description is the tool's, where this client has the tool by the declaration that the arguments were checked against.
	Description string `json:"description,omitempty"`
	// Outcome is not_run, started, ok, failed or unknown.
	Outcome string `json:"outcome"`
	// Receipt is nil where there is none.
	Receipt *Receipt `json:"receipt,omitempty"`
}

var getPlan = fencing.Compile("get plan", `
select y.body, y.digest, r.expires_at, r.status in ('pending', 'approved') and r.expires_at <= clock_timestamp(),
    coalesce(p.proposed_by, ''), p.compensates::text,
    (select c.run_id::text from weir.plan c where c.compensates = p.run_id order by c.run_id desc limit 1),
    coalesce(p.decision, ''), coalesce(p.decided_by, ''), p.decided_at, coalesce(p.reason, '')
from weir.plan p join weir.run r on r.id = p.run_id join weir.payload y on y.run_id = p.run_id where p.run_id = @run::text::uuid`)

// GetPlan reads a plan. One whose worker died, or whose time is over, is ended first, as the sweep would do it, unless
// somebody holds its row or no connection is free: then Interrupted or Overdue says so. It returns ErrNotFound when there is
// no such plan.
func (c *Client) GetPlan(ctx context.Context, id RunID) (*Plan, error) {
	p, err := c.readPlan(ctx, c.pool, id)
	if err == nil && c.healPlan(ctx, p) {
		return c.readPlan(ctx, c.pool, id)
	}
	return p, err
}

// GetPlanTx is GetPlan in the caller's transaction, which may be read-only: a plan is ended on a connection of its own, and
// shown as the transaction sees it.
func (c *Client) GetPlanTx(ctx context.Context, tx pgx.Tx, id RunID) (*Plan, error) {
	p, err := c.readPlan(ctx, tx, id)
	if err == nil && c.healPlan(ctx, p) {
		return c.readPlan(ctx, tx, id)
	}
	return p, err
}

const (
	// healTime bounds what a reader spends on healing.
	healTime = 2 * time.Second
	// healMaxReaps is the fleet's default: a reader does not know its configuration.
	healMaxReaps = 5
)

// healPlan ends the lease of a plan whose owner is gone, and a plan whose time is over. It waits neither for a row nor for a
// connection.
func (c *Client) healPlan(ctx context.Context, p *Plan) (healed bool) {
	id := p.Run.ID
	if !p.Interrupted && !p.Overdue {
		return false
	}
	if stat := c.pool.Stat(); stat.IdleConns() == 0 && stat.TotalConns() >= stat.MaxConns() {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, healTime)
	defer cancel()
	var err error
	if p.Interrupted {
		reaper := fencing.Reaper{DB: c.pool, Bells: c.bells, Settle: receipts.SettleUnknown, MaxReaps: healMaxReaps, Limit: 1}
		healed, err = reaper.ReapRun(ctx, KindPlan, uuid.UUID(id))
	} else {
		healed, err = fencing.ExpirePlan(ctx, c.pool, uuid.UUID(id))
	}
	if err != nil {
		c.cfg.Logger.WarnContext(ctx, "weir: a reader could not end a plan; the sweep will", "run", id, "error", err)
	}
	return healed
}

func (c *Client) readPlan(ctx context.Context, db fencing.DB, id RunID) (*Plan, error) {
	run, err := getIn(ctx, db, id)
	if err != nil {
		return nil, err
	}
	p := &Plan{Run: *run, Interrupted: run.LeaseExpired}
	var (
		body, digest             []byte
		compensates, compensated *string
	)
	err = db.QueryRow(ctx, getPlan.SQL, getPlan.Bind(fencing.Args{"run": id.String()})...).Scan(&body, &digest, &p.ExpiresAt, &p.Overdue,
		&p.ProposedBy, &compensates, &compensated, &p.Decision, &p.DecidedBy, &p.DecidedAt, &p.Reason)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, fmt.Errorf("plan %s: %w", id, ErrNotFound)
	}
	if err != nil {
		return nil, fmt.Errorf("jobs: get plan %s: %w", id, err)
	}
	p.Digest = hex.EncodeToString(digest)
	if p.Compensates, err = runIDOf(compensates); err != nil {
		return nil, err
	}
	if p.CompensatedBy, err = runIDOf(compensated); err != nil {
		return nil, err
	}
	done, err := receipts.List(ctx, db, uuid.UUID(id))
	if err != nil {
		return nil, fmt.Errorf("jobs: %w", err)
	}
	if body == nil {
		p.Erased = true
		return p, nil
	}
	// A digest that does not match is for whoever carries it out to refuse; a reader shows what is there.
	var f plan.Frozen
	if err := json.Unmarshal(body, &f); err != nil {
		return nil, fmt.Errorf("jobs: plan %s cannot be read: %w", id, err)
	}
	p.Title, p.Rationale, p.Risk, p.Owner, p.Resume = f.Title, f.Rationale, Risk(f.Risk), f.Owner, f.Resume
	byIndex := map[int]Receipt{}
	for _, r := range done {
		byIndex[r.Step.Index] = receiptOf(r)
	}
	for i, s := range f.Steps {
		state := PlanStepState{
			PlanStep: PlanStep{Tool: s.Tool, Args: s.Args, Rationale: s.Rationale}, Effect: Effect(s.Effect), Outcome: OutcomeNotRun,
		}
		if t := c.tool(s.Tool); t != nil && t.Need() == s.Need {
			state.Description = t.Description()
		}
		if r, ok := byIndex[i]; ok {
			state.Outcome, state.Receipt = r.Outcome, &r
		}
		p.Steps = append(p.Steps, state)
	}
	return p, nil
}

func runIDOf(s *string) (*RunID, error) {
	if s == nil {
		return nil, nil
	}
	id, err := ParseRunID(*s)
	return &id, err
}

// WaitPlan returns the plan when it is terminal: executed, failed, rejected or expired. It waits as Wait does, and heals as
// GetPlan does. When ctx ends first, it returns the plan as it was seen last, with ctx's error.
func (c *Client) WaitPlan(ctx context.Context, id RunID) (*Plan, error) {
	pause := firstWait
	timer := time.NewTimer(pause)
	defer timer.Stop()
	var last *Plan
	for {
		p, err := c.GetPlan(ctx, id)
		switch {
		case err != nil && ctx.Err() != nil:
			return last, fmt.Errorf("jobs: wait for plan %s: %w", id, context.Cause(ctx))
		case err != nil:
			return last, err
		case p.Run.Terminal():
			return p, nil
		}
		last = p
		timer.Reset(pause)
		select {
		case <-ctx.Done():
			return last, fmt.Errorf("jobs: wait for plan %s: %w", id, context.Cause(ctx))
		case <-timer.C:
		}
		pause = min(pause*3/2, longestWait)
	}
}
