package reset

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/weirqueue/weir/internal/fencing"
)

// Operation is what the provider said of one operation when it was asked last.
type Operation struct {
	ID     string `json:"id"`
	Action string `json:"action,omitempty"`
	// Status is the provider's own word.
	Status string `json:"status"`
	// State is what that word means: one of package branch's.
	State string `json:"state"`
	// Final says that the provider will not change it any more.
	Final bool   `json:"final"`
	Error string `json:"error,omitempty"`
}

// Seen is a status with the time when it was first seen.
type Seen struct {
	Status string    `json:"status"`
	At     time.Time `json:"at"`
}

// Recorded is an operation as it is recorded.
type Recorded struct {
	Operation
	Attempt                 int64
	FirstSeenAt, LastSeenAt time.Time
	Seen                    []Seen
}

// A status that is the last one already adds nothing to the history; what is final stays.
const recordOperations fencing.Rider = `
    insert into weir.branch_operation as o (run_id, operation_id, attempt, action, status, state, final, error, seen)
    select fenced.id, p.id, fenced.attempt, p.action, p.status, p.state, p.final, nullif(p.error, ''),
        jsonb_build_array(jsonb_build_object('status', p.status, 'at', clock_timestamp()))
    from fenced, unnest(@ids::text[], @actions::text[], @statuses::text[], @states::text[], @finals::boolean[], @errors::text[])
        p(id, action, status, state, final, error)
    order by p.id
    on conflict (run_id, operation_id) do update
        set attempt = excluded.attempt, status = excluded.status, state = excluded.state, final = excluded.final, error = excluded.error,
            last_seen_at = clock_timestamp(),
            seen = case when o.status = excluded.status then o.seen else o.seen || excluded.seen end
        where not o.final
    returning run_id`

var (
	record = fencing.Steps.Transition("record operations", fencing.CommitStep, "r.id = @run and r.kind = 'branch_reset'",
		`select fenced.cancel_requested_at is not null from fenced`, recordOperations)
	list = fencing.Compile("operations of a reset", `
select operation_id, attempt, first_seen_at, last_seen_at, action, status, state, final, coalesce(error, ''), seen::text
from weir.branch_operation where run_id = @run::uuid order by first_seen_at, operation_id`)
	look = fencing.Compile("cancel of a reset", `
select cancel_requested_at is not null from weir.run where id = @run::uuid`)
	owns = fencing.Compile("owns a reset", `
select exists (select from weir.run where id = @run::uuid and attempt = @attempt::bigint and lease_expires_at is not null and status = 'running')`)
)

// Owner is who writes for a reset.
type Owner struct {
	Run             uuid.UUID
	Attempt         int64
	Lease, StepTime time.Duration
}

// Record writes what was seen, under the owner's fence, and renews its lease. It returns ErrLeaseLost when the run is
// not owned under this attempt, and has written nothing then.
func (o Owner) Record(ctx context.Context, db fencing.DB, seen []Operation) (cancelRequested bool, err error) {
	n := len(seen)
	ids, actions, statuses, states, errs, finals := make([]string, n), make([]string, n), make([]string, n), make([]string, n), make([]string, n), make([]bool, n)
	for i, s := range seen {
		ids[i], actions[i], statuses[i], states[i], errs[i], finals[i] = s.ID, s.Action, s.Status, s.State, s.Error, s.Final
	}
	err = db.QueryRow(ctx, record.SQL, record.Bind(fencing.Args{
		"run": o.Run, "attempt": o.Attempt, "lease": o.Lease, "step_time": o.StepTime,
		"ids": ids, "actions": actions, "statuses": statuses, "states": states, "finals": finals, "errors": errs,
	})...).Scan(&cancelRequested)
	if errors.Is(err, pgx.ErrNoRows) {
		return false, fmt.Errorf("record operations of run %s: %w", o.Run, fencing.ErrLeaseLost)
	}
	if err != nil {
		return false, fmt.Errorf("record operations of run %s: %w", o.Run, err)
	}
	return cancelRequested, nil
}

// List returns the recorded operations of a reset, oldest first.
func List(ctx context.Context, db fencing.DB, run uuid.UUID) ([]Recorded, error) {
	rows, err := db.Query(ctx, list.SQL, list.Bind(fencing.Args{"run": run.String()})...)
	if err != nil {
		return nil, fmt.Errorf("operations of run %s: %w", run, err)
	}
	out, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (Recorded, error) {
		var (
			r    Recorded
			seen string
		)
		if err := row.Scan(&r.ID, &r.Attempt, &r.FirstSeenAt, &r.LastSeenAt, &r.Action, &r.Status, &r.State, &r.Final, &r.Error, &seen); err != nil {
			return r, err
		}
		return r, json.Unmarshal([]byte(seen), &r.Seen)
	})
	if err != nil {
		return nil, fmt.Errorf("operations of run %s: %w", run, err)
	}
	return out, nil
}

// CancelRequested reports whether somebody asked for the reset's cancellation.
func CancelRequested(ctx context.Context, db fencing.DB, run uuid.UUID) (requested bool, err error) {
	err = db.QueryRow(ctx, look.SQL, look.Bind(fencing.Args{"run": run.String()})...).Scan(&requested)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return false, fmt.Errorf("look at run %s: %w", run, err)
	}
	return requested, nil
}

// Owns reports whether the run is owned under attempt. It holds no lock: it is for whoever keeps others out by a lock
// outside, and asks while holding that.
func Owns(ctx context.Context, db fencing.DB, run uuid.UUID, attempt int64) (owned bool, err error) {
	err = db.QueryRow(ctx, owns.SQL, owns.Bind(fencing.Args{"run": run.String(), "attempt": attempt})...).Scan(&owned)
	if err != nil {
		return false, fmt.Errorf("look at run %s: %w", run, err)
	}
	return owned, nil
}
