// Package doorbell moves the River jobs that tell the fleet that a run wants work. A doorbell may ring twice or for
// nothing; it is never the truth about a run.
//
// What it writes to river_job beside River's own client is pinned to River v0.51 by this package's tests.
package doorbell

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"

	"github.com/weirqueue/weir/internal/fencing"
)

// maxAttempts takes River's budget out of the way: Weir's own budgets decide. It is the largest that River's smallint
// holds.
const maxAttempts = 32767

// riverPrefix keeps Weir's River kinds apart from the application's.
const riverPrefix = "weir_"

// RiverKind is the River job kind of a Weir kind: one for each, so that each can have its queue.
func RiverKind(kind string) string { return riverPrefix + kind }

// QueueOf is the queue of a kind where nobody says otherwise.
func QueueOf(kind string) string { return riverPrefix + kind }

// Args are the arguments of a run's own doorbell: they name the run, and hold nothing that could leak or go stale.
type Args struct {
	RunID uuid.UUID `json:"run_id"`
	// Channel is the channel of a delivery, so that a worker can see without a look at the run whether it has room.
	Channel string `json:"channel,omitempty"`
	kind    string
}

// Kind is River's name for the job's kind.
func (a Args) Kind() string { return a.kind }

// Bells rings and retires doorbells. It is safe for concurrent use.
type Bells struct {
	client               *river.Client[pgx.Tx]
	retire, erase, stamp *fencing.Statement
	orphans              *fencing.Statement
}

// ClientConfig is for an insert-only River client that rings. By River's default such a client is silent for 100 ms after
// each announcement, and what it inserts in that time waits for a poll. This one is silent for as short as River allows;
// it never announces each insert, since commits that notify wait for each other (PG-07).
func ClientConfig(schema string, logger *slog.Logger) *river.Config {
	return &river.Config{Schema: schema, Logger: logger, FetchCooldown: river.FetchCooldownMin}
}

// New makes bells that ring through client, an insert-only one or any other.
func New(client *river.Client[pgx.Tx]) *Bells {
	return &Bells{client: client, stamp: stampStatement(Table(client.Schema())), orphans: orphansStatement(Table(client.Schema())), erase: fencing.Build("erase doorbells", `
update `+Table(client.Schema())+` set tags = '{}'
where args @> jsonb_build_object('run_id', @run::text) and kind like 'weir\_%' and tags <> '{}'`), retire: fencing.Build("retire doorbells", `
with old as (
    select j.id, d.reason
    from unnest(@jobs::bigint[], @attempted::timestamptz[], @reasons::text[]) d(job, attempted_at, reason)
    join `+Table(client.Schema())+` j on j.id = d.job
    where ((j.state = 'running' and j.attempted_at = d.attempted_at) or j.state in ('available', 'scheduled', 'retryable'))
        and not (j.state = 'running' and `+isChunk+` and `+ownsUnder+`)
    order by j.id for update of j skip locked
)
update `+Table(client.Schema())+` j set state = 'discarded', finalized_at = clock_timestamp(),
    errors = array_append(coalesce(j.errors, '{}'), jsonb_build_object(
        'at', clock_timestamp(), 'attempt', greatest(j.attempt, 1), 'error', old.reason, 'trace', ''))
from old where j.id = old.id
returning j.id, `+isChunk+`, j.metadata ? 'cancel_attempted_at'`)}
}

// Table is River's job table in schema; empty leaves it to the search_path, as River does.
func Table(schema string) string {
	if schema == "" {
		return "river_job"
	}
	return pgx.Identifier{schema, "river_job"}.Sanitize()
}

// Client is the River client that rings.
func (b *Bells) Client() *river.Client[pgx.Tx] { return b.client }

// Ring inserts one River job a run in tx and returns the job ids in the order of runs.
func (b *Bells) Ring(ctx context.Context, tx pgx.Tx, runs []fencing.Rung) ([]int64, error) {
	params := make([]river.InsertManyParams, len(runs))
	for i, r := range runs {
		params[i] = river.InsertManyParams{
			Args:       Args{RunID: r.Run, Channel: r.Channel, kind: RiverKind(r.Kind)},
			InsertOpts: &river.InsertOpts{MaxAttempts: maxAttempts, Priority: r.Priority, Queue: r.Queue, ScheduledAt: r.At, Tags: r.Tags},
		}
	}
	return b.insert(ctx, tx, params)
}

func (b *Bells) insert(ctx context.Context, tx pgx.Tx, params []river.InsertManyParams) ([]int64, error) {
	watched, stamped := watchStamp(ctx)
	inserted, err := b.client.InsertManyTx(watched, tx, params)
	if err != nil {
		return nil, fmt.Errorf("insert doorbells: %w", err)
	}
	ids := make([]int64, len(inserted))
	for i, res := range inserted {
		ids[i] = res.Job.ID
	}
	if !*stamped {
		return ids, b.hurry(ctx, tx, ids)
	}
	return ids, nil
}

// Remove deletes doorbells that this transaction has just inserted, for runs that were not made after all.
func (b *Bells) Remove(ctx context.Context, tx pgx.Tx, jobs []int64) error {
	for chunk := range slices.Chunk(jobs, 1000) {
		if _, err := b.client.JobDeleteManyTx(ctx, tx, river.NewJobDeleteManyParams().IDs(chunk...).First(len(chunk))); err != nil {
			return fmt.Errorf("remove %d doorbells: %w", len(chunk), err)
		}
	}
	return nil
}

// Retire discards the River jobs of runs that are rung anew: a worker that wakes up later can then change nothing by
// what it returns, since River writes to running jobs only. A running job is retired only in exactly the River attempt
// that is named; one that is locked is left to whoever holds it, and a chunk's to the runs under it that are owned (D5).
func (b *Bells) Retire(ctx context.Context, tx pgx.Tx, old []fencing.Retired) (r fencing.Retirement, err error) {
	if len(old) == 0 {
		return r, nil
	}
	jobs, attempted, reasons := make([]int64, len(old)), make([]*time.Time, len(old)), make([]string, len(old))
	for i, o := range old {
		jobs[i], attempted[i], reasons[i] = o.Job, o.AttemptedAt, o.Reason
	}
	rows, err := tx.Query(ctx, b.retire.SQL, b.retire.Bind(fencing.Args{"jobs": jobs, "attempted": attempted, "reasons": reasons})...)
	if err != nil {
		return r, err
	}
	var (
		chunks       []int64
		id           int64
		chunk, asked bool
	)
	if _, err = pgx.ForEachRow(rows, []any{&id, &chunk, &asked}, func() error {
		switch {
		case chunk:
			chunks = append(chunks, id)
		case asked:
			r.Canceled = append(r.Canceled, id)
		}
		return nil
	}); err != nil || len(chunks) == 0 {
		return r, err
	}
	r.Orphans, err = b.orphansOf(ctx, tx, chunks)
	return r, err
}

// Erase removes what River's jobs of a run say of persons: the tags that the enqueuer gave.
func (b *Bells) Erase(ctx context.Context, tx pgx.Tx, run uuid.UUID) error {
	if _, err := tx.Exec(ctx, b.erase.SQL, b.erase.Bind(fencing.Args{"run": run.String()})...); err != nil {
		return fmt.Errorf("erase doorbells of run %s: %w", run, err)
	}
	return nil
}
