package jobs

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/weirqueue/weir/internal/delivery"
	"github.com/weirqueue/weir/internal/fencing"
)

// NotifyResult is what Notify made or found.
type NotifyResult struct {
	ID NotificationID `json:"id"`
	// Runs are the deliveries: for a new notification in the order of its recipients, for an existing one by id.
	Runs []RunRef `json:"runs"`
	// Existing says that the idempotency key had made this notification before; nothing was written.
	Existing bool `json:"existing"`
}

// RunRef is a run in short.
type RunRef struct {
	ID         RunID      `json:"id"`
	Status     Status     `json:"status"`
	ErrorCode  string     `json:"error_code,omitempty"`
	FinishedAt *time.Time `json:"finished_at,omitempty"`
	// Cleaned says that the run itself was deleted after its retention; its key remembers how it ended.
	Cleaned bool `json:"cleaned,omitempty"`
}

// Notify is NotifyTx in a transaction of its own. When the answer to its COMMIT is lost, it returns an error although
// the notification may exist: give an idempotency key and call it again.
func (c *Client) Notify(ctx context.Context, n Notification, opts *Opts) (*NotifyResult, error) {
	var res *NotifyResult
	err := c.inTx(ctx, func(tx pgx.Tx) (err error) {
		res, err = c.NotifyTx(ctx, tx, n, opts)
		return err
	})
	if err != nil {
		return nil, err
	}
	return res, nil
}

// NotifyTx writes a notification and one delivery for each recipient, with their doorbells, in the caller's
// transaction. Whatever is wrong with n or opts is found before anything is written: the error is one or more
// *InvalidError. See Opts.IdempotencyKey for repeats.
func (c *Client) NotifyTx(ctx context.Context, tx pgx.Tx, n Notification, opts *Opts) (*NotifyResult, error) {
	o := opts.withDefaults(c.cfg.DeliveryQueue, delivery.MaxFailures)
	if err := errors.Join(n.validate(c.cfg.Channels), o.validate()); err != nil {
		return nil, err
	}
	asked, err := delivery.Canonical(n)
	if err != nil {
		return nil, err
	}
	id, err := newID()
	if err != nil {
		return nil, err
	}
	if o.IdempotencyKey != "" {
		req := keyRequest{kind: keyOfNotifications, key: o.IdempotencyKey, run: id, digest: delivery.Digest(asked)}
		taken, err := takeKey(ctx, tx, req)
		if err != nil {
			return nil, err
		}
		if taken != nil {
			return existingNotification(ctx, tx, req, taken)
		}
	}
	return c.insertNotification(ctx, tx, id, n, o)
}

// keyOfNotifications is the kind under which notifications keep their keys.
const keyOfNotifications = "notification"

var insertNotification = fencing.Compile("insert notification", `
with n as (
    insert into weir.notification (id, run_ids) values (@root::uuid, @runs::text[]::uuid[])
), runs as (
    insert into weir.run (id, root_id, kind, status, queue, priority, max_failures, next_attempt_at, doorbell_id, needs, tags, metadata)
    select x.run::uuid, @root::uuid, 'delivery', 'pending', @queue, @priority::smallint, @max_failures::integer,
        coalesce(@scheduled_at::timestamptz, clock_timestamp()), x.job, string_to_array(x.needs, ','), @tags::text[], @metadata::text::jsonb
    from unnest(@runs::text[], @jobs::bigint[], @needs::text[]) x(run, job, needs)
)
insert into weir.payload (run_id, body, digest)
select x.run::uuid, convert_to(x.body, 'UTF8'), sha256(convert_to(x.body, 'UTF8'))
from unnest(@runs::text[], @bodies::text[]) x(run, body)`)

