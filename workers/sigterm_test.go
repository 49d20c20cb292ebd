package workers_test

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/internal/postgres/pgtest"
	"github.com/weirqueue/weir/jobs"
)

// RV-12, RV-13: at SIGTERM a handler that returns, and says that nothing was sent, hands its run over: another process
// takes it up at once, and no failure is counted.
func TestShutdown_HandsOverWhatWasNotSent(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	pool := pgtest.Connect(t, url)
	execSQL(t, pool, processTables)
	client := newClient(t, pool)
	const lease = 20 * time.Second // nobody waits for it
	leaves := spawn(t, url, options{Lease: lease, Grace: 100 * time.Millisecond})
	id := notify(t, client, "obeys", &jobs.Opts{MaxAttempts: 1})
	begun(t, pool, id, 1)
	spawn(t, url, options{Lease: lease})
	// Both fetch by now: a delivery that either may take has gone.
	require.NoError(t, eventually(func() bool {
		return value[int](t, pool, "select count(*)::int from pg_stat_activity where datname = current_database() and query ilike 'listen%'") >= 2
	}))
	untilStatus(t, client, notify(t, client, "warm", nil), jobs.StatusSent)
	leaves.signal(t, syscall.SIGTERM)
	run := untilStatus(t, client, id, jobs.StatusSent)
	<-leaves.exited
	require.Zero(t, leaves.ProcessState.ExitCode())
	require.Equal(t, []int{0, 0}, []int{run.Failures, run.Reaps})
	require.Equal(t, []string{"released"}, hows(t, client, id))
	require.Equal(t, []string{"ok 3"}, outcomes(t, client, id))
	took := value[float64](t, pool, `select extract(epoch from r.claimed_at - t.ended_at)::float8 from weir.run r join weir.ended_try t on t.run_id = r.id where r.id = $1`, id.String())
	require.Less(t, took, 1.0, "taken up within a second")
}

// RV-11, RV-12: a handler that ignores its context holds the process no longer than grace + 6 s; its run is taken over when
// its lease has run out, and no failure is counted.
func TestShutdown_LeavesAHandlerThatWillNotReturnToItsLease(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	pool := pgtest.Connect(t, url)
	execSQL(t, pool, processTables)
	client := newClient(t, pool)
	o := options{Lease: 2 * time.Second, StepTime: time.Minute, Grace: 500 * time.Millisecond}
	leaves := spawn(t, url, o)
	id := notify(t, client, "stopped", &jobs.Opts{MaxAttempts: 1})
	begun(t, pool, id, 1)
	began := time.Now()
	leaves.signal(t, syscall.SIGTERM)
	<-leaves.exited
	require.Less(t, time.Since(began), o.Grace+6*time.Second+2*time.Second, "2 s for a busy machine")
	require.Equal(t, 1, leaves.ProcessState.ExitCode(), "and says so")
	require.Equal(t, jobs.StatusProcessing, get(t, client, id).Status)
	spawn(t, url, o)
	run := untilStatus(t, client, id, jobs.StatusSent)
	require.Zero(t, run.Failures)
	require.Equal(t, []string{"reaped"}, hows(t, client, id))
}

// A backlog of 100,000 that only waits for capacity costs a process little memory and is not rung again.
func TestProcess_LargeBacklogIsCheap(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	pool := pgtest.Connect(t, url)
	execSQL(t, pool, processTables)
	client := newClient(t, pool)
	notify(t, client, "holds", nil) // the model of the others
	execSQL(t, pool, `
		create temporary table new_run as select gen_random_uuid() as id, nextval('river_job_id_seq') as job from generate_series(1, 100000);
		insert into river_job (id, state, args, kind, max_attempts, queue, scheduled_at, metadata)
			select n.job, 'available', jsonb_build_object('run_id', n.id, 'channel', 'email'), 'weir_delivery', 32767, 'weir_delivery', now() - interval '1 h', '{}' from new_run n;
		insert into weir.run (id, root_id, kind, status, queue, max_failures, next_attempt_at, doorbell_id, needs)
			select n.id, n.id, 'delivery', 'pending', 'weir_delivery', 8, now() - interval '1 h', n.job, m.needs from new_run n, weir.run m;
		insert into weir.payload (run_id, body, digest) select n.id, p.body, p.digest from new_run n, weir.payload p;
		drop table new_run`)
	c := spawn(t, url, options{Lease: 10 * time.Second, StepTime: time.Minute})
	require.NoError(t, eventually(func() bool {
		return value[int](t, pool, "select count(*)::int from weir.run where status = 'processing'") == 20
	}))
	// The reaper's rounds walk the whole backlog several times: 10,000 runs a round, five rounds a second.
	began := time.Now()
	never(t, 8*time.Second, "rung again", func() bool { return time.Since(began) > 7*time.Second && observedBy(t, pool, "doorbells_rung") > 0 })
	require.Equal(t, 100_001, value[int](t, pool, "select count(*)::int from river_job where kind = 'weir_delivery'"))
	peak := peakMemory(t, c.Process.Pid)
	limit := 150
	if raceEnabled {
		limit = 600
	}
	require.Less(t, peak, limit, "MB")
	t.Logf("peak memory with 100,000 waiting: %d MB", peak)
}

// peakMemory is the largest resident size of a process so far, in MB.
func peakMemory(t *testing.T, pid int) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	require.NoError(t, err)
	_, rest, found := strings.Cut(string(text), "VmHWM:")
	require.True(t, found)
	kb, err := strconv.Atoi(strings.Fields(rest)[0])
	require.NoError(t, err)
	return kb / 1024
}
