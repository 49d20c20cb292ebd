package workers

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"

	"github.com/weirqueue/weir/internal/doorbell"
	"github.com/weirqueue/weir/internal/fencing"
	"github.com/weirqueue/weir/internal/receipts"
	"github.com/weirqueue/weir/internal/reset"
	"github.com/weirqueue/weir/jobs"
)

// dbopsQueue is the dbops-reaper's own: a backlog of anything else never delays it.
const dbopsQueue = "weir_dbops"

type dbopsArgs struct{}

func (dbopsArgs) Kind() string { return "dbops-reaper" }

// addDBOps adds the upkeep of branch resets that every node does by itself, once more on River's clock: leases, doorbells,
// and resets that nobody works.
func (s *Service) addDBOps(workers *river.Workers) error {
	var one sync.Mutex // the sweeper is for one goroutine
	sweeper := doorbell.NewResetSweeper(s.pool, s.bells, s.cfg.DoorbellGrace)
	return river.AddWorkerSafely(workers, &upkeepWorker[dbopsArgs]{longest: 5 * time.Minute, stop: s.runs, do: func(ctx context.Context) error {
		one.Lock()
		defer one.Unlock()
		return errors.Join(s.reap(ctx), s.tendResets(ctx, sweeper, true))
	}})
}

// watch is a stopwatch of rounds that worked: since when this process has looked on without a break.
type watch struct {
	mu          sync.Mutex
	since, last time.Time
}

// round notes a round, and returns for how long they have gone well. A failed one, and a gap longer than most between
// two, which is how a process sees that it was stopped, begin anew.
func (w *watch) round(ok bool, most time.Duration) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	if w.since.IsZero() || now.Sub(w.last) > most {
		w.since = now
	}
	w.last = now
	if !ok {
		w.since = time.Time{}
		return 0
	}
	return now.Sub(w.since)
}

// tendResets rings for resets that are due and whose doorbell is silent, and closes those that nobody works. Leases that
// have run out are the reaper's.
//
// After an outage of the fleet or of the database everything is long due, and the workers come first: a process closes
// nothing before it has looked on for a while.
func (s *Service) tendResets(ctx context.Context, sweeper *doorbell.Sweeper, periodic bool) error {
	began := time.Now()
	rang, err := sweeper.Sweep(ctx)
	closed, patience := 0, 4*max(s.cfg.DoorbellGrace, s.cfg.ReaperInterval)
	if s.watched.round(err == nil, patience) >= patience {
		var cerr error
		closed, cerr = s.closeResets(ctx)
		err = errors.Join(err, cerr)
	}
	if periodic || rang+closed > 0 || err != nil {
		s.cfg.Observer.Observe(ctx, ResetsTended{Periodic: periodic, Took: time.Since(began), Err: err, Rang: rang, Closed: closed})
	}
	return err
}

// A page of resets that have been due for longer than their limit. Each is closed by itself, and the next page begins
// behind this one, so that one that cannot be closed keeps no other.
const abandonedPage = 100

var abandoned = fencing.Compile("abandoned resets", `
select r.id, r.next_attempt_at, r.needs, coalesce(r.doorbell_id, 0) from weir.run r
where r.kind = 'branch_reset' and r.status in ('queued', 'running')
    and r.next_attempt_at < (select clock_timestamp()) - @limit::interval
    and (r.next_attempt_at, r.id) > (@after_at::timestamptz, @after_run::uuid)
order by r.next_attempt_at, r.id limit 100`)

type abandonedReset struct {
	run      uuid.UUID
	due      time.Time
	needs    []string
	doorbell int64
}

// closeResets ends resets that nobody has worked for as long as one may take: their branches are not held for ever by
// the absence of a worker.
func (s *Service) closeResets(ctx context.Context) (closed int, err error) {
	var errs []error
	last := abandonedReset{due: time.Unix(0, 0)}
	for {
		rows, err := s.pool.Query(ctx, abandoned.SQL, abandoned.Bind(fencing.Args{
			"limit": s.cfg.Branches.Limit, "after_at": last.due, "after_run": last.run,
		})...)
		if err != nil {
			return closed, errors.Join(append(errs, fmt.Errorf("look for abandoned resets: %w", err))...)
		}
		page, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (a abandonedReset, err error) {
			err = row.Scan(&a.run, &a.due, &a.needs, &a.doorbell)
			return a, err
		})
		if err != nil {
			return closed, errors.Join(append(errs, fmt.Errorf("look for abandoned resets: %w", err))...)
		}
		for _, a := range page {
			ok, err := s.closeReset(ctx, a)
			if ok {
				closed++
			}
			if err != nil && !fencing.IsTransient(err) {
				errs = append(errs, fmt.Errorf("close reset %s: %w", a.run, err))
			}
		}
		if len(page) < abandonedPage || ctx.Err() != nil {
			return closed, errors.Join(errs...)
		}
		last = page[len(page)-1]
	}
}

// closeReset claims the run and refuses it, in one transaction: whoever claims it first wins, and nothing is left owned.
func (s *Service) closeReset(ctx context.Context, a abandonedReset) (bool, error) {
	tx, err := fencing.Begin(ctx, s.pool)
	if err != nil {
		return false, err
	}
	defer fencing.RollbackQuietly(ctx, tx)
	c, ok, err := receipts.Claim(ctx, tx, fencing.ClaimRequest{
		Run: a.run, Kind: jobs.KindBranchReset, Owner: s.owner, Doorbell: a.doorbell, DoorbellAttemptedAt: time.Now(),
		Lease: s.cfg.Branches.Lease, StepTime: s.cfg.Branches.StepTime, Suspect: true, Offers: a.needs,
	})
	if err != nil || !ok {
		return false, err
	}
	list, err := receipts.List(ctx, tx, a.run)
	if err != nil {
		return false, err
	}
	code := "abandoned"
	for _, r := range list {
		if r.Step.Index == reset.Issue.Index {
			code = map[receipts.Outcome]string{
				receipts.OK: "limit", receipts.Started: "outcome_unknown", receipts.Unknown: "outcome_unknown", receipts.Failed: "not_accepted",
			}[r.Outcome]
		}
	}
	if err := receipts.SettleUnknown(ctx, tx, []uuid.UUID{a.run}); err != nil {
		return false, err
	}
	end := receipts.End{
		Event: fencing.Refuse, Run: a.run, Kind: c.Kind, Attempt: c.Attempt, Owner: s.owner, Step: reset.Issue, Code: code,
		Message: fmt.Sprintf("nobody has worked this reset for %s: does any worker have its provider?", s.cfg.Branches.Limit),
	}
	if _, err := end.Write(ctx, tx); err != nil {
		return false, err
	}
	if a.doorbell != 0 {
		if _, err := s.bells.Retire(ctx, tx, []fencing.Retired{{Job: a.doorbell, Reason: "the reset was closed: nobody worked it"}}); err != nil {
			return false, err
		}
	}
	if err := tx.Commit(ctx); err != nil {
		return false, err
	}
	s.log.WarnContext(ctx, "weir: closed a branch reset that nobody worked", "run", a.run, "code", code)
	return true, nil
}
