package jobs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/weirqueue/weir/internal/delivery"
	"github.com/weirqueue/weir/internal/fencing"
	"github.com/weirqueue/weir/internal/reset"
)

// KindBranchReset is the kind of branch resets.
const KindBranchReset = reset.Kind

// Reset asks for the reset of a registered branch: to its parent as it is now, or as it was at a point in time.
type Reset struct {
	Branch string `json:"branch"`
	// PointInTime is nil for now. It must lie in the past, by the database's clock, and within the branch's retention.
	// pgtemplate has no past.
	PointInTime *time.Time `json:"point_in_time,omitempty"`
}

// ResetBranch is ResetBranchTx in a transaction of its own. When the answer to its COMMIT is lost, it returns an error
// although the run may exist: give an idempotency key and call it again.
func (c *Client) ResetBranch(ctx context.Context, r Reset, opts *Opts) (*EnqueueResult, error) {
	var res *EnqueueResult
	err := c.inTx(ctx, func(tx pgx.Tx) (err error) {
		res, err = c.ResetBranchTx(ctx, tx, r, opts)
		return err
	})
	if err != nil {
		return nil, err
	}
	return res, nil
}

// ResetBranchTx writes a run that resets a branch, with its doorbell, in the caller's transaction. A branch has one
// reset in flight: the same idempotency key answers with the same run, and everybody else gets an *InFlightError that
// names it. An unknown branch is ErrNoBranch; what is wrong otherwise is an *InvalidError; a key that was used for
// another branch or point in time is a *KeyReusedError. In all these cases nothing was written.
//
// Of opts, ExclusiveKey, MaxAttempts and ScheduledAt are not for resets: the branch is the exclusive key, an operation
// is never issued again, and a reset that waits for its time would hold its branch.
func (c *Client) ResetBranchTx(ctx context.Context, tx pgx.Tx, r Reset, opts *Opts) (*EnqueueResult, error) {
	if err := r.validate(opts); err != nil {
		return nil, err
	}
	asked, err := delivery.Canonical(r.utc())
	if err != nil {
		return nil, err
	}
	b, err := c.branchForReset(ctx, tx, r, opts, delivery.Digest(asked))
	if err != nil {
		return nil, err
	}
	req := Request{
		kind: KindBranchReset, queue: c.cfg.BranchQueue, need: reset.Need(b.Provider), maxAttempts: MaxFailuresLimit, asked: asked,
	}
	if req.body, req.digest, err = b.payload(r.PointInTime).Encode(); err != nil {
		return nil, err
	}
	o := Opts{}
	if opts != nil {
		o = *opts
	}
	o.ExclusiveKey = r.Branch
	res, err := c.EnqueueTx(ctx, tx, req, &o)
	var taken *ExclusiveError
	if errors.As(err, &taken) {
		return nil, &InFlightError{Branch: r.Branch, Run: taken.Run}
	}
	return res, err
}

func (r Reset) utc() Reset {
	if r.PointInTime != nil {
		at := r.PointInTime.UTC()
		r.PointInTime = &at
	}
	return r
}

func (r Reset) validate(opts *Opts) error {
	faults := []error{validateText("Reset.Branch", r.Branch, MaxBranchBytes)}
	if r.PointInTime != nil {
		if y := r.PointInTime.Year(); y < 2000 || y > 9999 {
			faults = append(faults, invalid("Reset.PointInTime", r.PointInTime.Format(time.RFC3339Nano), "between the years 2000 and 9999"))
		}
	}
	if opts != nil {
		if opts.ExclusiveKey != "" {
			faults = append(faults, invalid("Opts.ExclusiveKey", opts.ExclusiveKey, "empty: the branch is the exclusive key of its resets"))
		}
		if opts.MaxAttempts != 0 {
			faults = append(faults, invalid("Opts.MaxAttempts", fmt.Sprint(opts.MaxAttempts), "0: a reset is issued once, and polled up to a limit of time"))
		}
		if !opts.ScheduledAt.IsZero() {
			faults = append(faults, invalid("Opts.ScheduledAt", opts.ScheduledAt.Format(time.RFC3339Nano), "zero: a reset that waits would hold its branch"))
		}
	}
	return errors.Join(faults...)
}

