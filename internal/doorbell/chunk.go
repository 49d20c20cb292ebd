package doorbell

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"

	"github.com/weirqueue/weir/internal/fencing"
)

// A chunk is one River job that rings for many runs, for their first try only: what fails is rung for by a job of its
// own, at its own time.

// ChunkSize is the largest chunk.
const ChunkSize = 100

// chunkKind is River's kind of chunks. Only deliveries have them.
const chunkKind = riverPrefix + "delivery_chunk"

// ChunkQueue is the queue of the chunks beside a queue of runs. It is one of its own, so that a worker takes as few chunks
// as it can send, and a delivery with its own doorbell does not wait behind them.
func ChunkQueue(queue string) string { return queue + "_bulk" }

// ChunkArgs are the arguments of a chunk's job.
type ChunkArgs struct {
	RunIDs  RunIDs `json:"run_ids"`
	Channel string `json:"channel"`
}

// RunIDs are written as one string, separated by spaces: River indexes each element of its jobs' arguments, again whenever a
// job's state changes.
type RunIDs []uuid.UUID

// MarshalText writes the ids.
func (r RunIDs) MarshalText() ([]byte, error) {
	return []byte(strings.Join(fencing.Texts(r), " ")), nil
}

// UnmarshalText reads what MarshalText wrote.
func (r *RunIDs) UnmarshalText(text []byte) error {
	var ids RunIDs
	for field := range strings.FieldsSeq(string(text)) {
		id, err := uuid.Parse(field)
		if err != nil {
			return fmt.Errorf("run_ids: %.40q: %w", field, err)
		}
		ids = append(ids, id)
	}
	*r = ids
	return nil
}

// Kind is River's name for the job's kind.
func (ChunkArgs) Kind() string { return chunkKind }

// Hooks are River's: it asks the arguments for them.
func (ChunkArgs) Hooks() []rivertype.Hook { return Args{}.Hooks() }

// Chunk is runs that are rung for together: of one queue, priority, channel and due time.
type Chunk struct {
	Runs     []uuid.UUID
	Queue    string // of the runs; the job goes to its ChunkQueue
	Priority int
	At       time.Time // zero is at once
	Channel  string
}

// RingChunks inserts one River job a chunk in tx and returns the job ids in the order of chunks.
func (b *Bells) RingChunks(ctx context.Context, tx pgx.Tx, chunks []Chunk) ([]int64, error) {
	params := make([]river.InsertManyParams, len(chunks))
	for i, c := range chunks {
		params[i] = river.InsertManyParams{
			Args:       ChunkArgs{RunIDs: c.Runs, Channel: c.Channel},
			InsertOpts: &river.InsertOpts{MaxAttempts: maxAttempts, Priority: c.Priority, Queue: ChunkQueue(c.Queue), ScheduledAt: c.At},
		}
	}
	return b.insert(ctx, tx, params)
}

// isChunk is about River job j.
const isChunk = `(j.kind = '` + chunkKind + `')`

// underChunk are the runs r that chunk j still rings for. Whoever inserts into River may have written anything into the
// arguments, so they are read as run ids only where they look like them.
const underChunk = `unnest(string_to_array(j.args ->> 'run_ids', ' ')) x(id)
        join weir.run r on r.id = case when x.id ~ '^[0-9a-fA-F]{8}-([0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}$' then x.id::uuid end and r.doorbell_id = j.id`

// ownsUnder says that a run of chunk j has an owner: then the chunk's worker is there, or the reaper will see to it.
const ownsUnder = `exists (select from ` + underChunk + ` where r.lease_expires_at is not null)`

// worksUnder says that a chunk is at work: it owns a run, or has ended one a moment ago.
const worksUnder = `exists (select from ` + underChunk + `
        where r.lease_expires_at is not null or r.finished_at > (select clock_timestamp()) - @grace::interval)`

func orphansStatement(table string) *fencing.Statement {
	return fencing.Build("orphans of chunks", `
select r.id, r.kind, r.queue, r.priority, `+dueLater+`, coalesce(j.args ->> 'channel', '')
from `+table+` j cross join lateral `+underChunk+`
where j.id = any(@jobs::bigint[]) and r.lease_expires_at is null and r.next_attempt_at is not null
order by r.id for no key update of r skip locked`)
}

// dueLater is when to ring for r; null is at once. A job that is scheduled for the past would wait for River's leader.
const dueLater = `case when r.next_attempt_at > clock_timestamp() then r.next_attempt_at end`

// orphansOf locks the runs that wait under chunks which were retired. Each needs a doorbell of its own.
func (b *Bells) orphansOf(ctx context.Context, tx pgx.Tx, chunks []int64) ([]fencing.Rung, error) {
	rows, err := tx.Query(ctx, b.orphans.SQL, b.orphans.Bind(fencing.Args{"jobs": chunks})...)
	if err != nil {
		return nil, fmt.Errorf("runs of retired chunks: %w", err)
	}
	return collectRungs(rows)
}

func collectRungs(rows pgx.Rows) ([]fencing.Rung, error) {
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (r fencing.Rung, err error) {
		var at *time.Time
		if err = row.Scan(&r.Run, &r.Kind, &r.Queue, &r.Priority, &at, &r.Channel); at != nil {
			r.At = *at
		}
		return r, err
	})
}

var dueOf = fencing.Compile("due of a run", `
select r.id, r.kind, r.queue, r.priority, `+dueLater+`,
    coalesce((select substr(n, 9) from unnest(r.needs) n where n like 'channel:%' limit 1), '')
from weir.run r where r.id = @run and r.next_attempt_at is not null`)

// RingRun rings for a run whose lock tx holds, when it is due.
func (b *Bells) RingRun(ctx context.Context, tx pgx.Tx, run uuid.UUID) error {
	rows, err := tx.Query(ctx, dueOf.SQL, dueOf.Bind(fencing.Args{"run": run})...)
	if err != nil {
		return fmt.Errorf("ring for run %s: %w", run, err)
	}
	rung, err := collectRungs(rows)
	if err != nil {
		return fmt.Errorf("ring for run %s: %w", run, err)
	}
	return fencing.Ring(ctx, tx, b, rung...)
}

var leaveChunk = fencing.Compile("leave a chunk", `
select r.id, r.kind, r.queue, r.priority, `+dueLater+`, @channel::text
from weir.run r where r.id = any(@runs::text[]::uuid[]) and r.doorbell_id = @job::bigint
    and r.lease_expires_at is null and r.next_attempt_at is not null
order by r.id for no key update of r skip locked`)

// LeaveChunk gives doorbells of their own to runs that still wait under a chunk whose job is about to end. It leaves out
// those that somebody has locked; once the job has ended, the sweep finds them.
func (b *Bells) LeaveChunk(ctx context.Context, tx pgx.Tx, job int64, channel string, runs []uuid.UUID) (int, error) {
	rows, err := tx.Query(ctx, leaveChunk.SQL, leaveChunk.Bind(fencing.Args{"runs": fencing.Texts(runs), "job": job, "channel": channel})...)
	if err != nil {
		return 0, fmt.Errorf("leave a chunk: %w", err)
	}
	rung, err := collectRungs(rows)
	if err != nil {
		return 0, fmt.Errorf("leave a chunk: %w", err)
	}
	return len(rung), fencing.Ring(ctx, tx, b, rung...)
}
