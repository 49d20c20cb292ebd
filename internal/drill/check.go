package drill

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// grace is what a recovery may take beside lease, step and reaper: a poll, a start, a busy machine.
const grace = time.Second

// checker reads the records of a drill that is over. It asks nobody else.
type checker struct {
	opts    Options
	faults  []Fault
	outages []Fault
	stalls  *stalls
}

// check fills the report.
func (c *checker) check(ctx context.Context, pool *pgxpool.Pool, subjects []Subject, records *Records, r *Report) error {
	for _, f := range c.faults {
		if f.What == faultRestart {
			c.outages = append(c.outages, f)
		}
	}
	short := 0
	for _, run := range records.runs {
		r.Runs++
		if !run.Terminal {
			r.LostRuns++
			r.fault("run %s is not terminal: %s", run.ID, orGone(run.Status))
		}
		for _, outcome := range run.Receipts {
			if outcome == "ok" {
				r.Steps++
			}
		}
		r.StaleCommits += run.stale
		short += c.waited(run)
		for _, f := range run.faults {
			r.fault("%s", f)
		}
		c.takeovers(run, r)
	}
	for _, s := range subjects {
		effects, err := s.Check(ctx, pool, records)
		if err != nil {
			return fmt.Errorf("drill: check %s: %w", s.Name(), err)
		}
		r.Effects += effects.Count
		r.DuplicateEffects += effects.Duplicates + effects.Wrong
		for _, f := range effects.Faults {
			r.fault("%s", f)
		}
	}
	if short > 2+r.Steps/500 {
		r.fault("%d leases were stamped before a wait, and not after it", short)
	}
	if allowed := 2 + r.Takeovers/10; r.Unprovoked > allowed {
		r.fault("%d runs were taken over although nothing was done to their owners; %d are the machine's noise", r.Unprovoked, allowed)
	}
	return c.counts(ctx, pool, r)
}

func orGone(status string) string {
	if status == "" {
		return "it is gone"
	}
	return "it is " + status
}

// takeovers counts what was taken over and finished, and how long that took from the fault on.
func (c *checker) takeovers(run *RunRecord, r *Report) {
	for _, t := range run.takeovers {
		if run.Terminal {
			r.Takeovers++
		}
		if t.next.IsZero() {
			continue // it is lost, and reported as that
		}
		fault, ok := c.cause(run.ID.String(), t)
		if !ok {
			if !t.overdue && !c.outage(t.since, t.at) {
				r.Unprovoked++
			}
			continue
		}
		from := fault.From
		if from.Before(t.alive) { // it had survived that one
			from = t.alive
		}
		// The slot of a suspect, and an outage of the database, are waited for beyond any bound of ours.
		if t.overdue || t.suspect || c.outage(from, t.next) {
			continue
		}
		took := t.next.Sub(from) - c.stalls.during(from, t.next)
		bound := c.opts.Lease + c.opts.Reaper*6/5 + grace
		alone := fault.What == faultKill && !c.another(t.at, t.next)
		if !alone {
			// Whoever heard the new doorbell may have been next: then the sweep rings again.
			bound += max(c.opts.stepTime(), doorbellGrace(c.opts.Lease)+c.opts.Reaper*6/5)
		}
		if took.Seconds() > r.MaxRecoveryS {
			r.MaxRecoveryS = took.Seconds()
		}
		if alone && took.Seconds() > r.MaxKillRecoveryS {
			r.MaxKillRecoveryS = took.Seconds()
		}
		if took > bound && c.opts.Other == "" { // of two builds, one may have to wait for the other
			r.fault("run %s: %s after the fault %q of %s somebody went on: at most %s is promised", run.ID, took.Round(time.Millisecond), fault.What, t.worker, bound)
		}
	}
}

// another reports whether anything was done to any worker in that time.
func (c *checker) another(from, until time.Time) bool {
	for _, f := range c.faults {
		if f.Worker != "" && f.What != faultTamper && f.From.Before(until) && f.Until.After(from) {
			return true
		}
	}
	return false
}