// The share lock keeps the registration as it is until the run is there.
var branchForReset = fencing.Compile("branch for a reset", `
select `+branchColumns+` from weir.branch where name = @name for key share`)

var pointInTime = fencing.Compile("point in time", `
select @at::timestamptz >= clock_timestamp(),
    coalesce(@at::timestamptz < clock_timestamp() - (select retention from weir.branch where name = @name), false)`)

func (c *Client) branchForReset(ctx context.Context, tx pgx.Tx, r Reset, opts *Opts, digest []byte) (Branch, error) {
	b, err := oneBranch(ctx, tx, branchForReset, fencing.Args{"name": r.Branch})
	if err != nil || r.PointInTime == nil {
		return b, err
	}
	if b.Provider == ProviderPGTemplate {
		return b, invalid("Reset.PointInTime", r.PointInTime.Format(time.RFC3339Nano), "nil: pgtemplate has no past")
	}
	var future, gone bool
	err = tx.QueryRow(ctx, pointInTime.SQL, pointInTime.Bind(fencing.Args{"at": *r.PointInTime, "name": r.Branch})...).Scan(&future, &gone)
	if err != nil {
		return b, fmt.Errorf("jobs: reset branch %q: %w", r.Branch, err)
	}
	if !future && !gone {
		return b, nil
	}
	// A repeat answers also when the point in time has meanwhile left the retention.
	if gone && opts != nil && opts.IdempotencyKey != "" {
		stands, err := keyStands(ctx, tx, KindBranchReset, opts.IdempotencyKey, digest)
		if err != nil || stands {
			return b, err
		}
	}
	if future {
		return b, invalid("Reset.PointInTime", r.PointInTime.Format(time.RFC3339Nano), "in the past")
	}
	return b, invalid("Reset.PointInTime", r.PointInTime.Format(time.RFC3339Nano), fmt.Sprintf("at most %s ago, which is the branch's retention", b.Retention))
}

// CancelBranchReset ends a reset. One that was not issued yet is canceled when it returns. Otherwise the cancellation is
// requested: the provider is asked to stop where it can, the run is canceled when the provider's operations are final,
// and it has succeeded if they finished before. Errors are those of Cancel; a run of another kind is ErrNotFound.
func (c *Client) CancelBranchReset(ctx context.Context, id RunID) error {
	run, err := c.Get(ctx, id)
	if err != nil {
		return err
	}
	if run.Kind != KindBranchReset {
		return fmt.Errorf("run %s is no branch reset: %w", id, ErrNotFound)
	}
	return c.Cancel(ctx, id)
}

// BranchReset is a reset as it stood when it was read.
type BranchReset struct {
	Run *Run `json:"run"`
	// Branch and PointInTime are what was asked for. Branch stays when the payload was erased.
	Branch      string     `json:"branch"`
	Provider    string     `json:"provider,omitempty"`
	Target      string     `json:"target,omitempty"`
	Parent      string     `json:"parent,omitempty"`
	PointInTime *time.Time `json:"point_in_time,omitempty"`
	// Operations are the provider's, oldest first. Empty until the provider has named some.
	Operations []BranchOperation `json:"operations,omitempty"`
}

// BranchOperation is an operation of a provider, with every status that was observed.
type BranchOperation struct {
	ID     string `json:"id"`
	Action string `json:"action,omitempty"`
	// Status is the provider's own word, State what it means (see package branch), and Final says that it is its last.
	Status      string         `json:"status"`
	State       string         `json:"state"`
	Final       bool           `json:"final"`
	Error       string         `json:"error,omitempty"`
	FirstSeenAt time.Time      `json:"first_seen_at"`
	LastSeenAt  time.Time      `json:"last_seen_at"`
	Seen        []StatusSeenAt `json:"seen"`
}

