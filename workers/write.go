package workers

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weirqueue/weir/internal/coalesce"
	"github.com/weirqueue/weir/internal/fencing"
	"github.com/weirqueue/weir/internal/receipts"
	"github.com/weirqueue/weir/jobs"
)

// errGivenUp says that the database did not take a write for as long as the lease could last.
var errGivenUp = errors.New("weir: the database did not answer while the lease lasted")

// write gives the run away. It tries again for as long as the lease may last, since what it knows, such as that a mail
// was taken, is known to nobody else. An answer that was lost is resolved by raising the own attempt (R10); the write
// is then repeated under the new one. It returns ErrLeaseLost when the run is not ours any more.
func (s *Service) write(ctx context.Context, held *fencing.Held, c *fencing.Claimed, k *workKind, res result) (receipts.Ended, error) {
	held.Finishing()
	end := receipts.End{
		Event: res.event, Run: c.Run, Kind: c.Kind, Began: c.Attempt, Owner: s.owner, Step: res.step, Outcome: res.outcome,
		ExternalRef: clean(res.externalRef, maxExternalRef), Code: res.code, Delay: res.delay,
	}
	end.StepOutput, end.Output = res.stepOutput, res.output
	if res.err != nil {
		end.Message = clean(textOf(res.err), maxMessage)
	}
	deadline := time.Now().Add(k.lease)
	pause := 50 * time.Millisecond
	for {
		end.Attempt = held.Attempt()
		ended, err := s.writeOnce(ctx, end, k)
		if err == nil || errors.Is(err, fencing.ErrLeaseLost) {
			return ended, err
		}
		dropReadOnly(s.pool, err)
		if held.Alive() {
			deadline = time.Now().Add(k.lease) // heartbeats go on, so the lease does
		}
		if inDoubt(err) {
			held.Skip()
			finished, rerr := s.resolve(ctx, held, end.Attempt, c, k, deadline)
			if rerr != nil {
				return receipts.Ended{}, rerr
			}
			if finished {
				rows := fencing.MachineOf(c.Kind).Allowed(c.Status, res.event)
				return receipts.Ended{Status: rows[len(rows)-1].To, Attempt: end.Attempt, Terminal: true}, nil
			}
		}
		s.log.WarnContext(ctx, "weir: the end of a try could not be written yet", "run", c.Run, "error", err)
		if !sleepUntil(ctx, &pause, deadline) {
			return receipts.Ended{}, errGivenUp
		}
	}
}

func (s *Service) writeOnce(ctx context.Context, end receipts.End, k *workKind) (receipts.Ended, error) {
	if end.Event == fencing.Succeed && end.Outcome == receipts.OK {
		return k.writes.succeeds.Do(ctx, end) // each of its batches is bounded
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout(k.lease))
	defer cancel()
	conn, err := s.acquire(ctx)
	if err != nil {
		return receipts.Ended{}, err
	}
	defer conn.Release()
	if end.Event == fencing.Release || k.ringsRetries {
		return s.writeAndRing(ctx, conn, end)
	}
	return end.Write(ctx, conn)
}

// errNoConnection says that nothing was sent: there is no doubt about what it did, so heartbeats need not stop for it.
var errNoConnection = errors.New("weir: no connection to the database")

func (s *Service) acquire(ctx context.Context) (*pgxpool.Conn, error) {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNoConnection, err)
	}
	return conn, nil
}

// inDoubt reports that a statement may have committed although it answered err.
func inDoubt(err error) bool {
	return !errors.Is(err, errNoConnection) && !errors.Is(err, coalesce.ErrNotSent) && fencing.OutcomeOf(err) == fencing.Unknown
}

// writeAndRing gives the run away and rings for it in one transaction, unless it has ended: a release, so that it is taken
// up at once (R5), and what no doorbell would come back for. When the transaction's outcome is unknown, write resolves it
// like any other.
func (s *Service) writeAndRing(ctx context.Context, conn *pgxpool.Conn, end receipts.End) (receipts.Ended, error) {
	tx, err := fencing.Begin(ctx, conn)
	if err != nil {
		return receipts.Ended{}, err
	}
	defer fencing.RollbackQuietly(ctx, tx)
	ended, err := end.Write(ctx, tx)
	if err != nil {
		return ended, err
	}
	if !ended.Terminal {
		if err := s.bells.RingRun(ctx, tx, end.Run); err != nil {
			return ended, err
		}
	}
	return ended, tx.Commit(ctx)
}