// cause is the fault that the owner met while it owned the run.
func (c *checker) cause(run string, t takeover) (Fault, bool) {
	var found Fault
	ok := false
	for _, f := range c.faults {
		mine := f.Worker == t.worker
		if f.What == faultLock {
			mine = false
			for _, id := range f.Runs {
				mine = mine || id == run
			}
		}
		if !mine || f.Until.Before(t.since) || f.From.After(t.at) {
			continue
		}
		if !ok || f.From.Before(found.From) {
			found, ok = f, true
		}
	}
	return found, ok
}

// waited counts the leases that were short when they were written, of runs whose rows the drill held meanwhile. Where it
// held nothing there was nothing to wait for but the machine.
func (c *checker) waited(run *RunRecord) int {
	short := 0
	for _, l := range run.shortLeases {
		if slices.ContainsFunc(c.faults, func(f Fault) bool {
			return f.What == faultLock && f.From.Before(l.written) && f.Until.After(l.stamped) && slices.Contains(f.Runs, run.ID.String())
		}) {
			short++
		}
	}
	return short
}

// outage reports whether the database was away in that time, or shortly before it.
func (c *checker) outage(from, to time.Time) bool {
	for _, o := range c.outages {
		if o.From.Before(to) && o.Until.Add(2*c.opts.Lease).After(from) {
			return true
		}
	}
	return false
}

// counts are what the workers noted, and what SQL can count.
func (c *checker) counts(ctx context.Context, pool *pgxpool.Pool, r *Report) error {
	harmed := map[string]bool{}
	for _, f := range c.faults {
		harmed[f.Worker] = true
	}
	rows, err := pool.Query(ctx, `select f.worker, exists (select from weir.ended_try t where t.run_id = f.run_id and t.attempt >= f.attempt and t.how = 'reaped')
		from weir_drill.refusal f`)
	if err != nil {
		return fmt.Errorf("drill: read the refusals: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var (
			worker string
			reaped bool
		)
		if err := rows.Scan(&worker, &reaped); err != nil {
			return err
		}
		if harmed[worker] || reaped {
			r.FenceRefusals++
		}
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("drill: read the refusals: %w", err)
	}
	if err := c.lateBeats(ctx, pool, r); err != nil {
		return err
	}
	var released int
	err = pool.QueryRow(ctx, `select count(*) from weir.ended_try t join weir_drill.asked a using (run_id) join weir.run r on r.id = t.run_id
		where t.how = 'released' and r.finished_at is not null`).Scan(&released)
	if err != nil {
		return fmt.Errorf("drill: count hand-overs: %w", err)
	}
	r.Takeovers += released
	return nil
}

// lateBeats finds heartbeats that came to nothing while rows of their worker were locked and nothing else was done to
// it: a renewal never waits for a lock.
func (c *checker) lateBeats(ctx context.Context, pool *pgxpool.Pool, r *Report) error {
	rows, err := pool.Query(ctx, "select worker, at from weir_drill.late_beat")
	if err != nil {
		return fmt.Errorf("drill: read the heartbeats: %w", err)
	}
	var (
		worker string
		at     time.Time
		waited int
	)
	if _, err := pgx.ForEachRow(rows, []any{&worker, &at}, func() error {
		since := at.Add(-c.opts.Lease)
		locked := slices.ContainsFunc(c.faults, func(f Fault) bool {
			return f.What == faultLock && f.Worker == worker && f.From.Before(at) && f.Until.After(since)
		})
		other := c.outage(since, at) || slices.ContainsFunc(c.faults, func(f Fault) bool {
			return f.What != faultLock && f.What != faultTamper && f.Worker == worker && f.From.Before(at) && f.Until.After(since)
		})
		if locked && !other {
			waited++
		}
		return nil
	}); err != nil {
		return fmt.Errorf("drill: read the heartbeats: %w", err)
	}
	if allowed := 5 + r.Faults[faultLock]/2; waited > allowed {
		r.fault("%d heartbeats came to nothing while rows were locked; %d are the machine's noise", waited, allowed)
	}
	return nil
}
