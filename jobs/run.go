package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/weirqueue/weir/internal/fencing"
	"github.com/weirqueue/weir/internal/receipts"
)

// Status is where a run stands. Each kind has its own vocabulary.
type Status string

// The statuses of an application's own kinds.
const (
	StatusQueued    Status = "queued"
	StatusRunning   Status = "running"
	StatusSucceeded Status = "succeeded"
	StatusCanceled  Status = "canceled"
	// StatusFailed is shared with deliveries: a step refused, or the budget is spent.
	StatusFailed Status = "failed"
)

// The statuses of deliveries, beside StatusFailed: refused for good, or canceled.
const (
	StatusPending    Status = "pending"
	StatusProcessing Status = "processing"
	StatusSent       Status = "sent"
	StatusDead       Status = "dead" // retries exhausted; an operator may redrive it
)

// KindDelivery is the kind of notification deliveries.
const KindDelivery = fencing.KindDelivery

// Run is a run as it stood when it was read. All times are the database's.
type Run struct {
	ID     RunID  `json:"id"`
	Kind   string `json:"kind"`
	Status Status `json:"status"`
	// Attempt is the fencing token: raised by every claim and by everything that takes the run from its owner.
	Attempt int64 `json:"attempt"`
	// Failures is how many tries failed, of at most MaxFailures. Reaps is how often in a row the run's owner vanished.
	Failures    int `json:"failures"`
	MaxFailures int `json:"max_failures"`
	Reaps       int `json:"reaps"`
	// LeaseOwner and LeaseExpiresAt are set while somebody owns the run.
	LeaseOwner     string     `json:"lease_owner,omitempty"`
	LeaseExpiresAt *time.Time `json:"lease_expires_at,omitempty"`
	// LeaseExpired says that the lease had run out when the run was read, so the reaper will end it.
	LeaseExpired bool `json:"lease_expired,omitempty"`
	// NextAttemptAt is when the run is due. It is nil while the run is owned or terminal.
	NextAttemptAt     *time.Time `json:"next_attempt_at,omitempty"`
	StepDeadlineAt    *time.Time `json:"step_deadline_at,omitempty"`
	ClaimedAt         *time.Time `json:"claimed_at,omitempty"`
	CancelRequestedAt *time.Time `json:"cancel_requested_at,omitempty"`
	BlockedReason     string     `json:"blocked_reason,omitempty"`
	// DoorbellID is the River job that rings for the run, or that claimed it.
	DoorbellID *int64   `json:"doorbell_id,omitempty"`
	Queue      string   `json:"queue"`
	Priority   int      `json:"priority"`
	Tags       []string `json:"tags,omitempty"`
	// Metadata is what the enqueuer said beside the payload; Weir never reads it.
	Metadata     json.RawMessage `json:"metadata,omitempty"`
	Output       json.RawMessage `json:"output,omitempty"`
	ErrorCode    string          `json:"error_code,omitempty"`
	ErrorMessage string          `json:"error_message,omitempty"`
	CreatedAt    time.Time       `json:"created_at"`
	FinishedAt   *time.Time      `json:"finished_at,omitempty"`
}

// Terminal reports whether the run is finished. Only a redrive leaves a terminal status.
func (r *Run) Terminal() bool { return r.FinishedAt != nil }

const runColumns = `r.id, r.kind, r.status, r.attempt, r.failures, r.max_failures, r.reaps, coalesce(r.lease_owner, ''),
    r.lease_expires_at, coalesce(r.lease_expires_at < clock_timestamp(), false),
    case when r.next_attempt_at < 'infinity' then r.next_attempt_at end, r.step_deadline_at, r.claimed_at,
    r.cancel_requested_at, coalesce(r.blocked_reason, ''), r.doorbell_id, r.queue, r.priority, r.tags, r.metadata::text,
    r.output::text, coalesce(r.error_code, ''), coalesce(r.error_message, ''), r.created_at, r.finished_at`

func scanRun(row pgx.CollectableRow) (*Run, error) {
	var (
		r                Run
		id               uuid.UUID
		metadata, output *string
	)
	err := row.Scan(&id, &r.Kind, &r.Status, &r.Attempt, &r.Failures, &r.MaxFailures, &r.Reaps, &r.LeaseOwner,
		&r.LeaseExpiresAt, &r.LeaseExpired, &r.NextAttemptAt, &r.StepDeadlineAt, &r.ClaimedAt, &r.CancelRequestedAt,
		&r.BlockedReason, &r.DoorbellID, &r.Queue, &r.Priority, &r.Tags, &metadata, &output, &r.ErrorCode, &r.ErrorMessage,
		&r.CreatedAt, &r.FinishedAt)
	r.ID = RunID(id)
	if metadata != nil && *metadata != "{}" {
		r.Metadata = json.RawMessage(*metadata)
	}
	if output != nil {
		r.Output = json.RawMessage(*output)
	}
	return &r, err
}

