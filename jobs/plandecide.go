package jobs

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/weirqueue/weir/internal/fencing"
)

// ErrDigest: what is approved is not what is frozen. The error is a *DigestError.
var ErrDigest = errors.New("jobs: the digest is another plan's")

// DigestError says which digest the frozen plan has.
type DigestError struct {
	Run              RunID
	Approved, Frozen string
}

func (e *DigestError) Error() string {
	return fmt.Sprintf("jobs: the approval of plan %s is for the digest %.64q, and the plan's is %s: look at it again", e.Run, e.Approved, e.Frozen)
}

// Is makes it match ErrDigest.
func (e *DigestError) Is(target error) bool { return target == ErrDigest }

// ApprovePlan lets a plan go ahead. digest is Plan.Digest of what the approver has seen, and by names the approver as the
// application has authenticated them: neither may be empty. Exactly one approval is recorded. Approving a plan again that
// was approved, whatever became of it since, changes nothing and returns it as it stands, with its receipts.
//
// The error is an *InvalidError without an identity, a *DigestError for another digest, a *StateError when the plan was
// rejected, or expired or was canceled before anybody approved it, and ErrNotFound.
func (c *Client) ApprovePlan(ctx context.Context, id RunID, digest, by string) (*Plan, error) {
	if err := c.inTx(ctx, func(tx pgx.Tx) error { return c.ApprovePlanTx(ctx, tx, id, digest, by) }); err != nil {
		return nil, err
	}
	return c.GetPlan(ctx, id)
}

// ApprovePlanTx is ApprovePlan in the caller's transaction.
func (c *Client) ApprovePlanTx(ctx context.Context, tx pgx.Tx, id RunID, digest, by string) error {
	if err := validateWords("by", by, MaxPersonBytes); err != nil {
		return err
	}
	l, d, err := lockPlan(ctx, tx, id)
	switch {
	case err != nil:
		return err
	case d.digest != digest:
		return &DigestError{Run: id, Approved: digest, Frozen: d.digest}
	case d.decision == "approved":
		return nil // it answers from its record
	}
	ok, err := fencing.ApproveLocked(ctx, tx, l.Run, d.limit)
	if err != nil {
		return fmt.Errorf("jobs: %w", err)
	}
	if !ok {
		return refusedDecision(l, id, "approve")
	}
	if err := decide(ctx, tx, id, "approved", by, digest, ""); err != nil {
		return err
	}
	if err := fencing.Ring(ctx, tx, c.bells, fencing.Rung{Run: l.Run, Kind: l.Kind, Queue: l.Queue, Priority: l.Priority}); err != nil {
		return fmt.Errorf("jobs: approve plan %s: %w", id, err)
	}
	return nil
}

// RejectPlan refuses a plan for good. by names who does, as the application has authenticated them; reason may be empty, at
// most 8 KiB. Rejecting a plan again changes nothing. The errors are those of ApprovePlan, without the digest's.
func (c *Client) RejectPlan(ctx context.Context, id RunID, by, reason string) error {
	return c.inTx(ctx, func(tx pgx.Tx) error { return c.RejectPlanTx(ctx, tx, id, by, reason) })
}

// RejectPlanTx is RejectPlan in the caller's transaction.
func (c *Client) RejectPlanTx(ctx context.Context, tx pgx.Tx, id RunID, by, reason string) error {
	if err := errors.Join(validateWords("by", by, MaxPersonBytes), validateText("reason", reason, MaxRationaleBytes)); err != nil {
		return err
	}
	l, d, err := lockPlan(ctx, tx, id)
	switch {
	case err != nil:
		return err
	case d.decision == "rejected":
		return nil
	}
	ok, err := fencing.RejectLocked(ctx, tx, l.Run)
	if err != nil {
		return fmt.Errorf("jobs: %w", err)
	}
	if !ok {
		return refusedDecision(l, id, "reject")
	}
	return decide(ctx, tx, id, "rejected", by, "", reason)
}