// StatusSeenAt is a status with the time when it was first observed.
type StatusSeenAt struct {
	Status string    `json:"status"`
	At     time.Time `json:"at"`
}

var resetPayload = fencing.Compile("payload of a reset", `
select coalesce(r.exclusive_key, ''), p.body, p.digest from weir.run r left join weir.payload p on p.run_id = r.id
where r.id = @run::uuid and r.kind = 'branch_reset'`)

// GetBranchReset reads a reset with the operations of its provider. It returns ErrNotFound when there is no such run, or
// when it is of another kind.
func (c *Client) GetBranchReset(ctx context.Context, id RunID) (*BranchReset, error) {
	run, err := c.Get(ctx, id)
	if err != nil {
		return nil, err
	}
	out := &BranchReset{Run: run}
	var body, digest []byte
	err = c.pool.QueryRow(ctx, resetPayload.SQL, resetPayload.Bind(fencing.Args{"run": id.String()})...).Scan(&out.Branch, &body, &digest)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, fmt.Errorf("run %s is no branch reset: %w", id, ErrNotFound)
	}
	if err != nil {
		return nil, fmt.Errorf("jobs: get branch reset %s: %w", id, err)
	}
	if p, err := reset.Decode(body, digest); err == nil {
		out.Provider, out.Target, out.Parent, out.PointInTime = p.Provider, p.Target, p.Parent, p.PointInTime
	}
	list, err := reset.List(ctx, c.pool, uuid.UUID(id))
	if err != nil {
		return nil, fmt.Errorf("jobs: %w", err)
	}
	for _, o := range list {
		op := BranchOperation{
			ID: o.ID, Action: o.Action, Status: o.Status, State: o.State, Final: o.Final, Error: o.Error,
			FirstSeenAt: o.FirstSeenAt, LastSeenAt: o.LastSeenAt,
		}
		for _, s := range o.Seen {
			op.Seen = append(op.Seen, StatusSeenAt(s))
		}
		out.Operations = append(out.Operations, op)
	}
	return out, nil
}

var resetsOfBranch = fencing.Compile("resets of a branch", `
select `+runColumns+` from weir.run r where r.kind = 'branch_reset' and r.exclusive_key = @name
order by r.exclusive_key desc, r.id desc limit @limit::int`)

// ResetsOfBranch lists the newest resets of a branch, newest first, 1 to 500 of them; 0 is 50.
func (c *Client) ResetsOfBranch(ctx context.Context, name string, limit int) ([]*Run, error) {
	if limit == 0 {
		limit = defaultPageSize
	}
	if limit < 1 || limit > maxPageSize {
		return nil, invalid("limit", fmt.Sprint(limit), fmt.Sprintf("from 1 to %d, or 0 for %d", maxPageSize, defaultPageSize))
	}
	if err := validateText("name", name, MaxBranchBytes); err != nil {
		return nil, err
	}
	rows, err := c.pool.Query(ctx, resetsOfBranch.SQL, resetsOfBranch.Bind(fencing.Args{"name": name, "limit": limit})...)
	if err != nil {
		return nil, fmt.Errorf("jobs: resets of branch %q: %w", name, err)
	}
	runs, err := pgx.CollectRows(rows, scanRun)
	if err != nil {
		return nil, fmt.Errorf("jobs: resets of branch %q: %w", name, err)
	}
	return runs, nil
}

// keyStands reports that a key stands for what has this digest.
func keyStands(ctx context.Context, tx pgx.Tx, kind, key string, digest []byte) (bool, error) {
	found, err := lookUpKeys(ctx, tx, fencing.Args{"kinds": []string{kind}, "keys": []string{key}})
	if err != nil {
		return false, err
	}
	f := found[[2]string{kind, key}]
	return f != nil && bytes.Equal(f.digest, digest), nil
}
