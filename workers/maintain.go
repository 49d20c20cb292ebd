package workers

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weirqueue/weir/internal/fencing"
	"github.com/weirqueue/weir/jobs"
)

// longWait is for how long a due run may wait before operators are warned: its queue may be one that nobody works.
const longWait = 5 * time.Minute

// maintain is the reaper that runs on every node (R13): it depends neither on River's leader nor on any worker's clock.
func (s *Service) maintain(ctx context.Context) {
	for {
		spread := s.cfg.ReaperInterval / 5
		timer := time.NewTimer(s.cfg.ReaperInterval - spread/2 + rand.N(spread))
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
		began := time.Now()
		waits, queue, err := s.upkeep(ctx)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			dropReadOnly(s.pool, err)
			s.log.ErrorContext(ctx, "weir: upkeep of runs failed; it is tried again", "error", err)
		} else {
			s.lastGood.Store(time.Now().UnixNano())
		}
		if waits > longWait {
			s.log.WarnContext(ctx, "weir: a run has been due for long; does anybody work its queue?", "waits", waits.Round(time.Second), "queue", queue)
		}
		s.cfg.Observer.Observe(ctx, MaintenanceDone{Took: time.Since(began), Err: err, OldestDue: waits, OldestQueue: queue})
	}
}

// upkeep is one round. A part that fails does not keep the others from their turn.
func (s *Service) upkeep(ctx context.Context) (oldest time.Duration, queue string, err error) {
	// A call that hangs must not stop the loop for ever (RV-08).
	ctx, cancel := context.WithTimeout(ctx, max(4*s.cfg.ReaperInterval, 5*time.Second))
	defer cancel()
	var errs []error

	errs = append(errs, s.reap(ctx), s.expirePlans(ctx))
	rang, err := s.sweeper.Sweep(ctx)
	errs = append(errs, err)
	if rang > 0 {
		s.log.InfoContext(ctx, "weir: rang again for runs that were due", "runs", rang)
		s.cfg.Observer.Observe(ctx, DoorbellsRung{Runs: rang})
	}

	errs = append(errs, s.followCanceled(ctx), s.tendResets(ctx, s.resets, false))
	oldest, queue, err = fencing.OldestDue(ctx, s.pool)
	errs = append(errs, err)
	return oldest, queue, errors.Join(errs...)
}

// reap ends the leases that have run out, and says which.
func (s *Service) reap(ctx context.Context) error {
	reaped, err := s.reaper.Reap(ctx)
	for _, r := range reaped {
		s.log.WarnContext(ctx, "weir: a lease ran out", "run", r.Run, "kind", r.Kind, "owner", r.Owner, "status", r.Status, "reaps", r.Reaps)
		s.cfg.Observer.Observe(ctx, RunReaped{
			Run: jobs.RunID(r.Run), Kind: r.Kind, Status: jobs.Status(r.Status), Attempt: r.Attempt, Reaps: r.Reaps, Owner: r.Owner,
		})
	}
	return err
}

// followCanceled cancels the runs whose River job somebody cancelled, also those that are due only tomorrow.
func (s *Service) followCanceled(ctx context.Context) error {
	runs, err := s.canceled.Next(ctx)
	errs := []error{err}
	for _, run := range runs {
		_, err := s.cancelInRiver(ctx, run)
		errs = append(errs, err)
		if err == nil {
			s.log.InfoContext(ctx, "weir: canceled a run whose River job was cancelled", "run", run)
			s.cfg.Observer.Observe(ctx, RunCanceledInRiver{Run: jobs.RunID(run)})
		}
	}
	return errors.Join(errs...)
}

func (s *Service) dialHeartbeat(ctx context.Context) (*pgx.Conn, error) {
	return dialOwn(ctx, s.pool, "weir heartbeat", s.cfg.beat())
}

func (s *Service) reportBeat(r fencing.BeatReport) {
	ctx := context.Background()
	switch {
	case r.Err != nil:
		s.log.ErrorContext(ctx, "weir: a heartbeat failed; it is tried again", "error", r.Err)
	case r.Lost+r.Overdue > 0:
		s.log.WarnContext(ctx, "weir: a heartbeat found runs that are not ours any more", "lost", r.Lost, "overdue", r.Overdue)
	}
	s.cfg.Observer.Observe(ctx, Heartbeat{
		Renewed: r.Renewed, Locked: r.Locked, Lost: r.Lost, Overdue: r.Overdue, Took: r.Took, Err: r.Err,
	})
}
