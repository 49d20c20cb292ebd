package jobs

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
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
	// Err is set in the results of NotifyMany for a notification that was refused while the others went on: a
	// *KeyReusedError.
	Err error `json:"-"`
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
	b := &notifyBatch{results: make([]NotifyResult, 1)}
	if err := b.add(0, n, o); err != nil {
		return nil, err
	}
	if err := c.notify(ctx, tx, b, ringEach); err != nil {
		return nil, err
	}
	if err := b.results[0].Err; err != nil {
		return nil, err
	}
	return &b.results[0], nil
}

// keyOfNotifications is the kind under which notifications keep their keys.
const keyOfNotifications = "notification"

// One statement, so one snapshot: the cleaner moves a run's answer from the run to the key.
var answersOfKeys = fencing.Compile("answers of keys", `
select n.id, r.id, r.status, coalesce(r.error_code, ''), r.finished_at, k.outcome::text
from unnest(@roots::text[]::uuid[]) root(id) join weir.key k on k.run_id = root.id and k.kind = @kind
left join weir.notification n on n.id = k.run_id left join weir.run r on r.id = any(n.run_ids)
order by 1, 2`)

// existingNotifications answers repeats from the runs that are there, and from the keys for those that were cleaned.
func existingNotifications(ctx context.Context, tx pgx.Tx, found map[int]*foundKey) (map[uuid.UUID]NotifyResult, error) {
	answers := map[uuid.UUID]NotifyResult{}
	var roots []uuid.UUID
	for _, f := range found {
		if !f.reused {
			answers[f.run] = NotifyResult{ID: NotificationID(f.run), Existing: true, Runs: f.outcome}
			roots = append(roots, f.run)
		}
	}
	if len(roots) == 0 {
		return answers, nil
	}
	rows, err := tx.Query(ctx, answersOfKeys.SQL, answersOfKeys.Bind(fencing.Args{"kind": keyOfNotifications, "roots": fencing.Texts(roots)})...)
	if err != nil {
		return nil, fmt.Errorf("jobs: notify: %w", err)
	}
	var (
		root, run             uuid.NullUUID
		status, code, outcome *string
		finished              *time.Time
		live                  = map[uuid.UUID][]RunRef{}
	)
	if _, err := pgx.ForEachRow(rows, []any{&root, &run, &status, &code, &finished, &outcome}, func() error {
		if !root.Valid {
			return nil // every run of it was cleaned; the key that was found has said so
		}
		if _, seen := live[root.UUID]; !seen {
			cleaned, err := decodeOutcome(outcome)
			if err != nil {
				return err
			}
			live[root.UUID] = cleaned
		}
		if run.Valid {
			live[root.UUID] = append(live[root.UUID], RunRef{ID: RunID(run.UUID), Status: Status(*status), ErrorCode: *code, FinishedAt: finished})
		}
		return nil
	}); err != nil {
		return nil, fmt.Errorf("jobs: notify: %w", err)
	}
	for id, runs := range live { // a key that has run out this very moment has no row
		answer := answers[id]
		answer.Runs = runs
		answers[id] = answer
	}
	for _, a := range answers {
		slices.SortFunc(a.Runs, func(a, b RunRef) int { return bytes.Compare(a.ID[:], b.ID[:]) })
	}
	return answers, nil
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
