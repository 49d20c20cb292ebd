package drill

import (
	"context"
	"errors"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/weirqueue/weir/internal/faultproxy"
	"github.com/weirqueue/weir/internal/postgres"
)

// kill ends the process at once, and another one takes its place.
func (n *nemesis) kill(s *slot) bool {
	s.signal(syscall.SIGKILL, true)
	if !s.gone(10 * time.Second) {
		return false
	}
	return n.respawn(s)
}

// term is a deploy: the process may finish what it does, and hands over the rest.
func (n *nemesis) term(s *slot) bool {
	s.end(15 * time.Second)
	return n.respawn(s)
}

func (n *nemesis) respawn(s *slot) bool {
	if err := n.fleet.spawn(s, n.roll(n.programs)); err != nil {
		n.say("%v", err)
		return false
	}
	return true
}

// freeze stops the process for longer than its leases.
func (n *nemesis) freeze(ctx context.Context, s *slot) {
	s.signal(syscall.SIGSTOP, false)
	sleep(ctx, n.beyondLease())
	s.signal(syscall.SIGCONT, false)
}

// trapTime is how long a fault waits for its place to come by.
const trapTime = time.Second

// freezeAt stops the process at an exact place, or anywhere when it does not come by there. What it had sent by then is
// with the server.
func (n *nemesis) freezeAt(ctx context.Context, f *Fault, s *slot) {
	what := f.What
	at := map[string]faultproxy.Point{
		faultStopBegin: faultproxy.AtBegin, faultStopHold: faultproxy.AtCommit, faultStopAfter: faultproxy.AtCommit,
		faultStopWrite: faultproxy.AtWrite, faultStopBeat: faultproxy.AtBeat,
	}[what]
	reached, thawed := make(chan struct{}), make(chan struct{})
	s.proxy.Set(at, func() faultproxy.Verdict {
		s.signal(syscall.SIGSTOP, false)
		close(reached)
		if what == faultStopHold || what == faultStopBeat {
			<-thawed // with the fence's lock held, or after somebody else has claimed; it comes before the process wakes up
		}
		return faultproxy.Forward
	})
	if !n.reached(ctx, s, at, reached) {
		f.What = faultStop
		s.signal(syscall.SIGSTOP, false)
	}
	f.From = n.clock()
	sleep(ctx, n.beyondLease())
	if f.What == faultStopBeat {
		sleep(ctx, n.lease/2) // until somebody else is the owner
	}
	close(thawed)
	sleep(ctx, 20*time.Millisecond)
	s.signal(syscall.SIGCONT, false)
}

// reached waits until the trap is sprung, or takes it back.
func (n *nemesis) reached(ctx context.Context, s *slot, at faultproxy.Point, reached <-chan struct{}) bool {
	select {
	case <-reached:
		return true
	case <-ctx.Done():
	case <-time.After(trapTime):
	}
	if s.proxy.Unset(at) {
		return false
	}
	<-reached // just now
	return true
}

// cutAt cuts one connection at an exact place.
func (n *nemesis) cutAt(ctx context.Context, f *Fault, s *slot) bool {
	at, verdict := faultproxy.AtCommit, faultproxy.CutBefore
	switch f.What {
	case faultCutAfter:
		verdict = faultproxy.CutAfter
	case faultCutWrite:
		at, verdict = faultproxy.AtWrite, faultproxy.CutAfter
	}
	reached := make(chan struct{})
	s.proxy.Set(at, func() faultproxy.Verdict {
		close(reached)
		return verdict
	})
	return n.reached(ctx, s, at, reached)
}

// terminate ends one of the worker's sessions on the server.
func (n *nemesis) terminate(ctx context.Context, s *slot) bool {
	pids := s.proxy.Backends()
	if len(pids) == 0 {
		return false
	}
	var ok bool
	err := n.pool.QueryRow(ctx, "select pg_terminate_backend($1)", int64(pids[n.roll(len(pids))])).Scan(&ok)
	return err == nil && ok
}

// lock holds rows of runs that the worker owns: heartbeats, fences and the reaper must live with that.
func (n *nemesis) lock(ctx context.Context, f *Fault) bool {
	hold := n.between(n.lease/5, n.lease*24/100) // a fence waits for a lock for a quarter of its lease
	if n.roll(3) == 0 {
		hold = n.beyondLease()
	}
	err := pgx.BeginFunc(ctx, n.pool, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, `select r.id::text from weir.run r where r.lease_expires_at is not null and r.id in
			(select run_id from weir_drill.history where worker = $1 and what = 'run' order by seq desc limit 20)
			limit 4 for no key update of r skip locked`, f.Worker)
		if err != nil {
			return err
		}
		if f.Runs, err = pgx.CollectRows(rows, pgx.RowTo[string]); err != nil || len(f.Runs) == 0 {
			return err
		}
		sleep(ctx, hold)
		return nil
	})
	return err == nil && len(f.Runs) > 0
}

// tamper tries to change what a live run was asked to do.
func (n *nemesis) tamper(ctx context.Context) bool {
	tag, err := n.pool.Exec(ctx, `update weir.payload set body = body || '\x20'::bytea
		where run_id = (select r.id from weir.run r join weir_drill.asked a on a.run_id = r.id
			where r.finished_at is null and r.lease_expires_at is null limit 1)`)
	if err == nil && tag.RowsAffected() > 0 {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.broken = append(n.broken, "the payload of a live run was changed, and nothing refused that")
	}
	var refused *pgconn.PgError // by the database, which is more than no answer
	return errors.As(err, &refused) && refused.SeverityUnlocalized == "ERROR"
}

// restarts stops the database now and then, and starts it again.
func (n *nemesis) restarts(ctx context.Context) {
	for {
		sleep(ctx, n.between(18*time.Second, 26*time.Second))
		if ctx.Err() != nil {
			return
		}
		mode := postgres.Fast
		if n.roll(2) == 0 {
			mode = postgres.Immediate
		}
		from := n.clock()
		if err := n.server.Restart(context.WithoutCancel(ctx), mode); err != nil {
			n.say("restart PostgreSQL: %v", err)
			return
		}
		n.note(Fault{What: faultRestart, From: from, Until: n.clock()})
	}
}
