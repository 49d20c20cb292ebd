package drill

import (
	"context"
	_ "embed"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weirqueue/weir/jobs"
)

//go:embed schema.sql
var schemaSQL string

const uninstallSQL = `
drop trigger if exists weir_drill_notes on weir.run;
drop trigger if exists weir_drill_notes on weir.receipt;
drop schema if exists weir_drill cascade`

// install makes the tables and triggers that record what happens.
func install(ctx context.Context, pool *pgxpool.Pool) error {
	if _, err := pool.Exec(ctx, uninstallSQL); err != nil {
		return fmt.Errorf("drill: remove an earlier drill's records: %w", err)
	}
	if _, err := pool.Exec(ctx, schemaSQL); err != nil {
		return fmt.Errorf("drill: install the records: %w", err)
	}
	return nil
}

// Records are what the database noted, replayed.
type Records struct {
	runs  []*RunRecord
	Lease time.Duration
}

// RecordsOf are the records of these runs, for tests of a subject.
func RecordsOf(runs ...*RunRecord) *Records { return &Records{runs: runs} }

// Runs are the runs of a kind that were asked for, in the order of their ids.
func (r *Records) Runs(kind string) []*RunRecord {
	var out []*RunRecord
	for _, run := range r.runs {
		if run.Kind == kind {
			out = append(out, run)
		}
	}
	return out
}

const readHistory = `
select a.kind, a.n, coalesce(h.run_id, a.run_id), h.seq, h.at, h.xid::text::bigint, h.backend, h.worker, h.what, h.op, h.step, h.attempt,
    h.old_attempt, h.state, h.old_state, h.lease, h.old_lease, h.deadline, h.old_deadline, h.reaps, h.finished, h.old_finished, h.result
from weir_drill.asked a left join weir_drill.history h using (run_id)
order by a.run_id, h.seq`

// readRecords replays the history run by run: what it holds of a run is a summary.
func readRecords(ctx context.Context, pool *pgxpool.Pool, lease time.Duration, each func(change) error) (*Records, error) {
	rows, err := pool.Query(ctx, readHistory)
	if err != nil {
		return nil, fmt.Errorf("drill: read the history: %w", err)
	}
	records := &Records{Lease: lease}
	var (
		current *RunRecord
		changes []change
	)
	finish := func() {
		if current != nil {
			current.replay(changes, lease)
			records.runs = append(records.runs, current)
		}
		changes = changes[:0]
	}
	var (
		kind string
		n    int64
		id   uuid.UUID
		seq  *int64
		at   *time.Time
		xid  *int64
		pid  *int
		text [3]*string // worker, what, op
	)
	row := change{}
	_, err = pgx.ForEachRow(rows, []any{
		&kind, &n, &id, &seq, &at, &xid, &pid, &text[0], &text[1], &text[2], &row.Step, &row.Attempt, &row.OldAttempt, &row.State,
		&row.OldState, &row.Lease, &row.OldLease, &row.Deadline, &row.OldDeadline, &row.Reaps, &row.Finished, &row.OldFinished, &row.Result,
	}, func() error {
		if current == nil || current.ID != jobs.RunID(id) {
			finish()
			current = newRun(jobs.RunID(id), kind)
			current.N = n
		}
		if seq == nil {
			return nil // asked for, and never heard of again
		}
		c := row
		c.Seq, c.At, c.XID, c.Backend, c.Run = *seq, *at, uint64(*xid), *pid, jobs.RunID(id) // #nosec G115 -- a transaction id is positive
		c.Worker, c.What, c.Op = *text[0], *text[1], *text[2]
		changes = append(changes, c)
		row = change{}
		if each != nil {
			return each(c)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("drill: read the history: %w", err)
	}
	finish()
	return records, nil
}
