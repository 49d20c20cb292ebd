package fencing

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// ReapScope picks what the reaper may end. It reads the infinity end of run_due_idx: an index on the lease itself would
// cost every renewal its HOT update.
const reapScope = `r.next_attempt_at = 'infinity' and r.lease_expires_at < (select clock_timestamp())
      and (@only::uuid is null or r.id = @only::uuid)`

// The try that ended is recorded in the same statement; its owner is read from the locked row.
const reapFinal = `, tried as (
    insert into weir.ended_try (run_id, attempt, claimed_at, doorbell_id, owner, how, error_code)
    select fenced.id, fenced.attempt - 1, fenced.claimed_at, fenced.doorbell_id, locked.owner, 'reaped', 'lease_expired'
    from fenced join locked on locked.id = fenced.id
    on conflict (run_id, attempt) do nothing
)
select fenced.id, fenced.kind, fenced.queue, fenced.priority, fenced.status, fenced.attempt, fenced.reaps, fenced.failures,
    coalesce(locked.owner, ''), coalesce(fenced.doorbell_id, 0), fenced.doorbell_attempted_at, fenced.finished_at is not null
from fenced join locked on locked.id = fenced.id order by fenced.id`

var reaps = func() map[string]*Statement {
	out := map[string]*Statement{}
	for _, m := range Machines {
		out[m.Name] = m.Transition("reap", Reap, reapScope, reapFinal)
	}
	return out
}()

// Reaped is a run whose lease the reaper ended.
type Reaped struct {
	Run             uuid.UUID
	Kind, Queue     string
	Priority        int
	Status          Status
	Attempt         int64
	Reaps, Failures int
	// Owner is who let the lease run out; Doorbell and DoorbellAttemptedAt name its River job.
	Owner               string
	Doorbell            int64
	DoorbellAttemptedAt *time.Time
	Terminal            bool
}

// Bells moves the River jobs of runs, inside a transaction that holds the runs' locks.
type Bells interface {
	// Retire ends the River jobs of runs that are rung anew or are finished.
	Retire(ctx context.Context, tx pgx.Tx, old []Retired) (Retirement, error)
	// Ring inserts one doorbell a run and returns their ids in the same order.
	Ring(ctx context.Context, tx pgx.Tx, runs []Rung) ([]int64, error)
}

// Retired is a River job that must not act for its run any more.
type Retired struct {
	Job         int64
	AttemptedAt *time.Time // exactly this River attempt, where it is running
	Reason      string
}

// Retirement is what came of it.
type Retirement struct {
	// Canceled are the jobs that somebody has asked River to cancel meanwhile.
	Canceled []int64
	// Orphans are runs that waited under a job which rang for many: they want doorbells of their own. Their locks are held.
	Orphans []Rung
}

// AddOrphans adds those that are not in the list already.
func (r Retirement) AddOrphans(rung []Rung, except ...uuid.UUID) []Rung {
	if len(r.Orphans) == 0 {
		return rung
	}
	known := map[uuid.UUID]bool{}
	for _, id := range except {
		known[id] = true
	}
	for _, x := range rung {
		known[x.Run] = true
	}
	for _, o := range r.Orphans {
		if !known[o.Run] {
			rung = append(rung, o)
		}
	}
	return rung
}

// Rung is a run that wants a doorbell.
type Rung struct {
	Run         uuid.UUID
	Kind, Queue string
	Priority    int
	// At is when to ring; zero is at once.
	At time.Time
	// Tags are shown by River.
	Tags []string
	// Channel is a delivery's, where the caller knows it.
	Channel string
}

// Reaper ends leases that have run out (R2). It keeps no state between ticks and runs on every node.
type Reaper struct {
	DB    Beginner
	Bells Bells
	// Settle turns the open `started` receipts of runs into unknown. It is a statement of its own, after the locks were
	// taken: as a part of the first it would decide on a snapshot from before a claim that it waited for (F13).
	Settle   func(ctx context.Context, tx pgx.Tx, runs []uuid.UUID) error
	MaxReaps int
	// Limit bounds a transaction.
	Limit int
}

// Reap ends up to Limit leases of each machine, and reports what it ended, also beside an error.
func (r *Reaper) Reap(ctx context.Context) ([]Reaped, error) {
	var (
		all  []Reaped
		errs []error
	)
	for _, m := range Machines {
		reaped, err := r.reap(ctx, m, uuid.NullUUID{}, r.Limit)
		if err != nil && ctx.Err() == nil {
			reaped, err = r.reapOneByOne(ctx, m)
		}
		all = append(all, reaped...)
		if err != nil {
			errs = append(errs, fmt.Errorf("reap %s: %w", m.Name, err))
		}
	}
	return all, errors.Join(errs...)
}

var expired = func() map[string]*Statement {
	out := map[string]*Statement{}
	for _, m := range Machines {
		out[m.Name] = Compile(m.Name+"/expired", `
select id from weir.run where next_attempt_at = 'infinity' and lease_expires_at < (select clock_timestamp())
    and status in (`+literals(m.Ownable)+`) order by id limit @limit::int`)
	}
	return out
}()