// CancelPlan is Cancel for a plan: it ends as failed with the code "canceled", and the steps that committed stay so. It is
// an ErrNotFound for a run of another kind.
func (c *Client) CancelPlan(ctx context.Context, id RunID) error {
	return c.inTx(ctx, func(tx pgx.Tx) error {
		if _, _, err := lockPlan(ctx, tx, id); err != nil {
			return err
		}
		return c.CancelTx(ctx, tx, id)
	})
}

func refusedDecision(l fencing.Locked, id RunID, op string) error {
	e := &StateError{Run: id, Op: op, Status: Status(l.Status)}
	switch {
	case l.Status == fencing.Plan.Initial:
		e.Detail = "the time to decide is over"
	case l.Terminal && l.ErrorCode != "":
		e.Detail = l.ErrorCode
	}
	return e
}

// decision is what was said about a plan.
type decision struct {
	decision, digest string
	limit            time.Duration
}

var readDecision = fencing.Compile("read decision", `
select coalesce(p.decision, ''), encode(y.digest, 'hex'), extract(epoch from p.approval_limit)::float8
from weir.plan p join weir.payload y on y.run_id = p.run_id where p.run_id = @run::text::uuid`)

// lockPlan locks a plan and reads, in a statement after that, what was decided.
func lockPlan(ctx context.Context, tx pgx.Tx, id RunID) (fencing.Locked, decision, error) {
	var (
		d       decision
		seconds float64
	)
	l, found, err := fencing.LockRun(ctx, tx, uuid.UUID(id))
	if err != nil {
		return l, d, fmt.Errorf("jobs: %w", err)
	}
	if !found || l.Kind != KindPlan {
		return l, d, fmt.Errorf("plan %s: %w", id, ErrNotFound)
	}
	err = tx.QueryRow(ctx, readDecision.SQL, readDecision.Bind(fencing.Args{"run": id.String()})...).Scan(&d.decision, &d.digest, &seconds)
	if err != nil {
		return l, d, fmt.Errorf("jobs: look at plan %s: %w", id, err)
	}
	d.limit = time.Duration(seconds * float64(time.Second))
	return l, d, nil
}

var writeDecision = fencing.Compile("write decision", `
update weir.plan set decision = @decision::text, decided_by = @by::text, decided_at = clock_timestamp(),
    approved_digest = decode(nullif(@digest::text, ''), 'hex'), reason = nullif(@reason::text, '')
where run_id = @run::text::uuid and decision is null`)

func decide(ctx context.Context, tx pgx.Tx, id RunID, decision, by, digest, reason string) error {
	if _, err := hex.DecodeString(digest); err != nil {
		return &DigestError{Run: id, Approved: digest}
	}
	tag, err := tx.Exec(ctx, writeDecision.SQL, writeDecision.Bind(fencing.Args{
		"run": id.String(), "decision": decision, "by": by, "digest": digest, "reason": reason,
	})...)
	if err != nil {
		return fmt.Errorf("jobs: decide on plan %s: %w", id, err)
	}
	if tag.RowsAffected() != 1 {
		return fmt.Errorf("jobs: plan %s was decided before", id) // the run's lock and status keep this from happening
	}
	return nil
}

var eraseNames = fencing.Compile("erase names of a plan", `
update weir.plan set proposed_by = null, decided_by = case when decision is not null then '' end, reason = null
where run_id = @run and exists (select from weir.run r where r.id = @run and r.finished_at is not null)`)

// erasePlan removes who proposed and decided, and why, of a terminal plan whose lock the caller holds.
func erasePlan(ctx context.Context, tx pgx.Tx, l fencing.Locked) error {
	if l.Kind != KindPlan {
		return nil
	}
	if _, err := tx.Exec(ctx, eraseNames.SQL, eraseNames.Bind(fencing.Args{"run": l.Run})...); err != nil {
		return fmt.Errorf("jobs: erase the names of plan %s: %w", l.Run, err)
	}
	return nil
}