var getRun = fencing.Compile("get run", "select "+runColumns+" from weir.run r where r.id = @run::uuid")

// Get reads a run. It returns ErrNotFound when there is none, also when it was cleaned away.
func (c *Client) Get(ctx context.Context, id RunID) (*Run, error) {
	return getIn(ctx, c.pool, id)
}

func getIn(ctx context.Context, db fencing.DB, id RunID) (*Run, error) {
	rows, err := db.Query(ctx, getRun.SQL, getRun.Bind(fencing.Args{"run": id.String()})...)
	if err != nil {
		return nil, fmt.Errorf("jobs: get run %s: %w", id, err)
	}
	run, err := pgx.CollectExactlyOneRow(rows, scanRun)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, fmt.Errorf("run %s: %w", id, ErrNotFound)
	}
	if err != nil {
		return nil, fmt.Errorf("jobs: get run %s: %w", id, err)
	}
	return run, nil
}

// Receipt says what one step of a run did. It was committed together with the effect that it describes, or, for an
// effect outside the database, before (started) and after it.
type Receipt struct {
	StepIndex int    `json:"step_index"`
	StepName  string `json:"step_name"`
	// Effect is transactional, idempotent, at_least_once or reconciled: what an unknown outcome means.
	Effect string `json:"effect"`
	// Outcome is started, ok, failed or unknown.
	Outcome string `json:"outcome"`
	// Attempt is the owner's that wrote the receipt.
	Attempt     int64           `json:"attempt"`
	ExternalRef string          `json:"external_ref,omitempty"`
	Output      json.RawMessage `json:"output,omitempty"`
	RecordedAt  time.Time       `json:"recorded_at"`
}

// Receipts returns the receipts of a run, by step. A run without any, or that does not exist, has none.
func (c *Client) Receipts(ctx context.Context, id RunID) ([]Receipt, error) {
	list, err := receipts.List(ctx, c.pool, uuid.UUID(id))
	if err != nil {
		return nil, fmt.Errorf("jobs: %w", err)
	}
	out := make([]Receipt, len(list))
	for i, r := range list {
		out[i] = receiptOf(r)
	}
	return out, nil
}

func receiptOf(r receipts.Receipt) Receipt {
	return Receipt{
		StepIndex: r.Step.Index, StepName: r.Step.Name, Effect: string(r.Step.Effect), Outcome: string(r.Outcome),
		Attempt: r.Attempt, ExternalRef: r.ExternalRef, Output: r.Output, RecordedAt: r.RecordedAt,
	}
}

// Try is a try of a run that did not end well. Tries that succeed leave receipts only.
type Try struct {
	Attempt    int64      `json:"attempt"`
	Owner      string     `json:"owner,omitempty"`
	ClaimedAt  *time.Time `json:"claimed_at,omitempty"`
	EndedAt    time.Time  `json:"ended_at"`
	DoorbellID *int64     `json:"doorbell_id,omitempty"`
	// How is failed, released, snoozed, reaped or canceled.
	How       string `json:"how"`
	ErrorCode string `json:"error_code,omitempty"`
	Error     string `json:"error,omitempty"`
}

var listTries = fencing.Compile("ended tries", `
select attempt, coalesce(owner, ''), claimed_at, ended_at, doorbell_id, how, coalesce(error_code, ''), coalesce(error, '')
from weir.ended_try where run_id = @run::uuid order by attempt desc limit @limit::int`)

// Tries returns the newest tries of a run that did not end well, oldest first, at most 200.
func (c *Client) Tries(ctx context.Context, id RunID) ([]Try, error) {
	rows, err := c.pool.Query(ctx, listTries.SQL, listTries.Bind(fencing.Args{"run": id.String(), "limit": 200})...)
	if err != nil {
		return nil, fmt.Errorf("jobs: tries of run %s: %w", id, err)
	}
	tries, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (Try, error) {
		var t Try
		err := row.Scan(&t.Attempt, &t.Owner, &t.ClaimedAt, &t.EndedAt, &t.DoorbellID, &t.How, &t.ErrorCode, &t.Error)
		return t, err
	})
	if err != nil {
		return nil, fmt.Errorf("jobs: tries of run %s: %w", id, err)
	}
	for i, j := 0, len(tries)-1; i < j; i, j = i+1, j-1 {
		tries[i], tries[j] = tries[j], tries[i]
	}
	return tries, nil
}
