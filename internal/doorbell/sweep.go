package doorbell

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/weirqueue/weir/internal/fencing"
)

// Sweeper rings for runs that are due and whose doorbell will not ring (D3). It runs on every node and depends neither
// on River's leader nor on a worker's clock. It is for one goroutine.
type Sweeper struct {
	db    DB
	bells *Bells
	// grace is how long a run may be due before its doorbell is doubted.
	grace time.Duration
	// A tick reads at most pages of pageSize runs and goes on there at the next tick: a backlog that only waits for
	// capacity is walked past, not rung again, and costs the same however long it is.
	pages int
	after cursor

	page, lock, silent *fencing.Statement
}

// DB is what the sweep runs on.
type DB interface {
	fencing.DB
	fencing.Beginner
}

type cursor struct {
	at  time.Time
	run uuid.UUID
}

// slack is by how much River's own times, which come from the clocks of workers, may be off before the sweep acts.
const slack = 5 * time.Second

// blockedPause is longer than a worker puts off a run that it cannot work.
const blockedPause = time.Minute

// silentWhen says that doorbell j will not ring for run r, which is due: it is gone or final; or it runs while the run
// has no owner; or it is put off beyond both the due time and the present, which a worker with a skewed clock does; or
// its time has come and nobody has made it available, which is so under a leader whose clock is behind, or under none.
// Without the last term of the third each tick would ring again what the last one rang. A blocked run is put off on
// purpose, for a while.
//
// A job that somebody cancelled by River's client or UI is not silent: its run is to be canceled (see Canceled), and a
// new doorbell would let it run. A chunk's is: cancelling it cancels nothing. A chunk that runs is at work while it
// owns one of its runs, or has just ended one.
const silentWhen = `(j.id is null or j.state in ('completed', 'discarded')
    or (j.state = 'cancelled' and (` + isChunk + ` or not j.metadata ? 'cancel_attempted_at'))
    or (j.state = 'running' and j.attempted_at < (select clock_timestamp()) - @grace::interval and j.id not in (select id from busy))
    or (j.state in ('available', 'scheduled', 'retryable')
        and (r.blocked_reason is null or j.attempted_at < (select clock_timestamp()) - @blocked::interval)
        and ((j.scheduled_at > r.next_attempt_at + @slack::interval
                and j.scheduled_at > (select clock_timestamp()) + @slack::interval)
            or (j.state <> 'available' and j.scheduled_at < (select clock_timestamp()) - @grace::interval))))`

// busy are the chunks at work among the doorbells of due runs: one look a chunk, not one a run.
func busy(due, table string) string {
	return `busy as materialized (
    select j.id from (select distinct doorbell_id from ` + due + `) d
    cross join lateral (select * from ` + table + ` j where j.id = d.doorbell_id offset 0) j
    where j.state = 'running' and ` + isChunk + ` and j.attempted_at < (select clock_timestamp()) - @grace::interval and ` + worksUnder + `
)`
}

const dueWhere = `r.status in ('pending', 'queued', 'approved', 'running', 'executing', 'processing')
        and r.next_attempt_at < (select clock_timestamp()) - @grace::interval`

const pageSize = 2000

// NewSweeper makes a sweeper. Zero values: grace 15 s.
func NewSweeper(db DB, bells *Bells, grace time.Duration) *Sweeper {
	return newSweeper(db, bells, grace, dueWhere)
}

// NewResetSweeper makes a sweeper of branch resets alone: no backlog of other kinds stands before them.
func NewResetSweeper(db DB, bells *Bells, grace time.Duration) *Sweeper {
	return newSweeper(db, bells, grace, dueWhere+` and r.kind = 'branch_reset' and r.status in ('queued', 'running')`)
}

