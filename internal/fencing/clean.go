package fencing

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// Ids are UUIDv7, so the primary key is in the order of creation and the oldest runs are found without an index on
// finished_at, which every terminal write would pay for. A run that lives long is walked past.
var victims = Compile("clean victims", `
select r.id, r.root_id from weir.run r
where r.id in (select id from weir.run where id > @after::uuid order by id limit @page::int) and r.finished_at < clock_timestamp() - @age::interval
order by r.id for update of r skip locked`)

var pageEnd = Compile("clean page end", `
select id, created_at < clock_timestamp() - @age::interval
from (select id, created_at from weir.run where id > @after::uuid order by id limit @page::int) p order by id desc limit 1`)

// Two cleaners may each have runs of one notification. Whoever comes second waits here, so that the statements after
// this one see what the first has deleted, and the last run out starts the key's expiry.
var lockNotifications = Compile("lock notifications", `
select from weir.notification where id = any(@roots::uuid[]) order by id for update`)

// The key of a run that goes keeps the answer. Its life begins to run out when the last run under it is gone, and counts
// from the moment when the last of them had finished.
var keepAnswers = Compile("keep answers", `
with gone as (
    select root, jsonb_agg(jsonb_build_object('run', run, 'status', status, 'code', coalesce(code, ''), 'finished_at', finished_at)
        order by run) as outcome
    from unnest(@roots::uuid[], @runs::uuid[], @statuses::text[], @codes::text[], @finished::timestamptz[])
        g(root, run, status, code, finished_at)
    group by root
)
update weir.key k set outcome = coalesce(k.outcome, '[]') || gone.outcome,
    expires_at = case when not exists (
        select from weir.notification n join weir.run r on r.id = any(n.run_ids) where n.id = k.run_id
    ) then (select max((o ->> 'finished_at')::timestamptz) from jsonb_array_elements(coalesce(k.outcome, '[]') || gone.outcome) o)
        + @keep::interval end
from gone where k.run_id = gone.root`)

var (
	deleteRuns = Compile("delete runs", `
delete from weir.run where id = any(@runs::uuid[]) and finished_at is not null
returning root_id, id, status, coalesce(error_code, ''), finished_at`)
	deleteNotifications = Compile("delete notifications", `
delete from weir.notification n where n.id = any(@roots::uuid[])
    and not exists (select from weir.run r where r.id = any(n.run_ids))`)
	deleteKeys = Compile("delete expired keys", `
delete from weir.key where (kind, key) in (
    select kind, key from weir.key where expires_at < (select clock_timestamp()) order by kind, key limit @limit::int for update skip locked)
    and expires_at < clock_timestamp()`)
)

// Cleaner deletes finished runs by age, a small batch at a time, oldest first. It is for one goroutine.
type Cleaner struct {
	DB interface {
		DB
		Beginner
	}
	// Age is how long a run stays after it finished; KeepKeys how long after that moment its key answers.
	Age, KeepKeys time.Duration
	// Page is how many runs one transaction looks at.
	Page int
}

// Clean deletes what is old enough, until nothing is or ctx ends. It returns how many runs it deleted.
func (c *Cleaner) Clean(ctx context.Context) (int, error) {
	var (
		after uuid.UUID
		total int
	)
	for {
		n, next, more, err := c.page(ctx, after)
		total += n
		if err != nil {
			return total, fmt.Errorf("clean finished runs: %w", err)
		}
		if !more {
			break
		}
		after = next
	}
	_, err := c.DB.Exec(ctx, deleteKeys.SQL, deleteKeys.Bind(Args{"limit": 10_000})...)
	if err != nil {
		return total, fmt.Errorf("clean expired keys: %w", err)
	}
	return total, nil
}

func (c *Cleaner) page(ctx context.Context, after uuid.UUID) (deleted int, next uuid.UUID, more bool, err error) {
	tx, err := Begin(ctx, c.DB)
	if err != nil {
		return 0, after, false, err
	}
	defer RollbackQuietly(ctx, tx)

	args := Args{"after": after, "page": c.Page, "age": c.Age}
	err = tx.QueryRow(ctx, pageEnd.SQL, pageEnd.Bind(args)...).Scan(&next, &more)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, after, false, nil
	}
	if err != nil {
		return 0, after, false, err
	}
	rows, err := tx.Query(ctx, victims.SQL, victims.Bind(args)...)
	if err != nil {
		return 0, after, false, err
	}
	var runs, roots []uuid.UUID
	var run, root uuid.UUID
	if _, err := pgx.ForEachRow(rows, []any{&run, &root}, func() error {
		runs, roots = append(runs, run), append(roots, root)
		return nil
	}); err != nil {
		return 0, after, false, err
	}
	if len(runs) == 0 {
		return 0, next, more, nil
	}
	deleted, err = deleteVictims(ctx, tx, runs, roots, c.KeepKeys)
	if err != nil {
		return 0, after, false, err
	}
	return deleted, next, more, tx.Commit(ctx)
}

// deleteVictims keeps to the order of locks: runs and their records, then keys.
func deleteVictims(ctx context.Context, tx pgx.Tx, runs, roots []uuid.UUID, keep time.Duration) (int, error) {
	rows, err := tx.Query(ctx, deleteRuns.SQL, deleteRuns.Bind(Args{"runs": runs})...)
	if err != nil {
		return 0, err
	}
	var (
		goneRoots, goneRuns []uuid.UUID
		statuses, codes     []string
		finished            []time.Time
		root, run           uuid.UUID
		status, code        string
		at                  time.Time
	)
	if _, err := pgx.ForEachRow(rows, []any{&root, &run, &status, &code, &at}, func() error {
		goneRoots, goneRuns = append(goneRoots, root), append(goneRuns, run)
		statuses, codes, finished = append(statuses, status), append(codes, code), append(finished, at)
		return nil
	}); err != nil {
		return 0, err
	}
	if _, err := tx.Exec(ctx, lockNotifications.SQL, lockNotifications.Bind(Args{"roots": roots})...); err != nil {
		return 0, err
	}
	if _, err := tx.Exec(ctx, keepAnswers.SQL, keepAnswers.Bind(Args{
		"roots": goneRoots, "runs": goneRuns, "statuses": statuses, "codes": codes, "finished": finished, "keep": keep,
	})...); err != nil {
		return 0, err
	}
	_, err = tx.Exec(ctx, deleteNotifications.SQL, deleteNotifications.Bind(Args{"roots": roots})...)
	return len(goneRuns), err
}
