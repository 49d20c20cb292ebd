//go:build linux

package clocks_test

import (
	"log/slog"
	"testing"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/internal/postgres/pgtest"
	"github.com/weirqueue/weir/jobs"
)

const hours = 6 * time.Hour

// soon is how late a run may come that waits for the sweep: the doorbell's grace, the slack of River's times, and a
// machine that is busy.
const soon = 10 * time.Second

// L11, LF-01: the database's clock is hours off from that of all workers. It alone says when a lease is over and when a run
// is due; what River puts off by the workers' clocks is rung again.
func TestDatabaseClock_HoursOffFromItsWorkers(t *testing.T) {
	t.Parallel()
	for name, off := range map[string]time.Duration{"ahead": hours, "behind": -hours} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, skewedDatabase(t, off))
			a, b := w.start(0), w.start(0)

			slow := w.owned(w.notify(nil, "slow")[0])
			plain := w.notify(nil, names("plain", 20)...)
			retried := w.notify(nil, names("twice", 6)...)
			at := w.now().Add(2 * time.Second)
			later := w.notify(&jobs.Opts{ScheduledAt: at}, "later")
			// A time by the enqueuer's clock is what it is by the database's: long past, or hours away.
			mine := w.notify(&jobs.Opts{ScheduledAt: time.Now().Add(2 * time.Second)}, "mine")

			w.keeps(slow)
			close(w.release["slow"])
			for _, run := range w.sent(append(plain, slow.ID)...) {
				require.Zero(t, run.Failures)
			}
			for i, run := range w.sent(retried...) {
				tries, err := w.client.Tries(t.Context(), retried[i])
				require.NoError(t, err)
				require.Len(t, tries, 1, "%+v", tries)
				require.Equal(t, "failed", tries[0].How)
				require.Less(t, run.FinishedAt.Sub(tries[0].EndedAt), soon)
			}
			run := w.sent(later...)[0]
			require.False(t, run.FinishedAt.Before(at), "not before it is due")
			require.Less(t, run.FinishedAt.Sub(at), soon)
			require.NotZero(t, w.rungAgain(), "what River would have brought hours later")

			mails := 1 + len(plain) + len(retried) + 1
			if off > 0 {
				w.sent(mine...)
				mails++
			} else {
				require.Equal(t, jobs.StatusPending, w.get(mine[0]).Status)
				require.InDelta(t, hours.Seconds(), w.get(mine[0]).NextAttemptAt.Sub(w.now()).Seconds(), 60)
			}
			w.settled(mails, 0)

			// And an owner that is gone is missed after its lease, no sooner and no hours later.
			orphan := w.owned(w.notify(nil, "orphan")[0])
			heir := w.orphan(orphan, a, b)
			w.settled(mails+1, 1)
			w.stop(heir)
		})
	}
}

// L11, RV-16: one worker's clock is hours off, and it is River's leader, which schedules, rescues and cleans by it.
func TestWorkerClock_HoursOffAndLeadingRiver(t *testing.T) {
	t.Parallel()
	for name, off := range map[string]time.Duration{"ahead": hours, "behind": -hours} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, pgtest.URL(t))
			right := w.start(0)
			slow := w.owned(w.notify(nil, "slow")[0])
			require.True(t, right.owns(slow))
			wrong := w.start(off)
			w.lead(wrong)
			if off > 0 {
				w.eventually("River takes the healthy owner's job for stuck", func() bool {
					return value[int](w, "select count(*) from river_job where errors[1] ->> 'error' like 'Stuck job rescued%'") > 0
				})
			}

			retried := w.notify(nil, names("twice", 20)...)
			at := w.now().Add(2 * time.Second)
			later := w.notify(&jobs.Opts{ScheduledAt: at}, "later")
			w.keeps(slow)
			close(w.release["slow"])
			w.sent(slow.ID)
			for i, run := range w.sent(retried...) {
				tries, err := w.client.Tries(t.Context(), retried[i])
				require.NoError(t, err)
				require.Len(t, tries, 1, "%+v", tries)
				require.Equal(t, "failed", tries[0].How)
				require.Less(t, run.FinishedAt.Sub(tries[0].EndedAt), soon)
			}
			require.Equal(t, 2, value[int](w, "select count(distinct owner) from weir.ended_try"), "both processes took part")
			run := w.sent(later...)[0]
			require.False(t, run.FinishedAt.Before(at), "not before it is due")
			require.Less(t, run.FinishedAt.Sub(at), soon)
			require.NotZero(t, w.rungAgain(), "what River would have brought hours later")
			require.Equal(t, wrong.river, w.leader(), "it led to the end")
			w.settled(1+len(retried)+1, 0)

			orphan := w.owned(w.notify(nil, "orphan")[0])
			heir := w.orphan(orphan, right, wrong)
			w.settled(1+len(retried)+2, 1)
			w.stop(heir)
		})
	}
}

// orphan kills the run's owner, sees that another process sends it after the lease, and returns that one.
func (w *world) orphan(run *jobs.Run, of ...*process) (heir *process) {
	w.t.Helper()
	for _, p := range of {
		if p.owns(run) {
			require.NoError(w.t, p.cmd.Process.Kill())
			<-p.done
		} else {
			heir = p
		}
	}
	require.NotNil(w.t, heir)
	expires := w.get(run.ID).LeaseExpiresAt
	w.eventually("taken over", func() bool { return heir.owns(w.get(run.ID)) })
	close(w.release["orphan"])
	sent := w.sent(run.ID)[0]
	require.True(w.t, sent.FinishedAt.After(*expires), "taken over while its lease ran")
	require.Less(w.t, sent.FinishedAt.Sub(*expires), soon)
	return heir
}

func (w *world) leader() string {
	w.t.Helper()
	return value[string](w, "select coalesce((select leader_id from river_leader), '')")
}

// lead makes a process River's leader: whoever is resigns, and no other can be elected.
func (w *world) lead(p *process) {
	w.t.Helper()
	_, err := w.pool.Exec(w.t.Context(), `create function elect_one() returns trigger language plpgsql as $$
		begin return case when new.leader_id = '`+p.river+`' then new end; end $$;
		create trigger elect_one before insert or update on river_leader for each row execute function elect_one()`)
	require.NoError(w.t, err)
	client, err := river.NewClient(riverpgxv5.New(w.pool), &river.Config{Logger: slog.New(slog.DiscardHandler)})
	require.NoError(w.t, err)
	require.NoError(w.t, client.Notify().RequestResign(w.t.Context()))
	w.eventually("leads River", func() bool { return w.leader() == p.river })
}
