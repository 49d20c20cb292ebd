package fleet

import (
	"encoding/json"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/jobs"
)

// RV-15: a payload that kills its process each time ends dead, and its neighbours in the same process are sent.
func TestFleet_APoisonedPayloadEndsDeadAndItsNeighboursAreSent(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	poison := w.notify("poison", nil)
	var neighbours []jobs.RunID
	for range 99 {
		neighbours = append(neighbours, w.notify("brief", nil))
	}
	// A supervisor starts the process again whenever it dies.
	stop, stopped, starts := make(chan struct{}), make(chan struct{}), 0
	go func() {
		defer close(stopped)
		for {
			p := w.start(time.Second)
			starts++
			select {
			case <-stop:
				return
			case <-p.done:
			}
		}
	}()
	run := w.wait(poison)
	for _, id := range neighbours {
		require.Equal(t, jobs.StatusSent, w.wait(id).Status)
	}
	close(stop)
	<-stopped
	require.Equal(t, jobs.StatusDead, run.Status)
	require.Equal(t, "reaped", run.ErrorCode)
	require.Equal(t, 5, run.Reaps)
	require.Zero(t, run.Failures)
	require.Equal(t, 5, w.value("select count(*) from sends where subject = 'poison'"))
	require.GreaterOrEqual(t, starts, 5)
	t.Logf("takeovers: %d", w.value("select count(*) from weir.ended_try where how = 'reaped'"))
}

// R5: a run whose handler returns after SIGTERM, and says that nothing was sent, is begun elsewhere within a second of
// that; no failure is counted.
func TestFleet_ARunIsTakenUpWithinASecondOfItsHandlersReturn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.start(time.Minute)
	id := w.notify("first is polite", nil)
	require.Equal(t, a.cmd.Process.Pid, w.owner(id))
	w.start(time.Minute)
	w.eventually("the second process listens too", func() bool {
		return w.value("select count(*) from pg_stat_activity where datname = current_database() and query ilike 'listen%'") == 2
	})
	require.NoError(t, a.cmd.Process.Signal(syscall.SIGTERM))
	run := w.wait(id)
	require.Equal(t, jobs.StatusSent, run.Status)
	require.Zero(t, run.Failures)
	require.Zero(t, run.Reaps)
	tries, err := w.client.Tries(t.Context(), id)
	require.NoError(t, err)
	require.Len(t, tries, 1)
	require.Equal(t, "released", tries[0].How)
	var begunAgain time.Time
	require.NoError(t, w.pool.QueryRow(t.Context(), "select at from sends where run = $1 order by id desc limit 1", id.String()).Scan(&begunAgain))
	require.Less(t, begunAgain.Sub(tries[0].EndedAt), time.Second)
	<-a.done
	require.NoError(t, a.err)
}

// RV-11, RV-12, RV-13: a handler that ignores its context keeps its lease until that has run out; the process exits
// within its grace and the six seconds after; no failure is counted.
func TestFleet_ADeafHandlerCostsItsLeaseAndNoFailure(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.start(4 * time.Second)
	id := w.notify("first is deaf", nil)
	require.Equal(t, a.cmd.Process.Pid, w.owner(id))
	w.start(4 * time.Second)
	began := time.Now()
	require.NoError(t, a.cmd.Process.Signal(syscall.SIGTERM))
	<-a.done
	require.Error(t, a.err, "it says that a handler did not return")
	require.Less(t, time.Since(began), 7*time.Second)
	run := w.wait(id)
	require.Equal(t, jobs.StatusSent, run.Status)
	require.Zero(t, run.Failures)
	require.Equal(t, 1, w.value("select count(*) from weir.ended_try where run_id = $1 and how = 'reaped'", id.String()))
	require.Equal(t, 2, w.value("select count(*) from sends where run = $1", id.String()))
}

// L12, RV-20: a frozen process in each round. Another one finishes, and the frozen one, which believes that
// it has sent, is refused.
func TestFleet_FrozenOwnersAreRefusedEveryTime(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const rounds = 3
	refused := 0
	for n := range rounds {
		a, b := w.start(time.Second), w.start(time.Second)
		id := w.notify("slow", nil)
		pid := w.owner(id)
		require.NoError(t, syscall.Kill(pid, syscall.SIGSTOP))
		run := w.wait(id)
		require.Equal(t, jobs.StatusSent, run.Status)
		before, err := json.Marshal(run)
		require.NoError(t, err)
		require.NoError(t, syscall.Kill(pid, syscall.SIGCONT))
		for _, p := range []*worker{a, b} {
			require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
		}
		<-a.done
		<-b.done
		after, err := w.client.Get(t.Context(), id)
		require.NoError(t, err)
		now, err := json.Marshal(after)
		require.NoError(t, err)
		require.Equal(t, string(before), string(now), "round %d", n)
		refused += w.value("select count(*) from weir.ended_try where run_id = $1 and how = 'reaped'", id.String())
	}
	require.Equal(t, rounds, refused, "each round was a takeover")
}
