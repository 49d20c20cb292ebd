package workers_test

import (
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/internal/postgres/pgtest"
	"github.com/weirqueue/weir/jobs"
)

// RV-20, RV-02, F8: a process that was frozen past its leases wakes up after others have finished its runs. What it
// writes changes nothing: no run, no receipt, no River job.
func TestProcess_FrozenPastItsLeasesChangesNothing(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	pool := pgtest.Connect(t, url)
	execSQL(t, pool, processTables)
	client := newClient(t, pool)
	const runs = 10
	frozen := spawn(t, url, options{Lease: time.Second})
	var ids []jobs.RunID
	for range runs {
		ids = append(ids, notify(t, client, "stopped", nil))
	}
	first := map[jobs.RunID]int64{}
	for _, id := range ids {
		begun(t, pool, id, 1)
		first[id] = *get(t, client, id).DoorbellID
	}
	frozen.signal(t, syscall.SIGSTOP)
	spawn(t, url, options{Lease: time.Second})
	before := map[jobs.RunID]*jobs.Run{}
	for _, id := range ids {
		before[id] = untilStatus(t, client, id, jobs.StatusSent)
		untilJob(t, pool, *before[id].DoorbellID, "completed")
	}
	receipts := func() string {
		return value[string](t, pool, "select string_agg(r::text, ' ' order by run_id) from weir.receipts r")
	}
	records := receipts()
	takeovers := observedBy(t, pool, "run_reaped")
	require.GreaterOrEqual(t, takeovers, runs)

	execSQL(t, pool, "insert into gate values (true)")
	frozen.signal(t, syscall.SIGCONT)
	require.NoError(t, eventually(func() bool { return observedBy(t, pool, "lease_lost") >= runs }), "each write is refused, and reported")
	frozen.signal(t, syscall.SIGTERM) // River writes what it wanted to
	<-frozen.exited
	for _, id := range ids {
		require.Equal(t, before[id], get(t, client, id))
		require.Equal(t, []string{"begin", "begin", "send", "send"}, acts(t, pool, id), "the provider had it twice; nothing can help that")
		require.Contains(t, jobByID(t, pool, first[id]).Errors, "lease expired")
		require.Equal(t, "discarded", jobByID(t, pool, first[id]).State)
		require.Equal(t, "completed", jobByID(t, pool, *before[id].DoorbellID).State)
	}
	require.Equal(t, records, receipts())
	t.Logf("takeovers %d, refusals %d", takeovers, observedBy(t, pool, "lease_lost"))
}

// LF-04, NO-01, RV-05: kill -9 between claim and send, three times in a row: three tries are on record, each with its
// owner, no failure is counted, and the message goes once.
func TestProcess_KilledThreeTimesInARow(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	pool := pgtest.Connect(t, url)
	execSQL(t, pool, processTables)
	client := newClient(t, pool)
	id := notify(t, client, "holds", &jobs.Opts{MaxAttempts: 1})
	for i := 1; i <= 3; i++ {
		c := spawn(t, url, options{Lease: time.Second})
		begun(t, pool, id, i)
		c.kill(t)
	}
	execSQL(t, pool, "insert into gate values (true)")
	spawn(t, url, options{Lease: time.Second})
	run := untilStatus(t, client, id, jobs.StatusSent)
	require.Equal(t, []int{0, 0}, []int{run.Failures, run.Reaps})
	require.EqualValues(t, 3*2+1, run.Attempt)
	tries, err := client.Tries(t.Context(), id)
	require.NoError(t, err)
	require.Len(t, tries, 3)
	owners := map[string]bool{}
	for i, try := range tries {
		require.Equal(t, []any{"reaped", "lease_expired", int64(2*i + 1)}, []any{try.How, try.ErrorCode, try.Attempt})
		require.NotNil(t, try.ClaimedAt)
		require.NotNil(t, try.DoorbellID)
		owners[try.Owner] = true
	}
	require.Len(t, owners, 3, "RV-22: each process has a name of its own")
	require.Equal(t, []string{"begin", "begin", "begin", "begin", "send"}, acts(t, pool, id))
}

// RV-15: a payload that ends its process is found out and goes; its 99 neighbours are sent, by processes that a
// supervisor starts again.
func TestProcess_PoisonGoesAndItsNeighboursStay(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	pool := pgtest.Connect(t, url)
	execSQL(t, pool, processTables)
	client := newClient(t, pool)
	poison := notify(t, client, "poison", nil)
	n := jobs.Notification{Text: "x"}
	for i := range 99 {
		n.To = append(n.To, jobs.Email(string(rune('a'+i%26))+time.Duration(i).String()+"@example.com"))
	}
	res, err := client.Notify(t.Context(), n, nil)
	require.NoError(t, err)

	started := 1
	c := spawn(t, url, options{Lease: time.Second})
	require.NoError(t, eventually(func() bool {
		select {
		case <-c.exited:
			c = spawn(t, url, options{Lease: time.Second})
			started++
		default:
		}
		return value[int](t, pool, "select count(*)::int from weir.run where finished_at is null") == 0
	}))
	run := get(t, client, poison)
	require.Equal(t, []any{jobs.StatusDead, "reaped", 5, 0}, []any{run.Status, run.ErrorCode, run.Reaps, run.Failures})
	require.Equal(t, []string{"begin", "begin", "begin", "begin", "begin"}, acts(t, pool, poison))
	require.LessOrEqual(t, started, 6)
	for _, r := range res.Runs {
		require.Equal(t, jobs.StatusSent, get(t, client, r.ID).Status)
	}
}