func (c *Client) insertNotification(ctx context.Context, tx pgx.Tx, id uuid.UUID, n Notification, o *Opts) (*NotifyResult, error) {
	res := &NotifyResult{ID: NotificationID(id)}
	rung := make([]fencing.Rung, len(n.To))
	runs, bodies, needs := make([]string, len(n.To)), make([]string, len(n.To)), make([]string, len(n.To))
	messages := n.telegramParts()
	for i, to := range n.To {
		run, err := newID()
		if err != nil {
			return nil, err
		}
		payload := delivery.Payload{
			Notification: id, Channel: to.Channel, Address: to.Address, Subject: n.Subject, Text: n.Text, HTML: n.HTML,
		}
		if to.Channel == delivery.Telegram && len(messages) > 1 {
			payload.Text, payload.HTML, payload.Parts = "", "", messages
		}
		body, err := delivery.Canonical(payload)
		if err != nil {
			return nil, err
		}
		// The name of a channel holds no comma.
		runs[i], bodies[i], needs[i] = run.String(), string(body), strings.Join(delivery.Needs(to.Channel, len(payload.Parts)), ",")
		rung[i] = fencing.Rung{Run: run, Kind: KindDelivery, Queue: o.Queue, Priority: o.Priority, At: o.ScheduledAt, Tags: o.Tags, Channel: to.Channel}
		res.Runs = append(res.Runs, RunRef{ID: RunID(run), Status: StatusPending})
	}
	jobs, err := c.bells.Ring(ctx, tx, rung)
	if err != nil {
		return nil, fmt.Errorf("jobs: notify: %w", err)
	}
	var scheduledAt *time.Time
	if !o.ScheduledAt.IsZero() {
		scheduledAt = &o.ScheduledAt
	}
	_, err = tx.Exec(ctx, insertNotification.SQL, insertNotification.Bind(fencing.Args{
		"root": id.String(), "runs": runs, "jobs": jobs, "bodies": bodies, "needs": needs, "queue": o.Queue, "priority": o.Priority,
		"max_failures": o.MaxAttempts, "scheduled_at": scheduledAt, "tags": o.Tags, "metadata": string(o.Metadata),
	})...)
	if err != nil {
		return nil, fmt.Errorf("jobs: notify: %w", err)
	}
	return res, nil
}

// One statement, so one snapshot: the cleaner moves a run's answer from the run to the key.
var answerOfKey = fencing.Compile("answer of a key", `
select k.outcome::text, r.id, coalesce(r.status, ''), coalesce(r.error_code, ''), r.finished_at
from weir.key k left join weir.notification n on n.id = k.run_id left join weir.run r on r.id = any(n.run_ids)
where k.kind = @kind and k.key = @key and k.run_id = @root::uuid`)

// existingNotification answers a repeat from the runs that are there, and from the key for those that were cleaned.
func existingNotification(ctx context.Context, tx pgx.Tx, req keyRequest, taken *takenKey) (*NotifyResult, error) {
	res := &NotifyResult{ID: NotificationID(taken.run), Existing: true, Runs: taken.outcome}
	rows, err := tx.Query(ctx, answerOfKey.SQL, answerOfKey.Bind(fencing.Args{"kind": req.kind, "key": req.key, "root": taken.run.String()})...)
	if err != nil {
		return nil, fmt.Errorf("jobs: notify: %w", err)
	}
	var (
		outcome *string
		id      uuid.NullUUID
		r       RunRef
		live    []RunRef
	)
	tag, err := pgx.ForEachRow(rows, []any{&outcome, &id, &r.Status, &r.ErrorCode, &r.FinishedAt}, func() error {
		if r.ID = RunID(id.UUID); id.Valid {
			live = append(live, r)
		}
		r.FinishedAt = nil
		return nil
	})
	if err == nil && tag.RowsAffected() > 0 { // else the key has run out this very moment
		res.Runs, err = decodeOutcome(outcome)
	}
	if err != nil {
		return nil, fmt.Errorf("jobs: notify: %w", err)
	}
	res.Runs = append(res.Runs, live...)
	slices.SortFunc(res.Runs, func(a, b RunRef) int { return bytes.Compare(a.ID[:], b.ID[:]) })
	return res, nil
}

// inTx runs f in a transaction of its own.
func (c *Client) inTx(ctx context.Context, f func(pgx.Tx) error) error {
	tx, err := c.pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
	if err != nil {
		return fmt.Errorf("jobs: begin: %w", err)
	}
	defer fencing.RollbackQuietly(ctx, tx)
	if err := f(tx); err != nil {
		return err
	}
	if err := tx.Commit(ctx); err != nil {
		return fmt.Errorf("jobs: commit: %w", err)
	}
	return nil
}

// keyOutcome is one run in the outcome that the cleaner leaves with a key.
type keyOutcome struct {
	Run        RunID      `json:"run"`
	Status     Status     `json:"status"`
	Code       string     `json:"code"`
	FinishedAt *time.Time `json:"finished_at"`
}

func decodeOutcome(text *string) ([]RunRef, error) {
	if text == nil {
		return nil, nil
	}
	var list []keyOutcome
	if err := json.Unmarshal([]byte(*text), &list); err != nil {
		return nil, fmt.Errorf("jobs: outcome of a key: %w", err)
	}
	refs := make([]RunRef, len(list))
	for i, o := range list {
		refs[i] = RunRef{ID: o.Run, Status: o.Status, ErrorCode: o.Code, FinishedAt: o.FinishedAt, Cleaned: true}
	}
	return refs, nil
}