func newSweeper(db DB, bells *Bells, grace time.Duration, dueWhere string) *Sweeper {
	table := Table(bells.client.Schema())
	return &Sweeper{
		db: db, bells: bells, grace: grace, pages: 5,
		// Pages weir.run first, then joins: a LIMIT after the join bounds nothing. The limit is a literal, and OFFSET 0
		// keeps the look at the job a lookup by its key: under a generic plan PostgreSQL would take a tenth of all due
		// runs for the page, and read the whole of river_job to join it.
		page: fencing.Build("sweep page", `
with r as (
    select r.id, r.next_attempt_at, r.doorbell_id, r.blocked_reason from weir.run r
    where `+dueWhere+` and (r.next_attempt_at, r.id) > (@after_at::timestamptz, @after_run::uuid)
    order by r.next_attempt_at, r.id limit `+strconv.Itoa(pageSize)+`
), `+busy("r", table)+`, numbered as (select *, row_number() over (order by next_attempt_at, id) as n, count(*) over () as size from r)
select r.id, r.next_attempt_at, r.n = r.size, r.size, `+silentWhen+`
from numbered r left join lateral (select * from `+table+` j where j.id = r.doorbell_id offset 0) j on true
where r.n = r.size or `+silentWhen+`
order by r.n`),
		// Locked first, looked at in a second statement: a look in the same statement would see the doorbell from
		// before another node rang.
		lock: fencing.Build("sweep lock", `
select r.id from weir.run r where r.id = any(@runs::uuid[]) and `+dueWhere+`
order by r.id for no key update of r skip locked`),
		silent: fencing.Build("sweep silent", `
with `+busy("weir.run where id = any(@runs::uuid[])", table)+`
select r.id, r.kind, r.queue, r.priority, coalesce(r.doorbell_id, 0), j.attempted_at
from weir.run r left join `+table+` j on j.id = r.doorbell_id
where r.id = any(@runs::uuid[]) and `+dueWhere+` and `+silentWhen+` order by r.id`),
	}
}

// Sweep looks at some pages of due runs and rings for those whose doorbell is silent. It returns how many it rang.
func (s *Sweeper) Sweep(ctx context.Context) (int, error) {
	rang := 0
	for range s.pages {
		silent, size, err := s.readPage(ctx)
		if err != nil {
			return rang, fmt.Errorf("sweep: %w", err)
		}
		n, err := s.ring(ctx, silent)
		rang += n
		if err != nil && !fencing.IsTransient(err) {
			return rang, fmt.Errorf("sweep: %w", err)
		}
		if size < pageSize {
			s.after = cursor{} // the end; from the start again at the next tick
			break
		}
	}
	return rang, nil
}

func (s *Sweeper) readPage(ctx context.Context) (silent []uuid.UUID, size int, err error) {
	after := s.after.at
	if after.IsZero() {
		after = time.Unix(0, 0) // earlier than anything due
	}
	tx, err := fencing.Begin(ctx, s.db)
	if err != nil {
		return nil, 0, err
	}
	defer fencing.RollbackQuietly(ctx, tx)
	rows, err := tx.Query(ctx, s.page.SQL, s.page.Bind(fencing.Args{
		"grace": s.grace, "slack": slack, "blocked": blockedPause, "after_at": after, "after_run": s.after.run,
	})...)
	if err != nil {
		return nil, 0, err
	}
	var (
		run           uuid.UUID
		at            time.Time
		last, isQuiet bool
	)
	_, err = pgx.ForEachRow(rows, []any{&run, &at, &last, &size, &isQuiet}, func() error {
		if isQuiet {
			silent = append(silent, run)
		}
		if last {
			s.after = cursor{at, run}
		}
		return nil
	})
	if err != nil {
		return nil, 0, err
	}
	return silent, size, tx.Commit(ctx)
}

func (s *Sweeper) ring(ctx context.Context, runs []uuid.UUID) (int, error) {
	if len(runs) == 0 {
		return 0, nil
	}
	tx, err := fencing.Begin(ctx, s.db)
	if err != nil {
		return 0, err
	}
	defer fencing.RollbackQuietly(ctx, tx)
	rows, err := tx.Query(ctx, s.lock.SQL, s.lock.Bind(fencing.Args{"runs": runs, "grace": s.grace})...)
	if err != nil {
		return 0, err
	}
	locked, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
	if err != nil || len(locked) == 0 {
		return 0, err
	}
	rows, err = tx.Query(ctx, s.silent.SQL, s.silent.Bind(fencing.Args{"runs": locked, "grace": s.grace, "slack": slack, "blocked": blockedPause})...)
	if err != nil {
		return 0, err
	}
	var (
		rung    []fencing.Rung
		retired []fencing.Retired
	)
	var (
		r   fencing.Rung
		old fencing.Retired
	)
	if _, err := pgx.ForEachRow(rows, []any{&r.Run, &r.Kind, &r.Queue, &r.Priority, &old.Job, &old.AttemptedAt}, func() error {
		rung = append(rung, r)
		if old.Job != 0 {
			retired = append(retired, fencing.Retired{Job: old.Job, AttemptedAt: old.AttemptedAt, Reason: "rung again: the run was due and nobody came"})
		}
		return nil
	}); err != nil {
		return 0, err
	}
	retirement, err := s.bells.Retire(ctx, tx, retired)
	if err != nil {
		return 0, err
	}
	rung = retirement.AddOrphans(rung)
	if err := fencing.Ring(ctx, tx, s.bells, rung...); err != nil {
		return 0, err
	}
	return len(rung), tx.Commit(ctx)
}