// resolve finds out what a write did whose answer was lost. It reports whether the write committed.
func (s *Service) resolve(ctx context.Context, held *fencing.Held, attempt int64, c *fencing.Claimed, k *workKind, deadline time.Time) (finished bool, err error) {
	pause := 50 * time.Millisecond
	for {
		sent := time.Now()
		// The pool has thrown the failed connection away, so this is another one.
		rctx, cancel := context.WithTimeout(ctx, min(k.lease, 10*time.Second))
		verdict, raised, err := fencing.ResolveDoubt(rctx, s.pool, c.Run, attempt, k.lease)
		cancel()
		if err == nil {
			name := map[fencing.Verdict]string{fencing.StillOwner: "still_owner", fencing.Finished: "finished", fencing.Lost: "lost"}[verdict]
			s.cfg.Observer.Observe(ctx, DoubtResolved{Run: jobs.RunID(c.Run), Kind: c.Kind, Verdict: name})
			switch verdict {
			case fencing.StillOwner:
				held.Swap(raised, sent)
				return false, nil
			case fencing.Finished:
				return true, nil
			case fencing.Lost:
			}
			return false, fencing.ErrLeaseLost
		}
		dropReadOnly(s.pool, err)
		s.log.WarnContext(ctx, "weir: an unknown outcome could not be resolved yet", "run", c.Run, "error", err)
		if !sleepUntil(ctx, &pause, deadline) {
			return false, errGivenUp
		}
	}
}

// sleepUntil waits for a growing pause and reports whether there is time for another go.
func sleepUntil(ctx context.Context, pause *time.Duration, deadline time.Time) bool {
	if time.Now().Add(*pause).After(deadline) {
		return false
	}
	timer := time.NewTimer(jitter(*pause))
	defer timer.Stop()
	*pause = min(*pause*2, 2*time.Second)
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

func (s *Service) lost(ctx context.Context, held *fencing.Held, c *fencing.Claimed, res result, err error) {
	s.log.WarnContext(ctx, "weir: the lease was lost; nothing was written", "run", c.Run, "attempt", held.Attempt(),
		"write", string(res.event), "reason", err)
	s.cfg.Observer.Observe(ctx, LeaseLost{
		Run: jobs.RunID(c.Run), Kind: c.Kind, Attempt: held.Attempt(), Write: string(res.event),
	})
}

// requestCancel notes on the run that somebody cancelled its River job, so that the write that follows ends it. done
// says that the run is canceled already: nothing of it was outside.
func (s *Service) requestCancel(ctx context.Context, run uuid.UUID) (noted, done bool) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	done, err := s.cancelInRiver(ctx, run)
	if err != nil {
		s.log.WarnContext(ctx, "weir: the cancellation of a River job could not be noted yet", "run", run, "error", err)
		return false, false
	}
	return true, done
}

func (s *Service) cancelInRiver(ctx context.Context, run uuid.UUID) (done bool, err error) {
	tx, err := fencing.Begin(ctx, s.pool)
	if err != nil {
		return false, err
	}
	defer fencing.RollbackQuietly(ctx, tx)
	l, found, done, err := receipts.Cancel(ctx, tx, run, fencing.CodeCanceledInRiver)
	if err != nil || !found || l.Terminal {
		return false, err
	}
	if !done && !l.Owned {
		// A branch reset that goes on at its provider is looked after to its end, and its doorbell is gone.
		rung := fencing.Rung{Run: run, Kind: l.Kind, Queue: l.Queue, Priority: l.Priority}
		if err := fencing.Ring(ctx, tx, s.bells, rung); err != nil {
			return false, err
		}
	}
	return done, tx.Commit(ctx)
}