// maxUnanswered is after how many errors that are not PostgreSQL's refusals the one-by-one path gives up: a server that
// is gone is not asked again for each run.
const maxUnanswered = 3

// reapOneByOne is what a deadlock, or a row that cannot be reaped at all, falls back to (R12): one stubborn row must not
// keep the others.
func (r *Reaper) reapOneByOne(ctx context.Context, m *Machine) ([]Reaped, error) {
	db, ok := r.DB.(DB)
	if !ok {
		return nil, fmt.Errorf("reaper: %T runs no single statements", r.DB)
	}
	stmt := expired[m.Name]
	rows, err := db.Query(ctx, stmt.SQL, stmt.Bind(Args{"limit": r.Limit})...)
	if err != nil {
		return nil, err
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
	if err != nil {
		return nil, err
	}
	var (
		all        []Reaped
		errs       []error
		unanswered int
	)
	for _, id := range ids {
		reaped, err := r.reap(ctx, m, uuid.NullUUID{UUID: id, Valid: true}, 1)
		all = append(all, reaped...)
		if err == nil || IsTransient(err) {
			continue
		}
		errs = append(errs, fmt.Errorf("run %s: %w", id, err))
		if OutcomeOf(err) != Refused {
			unanswered++
		}
		if unanswered >= maxUnanswered || ctx.Err() != nil {
			break
		}
	}
	return all, errors.Join(errs...)
}

func (r *Reaper) reap(ctx context.Context, m *Machine, only uuid.NullUUID, limit int) ([]Reaped, error) {
	tx, err := Begin(ctx, r.DB)
	if err != nil {
		return nil, err
	}
	defer RollbackQuietly(ctx, tx)

	stmt := reaps[m.Name]
	rows, err := tx.Query(ctx, stmt.SQL, stmt.Bind(Args{"max_reaps": r.MaxReaps, "limit": limit, "only": only})...)
	if err != nil {
		return nil, err
	}
	reaped, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (Reaped, error) {
		var x Reaped
		err := row.Scan(&x.Run, &x.Kind, &x.Queue, &x.Priority, &x.Status, &x.Attempt, &x.Reaps, &x.Failures,
			&x.Owner, &x.Doorbell, &x.DoorbellAttemptedAt, &x.Terminal)
		return x, err
	})
	if err != nil || len(reaped) == 0 {
		return nil, err
	}

	runs := make([]uuid.UUID, len(reaped))
	var retired []Retired
	for i, x := range reaped {
		runs[i] = x.Run
		if x.Doorbell != 0 {
			retired = append(retired, Retired{Job: x.Doorbell, AttemptedAt: x.DoorbellAttemptedAt, Reason: "lease expired"})
		}
	}
	if err := r.Settle(ctx, tx, runs); err != nil {
		return nil, fmt.Errorf("settle receipts: %w", err)
	}
	retirement, err := r.Bells.Retire(ctx, tx, retired)
	if err != nil {
		return nil, fmt.Errorf("retire doorbells: %w", err)
	}
	var rung []Rung
	for i, x := range reaped {
		switch {
		case x.Terminal:
		case x.Doorbell != 0 && slices.Contains(retirement.Canceled, x.Doorbell):
			// River's own cancel reached a job whose worker was dead already.
			if err := CancelLocked(ctx, tx, m, x.Run, CodeCanceledInRiver); err != nil {
				return nil, err
			}
			reaped[i].Status, reaped[i].Attempt, reaped[i].Terminal = m.Allowed(x.Status, Cancel)[0].To, x.Attempt+1, true
		default:
			rung = append(rung, Rung{Run: x.Run, Kind: x.Kind, Queue: x.Queue, Priority: x.Priority})
		}
	}
	// A dead worker's chunk gets as many doorbells as its runs need.
	if err := Ring(ctx, tx, r.Bells, retirement.AddOrphans(rung, runs...)...); err != nil {
		return nil, err
	}
	if err := tx.Commit(ctx); err != nil {
		return nil, err
	}
	return reaped, nil
}

var noteDoorbells = Compile("note doorbells", `
update weir.run r set doorbell_id = d.job, doorbell_attempted_at = null
from unnest(@runs::text[]::uuid[], @jobs::bigint[]) d(run, job) where r.id = d.run and r.lease_expires_at is null`)

// Ring rings for runs whose locks tx holds, and notes the new doorbells on them.
func Ring(ctx context.Context, tx pgx.Tx, bells Bells, rung ...Rung) error {
	if len(rung) == 0 {
		return nil
	}
	jobs, err := bells.Ring(ctx, tx, rung)
	if err != nil {
		return fmt.Errorf("ring: %w", err)
	}
	runs := make([]uuid.UUID, len(rung))
	for i, x := range rung {
		runs[i] = x.Run
	}
	if _, err := tx.Exec(ctx, noteDoorbells.SQL, noteDoorbells.Bind(Args{"runs": Texts(runs), "jobs": jobs})...); err != nil {
		return fmt.Errorf("note doorbells: %w", err)
	}
	return nil
}
