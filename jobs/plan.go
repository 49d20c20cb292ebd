package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/weirqueue/weir/internal/delivery"
	"github.com/weirqueue/weir/internal/fencing"
	"github.com/weirqueue/weir/internal/plan"
)

// KindPlan is the kind of approved plans.
const KindPlan = plan.Kind

// The statuses of plans, beside StatusPending and StatusFailed. Interrupted and canceled plans are failed, with that code.
const (
	StatusApproved  Status = "approved"
	StatusExecuting Status = "executing"
	StatusExecuted  Status = "executed"
	StatusRejected  Status = "rejected"
	StatusExpired   Status = "expired"
)

// Limits of a plan, beside MaxSteps and MaxPayloadBytes.
const (
	MaxTitleBytes     = 200
	MaxRationaleBytes = 8 << 10
	MaxPersonBytes    = 200

	// DefaultApprovalLimit is how long a plan waits to be approved, and an approval to be taken up.
	DefaultApprovalLimit = 15 * time.Minute
	minApprovalLimit     = time.Second
	maxApprovalLimit     = 30 * 24 * time.Hour
)

// Risk is how much harm a plan could do, as its proposer sees it. It is shown to whoever approves.
type Risk string

// The tiers.
const (
	RiskLow    Risk = "low"
	RiskMedium Risk = "medium"
	RiskHigh   Risk = "high"
)

// PlanStep is one call of a tool.
type PlanStep struct {
	// Tool is the name of one of Config.Tools.
	Tool string `json:"tool"`
	// Args are JSON that the tool's schema allows. Numbers keep every digit.
	Args json.RawMessage `json:"args"`
	// Rationale says why. At most 8 KiB; may be empty.
	Rationale string `json:"rationale,omitempty"`
}

// PlanParams is what ProposePlan freezes.
type PlanParams struct {
	// Title is required, at most 200 bytes.
	Title string
	// Rationale says why. At most 8 KiB; may be empty.
	Rationale string
	// Risk is required.
	Risk Risk
	// Owner is on whose behalf the tools act: for the desk tools, whose documents they change. It is required.
	Owner string
	// Steps are carried out in this order, 1 to 100 of them. All together the plan has at most 1 MiB.
	Steps []PlanStep
	// Resume lets another worker go on after the last receipt when a worker dies in the middle. Otherwise such a plan is
	// failed with the code "interrupted".
	Resume bool
	// ApprovalLimit is how long it waits for an approval, and the approval for a worker. Defaults to 15 min; 1 s to 30 days.
	ApprovalLimit time.Duration
	// ProposedBy says who proposes. May be empty.
	ProposedBy string
}

// ProposePlan is ProposePlanTx in a transaction of its own. When the answer to its COMMIT is lost, it returns an error
// although the plan may exist: give an idempotency key and call it again.
func (c *Client) ProposePlan(ctx context.Context, p PlanParams, opts *Opts) (*EnqueueResult, error) {
	var res *EnqueueResult
	err := c.inTx(ctx, func(tx pgx.Tx) (err error) {
		res, err = c.ProposePlanTx(ctx, tx, p, opts)
		return err
	})
	if err != nil {
		return nil, err
	}
	return res, nil
}

// ProposePlanTx freezes a plan in the caller's transaction. Nothing of it happens until a person approves it. Whatever is
// wrong is found before anything is written, names step and field, and is one or more *InvalidError. Of opts,
// MaxAttempts, ExclusiveKey and ScheduledAt must not be set. An idempotency key that was used for another plan is a
// *KeyReusedError.
func (c *Client) ProposePlanTx(ctx context.Context, tx pgx.Tx, p PlanParams, opts *Opts) (*EnqueueResult, error) {
	return c.propose(ctx, tx, p, opts, uuid.Nil)
}

func (c *Client) propose(ctx context.Context, tx pgx.Tx, p PlanParams, opts *Opts, compensates uuid.UUID) (*EnqueueResult, error) {
	frozen, needs, err := c.freeze(&p)
	o := opts.withDefaults(c.cfg.PlanQueue, 1)
	if err := errors.Join(err, o.validate(), validatePlanOpts(opts)); err != nil {
		return nil, err
	}
	body, _, err := frozen.Encode()
	if err != nil {
		return nil, fmt.Errorf("jobs: %w", err)
	}
	if len(body) > MaxPayloadBytes {
		return nil, invalid("Plan", fmt.Sprintf("%d bytes", len(body)), fmt.Sprintf("at most %d bytes of JSON", MaxPayloadBytes))
	}
	id, err := newID()
	if err != nil {
		return nil, err
	}
	if o.IdempotencyKey != "" {
		taken, err := takeKeys(ctx, tx, []keyRequest{{kind: KindPlan, key: o.IdempotencyKey, run: id, digest: delivery.Digest(body)}})
		if err != nil {
			return nil, err
		}
		if f := taken[0]; f != nil && f.reused {
			return nil, &KeyReusedError{Kind: KindPlan, Key: o.IdempotencyKey, Run: RunID(f.run)}
		} else if f != nil {
			refs, err := existingRuns(ctx, tx, taken)
			if err != nil {
				return nil, err
			}
			return &EnqueueResult{Run: refs[f.run], Existing: true}, nil
		}
	}
	var undoes *string
	if compensates != uuid.Nil {
		s := compensates.String()
		undoes = &s
	}
	if _, err := tx.Exec(ctx, insertPlan.SQL, insertPlan.Bind(fencing.Args{
		"run": id.String(), "queue": o.Queue, "priority": o.Priority, "needs": needs, "tags": o.Tags, "metadata": string(o.Metadata),
		"limit": interval(p.ApprovalLimit), "resumable": p.Resume, "body": string(body), "proposed_by": p.ProposedBy, "compensates": undoes,
	})...); err != nil {
		return nil, fmt.Errorf("jobs: propose a plan: %w", err)
	}
	return &EnqueueResult{Run: RunRef{ID: RunID(id), Status: StatusPending}}, nil
}

