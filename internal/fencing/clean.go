package fencing

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// Ids are UUIDv7, so the primary key is in the order of creation and the oldest runs are found without an index on
// finished_at, which every terminal write would pay for. A run that lives long is walked past.
var victims = Compile("clean victims", `
select r.id, r.root_id from weir.run r
where r.id in (select id from weir.run where id > @after::uuid order by id limit @page::int)
    and r.finished_at < clock_timestamp() - coalesce((select age from unnest(@kinds::text[], @ages::interval[]) k(kind, age) where k.kind = r.kind), @age::interval)
order by r.id for update of r skip locked`)

var pageEnd = Compile("clean page end", `
select id, created_at < clock_timestamp() - @youngest::interval
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

// Cleaner deletes finished runs by age and kind, a small batch at a time, oldest first. It is safe for concurrent use:
// while one Clean is under way, another returns at once.
type Cleaner struct {
	DB interface {
		DB
		Beginner
	}
	// Age is how long a run stays after it finished, AgeOf is that of the kinds where it is another; KeepKeys is how long
	// after that moment its key answers.
	Age      time.Duration
	AgeOf    map[string]time.Duration
	KeepKeys time.Duration
	// Page is how many runs one transaction looks at.
	Page int
	// Share is the share of the time in which it is at work: after each transaction it rests for as long as that asks for.
	// Zero does not rest.
	Share float64
	// Longest is for how long it goes on. The next Clean begins where this one ended, so that a kind that is kept for years
	// does not keep it from what is behind. Zero stays to the end.
	Longest time.Duration

	busy  sync.Mutex
	after uuid.UUID
}

// Clean deletes what is old enough, until nothing is, Longest is over or ctx ends. It returns how many runs it deleted.
func (c *Cleaner) Clean(ctx context.Context) (int, error) {
	if !c.busy.TryLock() {
		return 0, nil
	}
	defer c.busy.Unlock()
	began, total := time.Now(), 0
	if err := c.inTurns(ctx, began, func() (more bool, err error) {
		var n int
		if n, c.after, more, err = c.page(ctx, c.after); err == nil && !more {
			c.after = uuid.Nil
		}
		total += n
		return more, err
	}); err != nil {
		return total, fmt.Errorf("clean finished runs: %w", err)
	}
	if err := c.inTurns(ctx, began, func() (bool, error) {
		tag, err := c.DB.Exec(ctx, deleteKeys.SQL, deleteKeys.Bind(Args{"limit": c.Page})...)
		return tag.RowsAffected() == int64(c.Page), err
	}); err != nil {
		return total, fmt.Errorf("clean expired keys: %w", err)
	}
	return total, nil
}

// inTurns works at least once, and rests after each time.
func (c *Cleaner) inTurns(ctx context.Context, began time.Time, do func() (more bool, err error)) error {
	for {
		turn := time.Now()
		more, err := do()
		if err != nil || !more {
			return err
		}
		var rest time.Duration
		if c.Share > 0 {
			rest = time.Duration(float64(time.Since(turn)) * (1/c.Share - 1))
		}
		if c.Longest > 0 && time.Since(began)+rest > c.Longest {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(rest):
		}
	}
}

// ages are Age and AgeOf as a statement takes them; youngest is the least of them.
func (c *Cleaner) ages(args Args) Args {
	kinds, ages, youngest := []string{}, []time.Duration{}, c.Age
	for kind, age := range c.AgeOf {
		kinds, ages, youngest = append(kinds, kind), append(ages, age), min(youngest, age)
	}
	args["kinds"], args["ages"], args["age"], args["youngest"] = kinds, ages, c.Age, youngest
	return args
}

func (c *Cleaner) page(ctx context.Context, after uuid.UUID) (deleted int, next uuid.UUID, more bool, err error) {
	tx, err := Begin(ctx, c.DB)
	if err != nil {
		return 0, after, false, err
	}
	defer RollbackQuietly(ctx, tx)

	args := c.ages(Args{"after": after, "page": c.Page})
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