var insertPlan = fencing.Compile("insert plan", `
with made as (
    insert into weir.run (id, root_id, kind, status, queue, priority, max_failures, needs, tags, metadata, expires_at, resumable)
    values (@run::text::uuid, @run::text::uuid, 'plan', 'pending', @queue::text, @priority::smallint, 1, @needs::text[], @tags::text[],
        @metadata::text::jsonb, clock_timestamp() + @limit::text::interval, @resumable::boolean)
    returning id
), frozen as (
    insert into weir.payload (run_id, body, digest)
    select id, convert_to(@body::text, 'UTF8'), sha256(convert_to(@body::text, 'UTF8')) from made
)
insert into weir.plan (run_id, approval_limit, proposed_by, compensates)
select id, @limit::text::interval, nullif(@proposed_by::text, ''), @compensates::text::uuid from made`)

// interval is a duration as a parameter that every mode of pgx can send.
func interval(d time.Duration) string {
	return strconv.FormatInt(d.Microseconds(), 10) + " microseconds"
}

func validatePlanOpts(o *Opts) error {
	if o == nil {
		return nil
	}
	var faults []error
	if o.MaxAttempts != 0 {
		faults = append(faults, invalid("Opts.MaxAttempts", strconv.Itoa(o.MaxAttempts), "0: a plan is never tried again"))
	}
	if o.ExclusiveKey != "" {
		faults = append(faults, invalid("Opts.ExclusiveKey", o.ExclusiveKey, "empty: plans have none"))
	}
	if !o.ScheduledAt.IsZero() {
		faults = append(faults, invalid("Opts.ScheduledAt", o.ScheduledAt.String(), "zero: a plan is due when it is approved"))
	}
	return errors.Join(faults...)
}

// freeze checks a plan and returns what is approved, with what a worker must offer.
func (c *Client) freeze(p *PlanParams) (plan.Frozen, []string, error) {
	if p.ApprovalLimit == 0 {
		p.ApprovalLimit = DefaultApprovalLimit
	}
	faults := []error{
		validateWords("Plan.Title", p.Title, MaxTitleBytes), validateText("Plan.Rationale", p.Rationale, MaxRationaleBytes),
		validateWords("Plan.Owner", p.Owner, MaxPersonBytes), validateText("Plan.ProposedBy", p.ProposedBy, MaxPersonBytes),
	}
	if p.Risk != RiskLow && p.Risk != RiskMedium && p.Risk != RiskHigh {
		faults = append(faults, invalid("Plan.Risk", string(p.Risk), "low, medium or high"))
	}
	if p.ApprovalLimit < minApprovalLimit || p.ApprovalLimit > maxApprovalLimit {
		faults = append(faults, invalid("Plan.ApprovalLimit", p.ApprovalLimit.String(), fmt.Sprintf("from %s to %s, or 0 for %s", minApprovalLimit, maxApprovalLimit, DefaultApprovalLimit)))
	}
	if n := len(p.Steps); n < 1 || n > MaxSteps {
		faults = append(faults, invalid("Plan.Steps", strconv.Itoa(n)+" steps", fmt.Sprintf("from 1 to %d steps", MaxSteps)))
		return plan.Frozen{}, nil, errors.Join(faults...)
	}
	frozen := plan.Frozen{Title: p.Title, Rationale: p.Rationale, Risk: string(p.Risk), Owner: p.Owner, Resume: p.Resume}
	var needs []string
	seen := map[string]bool{}
	for i, s := range p.Steps {
		field := fmt.Sprintf("Plan.Steps[%d]", i)
		faults = append(faults, validateText(field+".Rationale", s.Rationale, MaxRationaleBytes))
		tool := c.tool(s.Tool)
		if tool == nil {
			faults = append(faults, invalid(field+".Tool", s.Tool, "one of "+c.toolNames()))
			continue
		}
		if len(s.Args) > MaxPayloadBytes {
			faults = append(faults, invalid(field+".Args", fmt.Sprintf("%d bytes", len(s.Args)), fmt.Sprintf("at most %d bytes of JSON", MaxPayloadBytes)))
			continue
		}
		args, err := tool.Check(field+".Args", s.Args)
		if err != nil {
			faults = append(faults, err)
			continue
		}
		frozen.Steps = append(frozen.Steps, plan.Step{
			Tool: s.Tool, Effect: string(tool.Effect()), Args: args, Rationale: s.Rationale, Need: tool.Need(),
		})
		if !seen[tool.Need()] {
			seen[tool.Need()] = true
			needs = append(needs, tool.Need())
		}
	}
	return frozen, needs, errors.Join(faults...)
}

func (c *Client) tool(name string) *Tool {
	for _, t := range c.cfg.Tools {
		if t.Name() == name {
			return t
		}
	}
	return nil
}

func (c *Client) toolNames() string {
	if len(c.cfg.Tools) == 0 {
		return "Config.Tools, which has none"
	}
	names := make([]string, len(c.cfg.Tools))
	for i, t := range c.cfg.Tools {
		names[i] = t.Name()
	}
	return strings.Join(names, ", ")
}

// validateWords is validateText for what must not be blank.
func validateWords(field, s string, limit int) error {
	if blank.MatchString(s) {
		return invalid(field, s, fmt.Sprintf("not blank, and at most %d bytes", limit))
	}
	return validateText(field, s, limit)
}
