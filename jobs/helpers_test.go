package jobs_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/internal/delivery"
	"github.com/weirqueue/weir/internal/fencing"
	"github.com/weirqueue/weir/internal/receipts"
	"github.com/weirqueue/weir/jobs"
)

func newClient(t testing.TB, pool *pgxpool.Pool) *jobs.Client {
	t.Helper()
	client, err := jobs.NewClient(pool, nil)
	require.NoError(t, err)
	return client
}

// mail is a notification to one address, or to several.
func mail(to ...string) jobs.Notification {
	if len(to) == 0 {
		to = []string{"ada@example.com"}
	}
	n := jobs.Notification{Subject: "Your order", Text: "It is on its way."}
	for _, address := range to {
		n.To = append(n.To, jobs.Email(address))
	}
	return n
}

func notify(t testing.TB, client *jobs.Client, n jobs.Notification, opts *jobs.Opts) *jobs.NotifyResult {
	t.Helper()
	res, err := client.Notify(t.Context(), n, opts)
	require.NoError(t, err)
	return res
}

func get(t testing.TB, client *jobs.Client, id jobs.RunID) *jobs.Run {
	t.Helper()
	run, err := client.Get(t.Context(), id)
	require.NoError(t, err)
	return run
}

func begin(t testing.TB, pool *pgxpool.Pool, level pgx.TxIsoLevel) pgx.Tx {
	t.Helper()
	tx, err := pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: level})
	require.NoError(t, err)
	t.Cleanup(func() { fencing.RollbackQuietly(context.Background(), tx) })
	return tx
}

func value[T any](t testing.TB, db fencing.DB, sql string, args ...any) T {
	t.Helper()
	var v T
	require.NoError(t, db.QueryRow(context.Background(), sql, args...).Scan(&v), sql)
	return v
}

func execSQL(t testing.TB, db fencing.DB, sql string, args ...any) {
	t.Helper()
	_, err := db.Exec(context.Background(), sql, args...)
	require.NoError(t, err, sql)
}

// rows counts what an enqueue writes: notifications, runs, payloads, keys, doorbells.
func rows(t testing.TB, db fencing.DB) [5]int {
	t.Helper()
	var n [5]int
	for i, table := range []string{"weir.notification", "weir.run", "weir.payload", "weir.key", "river_job"} {
		n[i] = value[int](t, db, "select count(*)::int from "+table)
	}
	return n
}

// claim makes a test the owner of a run, as a worker would, with the `started` receipt of its send.
func claim(t testing.TB, pool *pgxpool.Pool, id jobs.RunID) fencing.Claimed {
	t.Helper()
	c, ok, err := receipts.ClaimStarted(context.Background(), pool, fencing.ClaimRequest{
		Run: uuid.UUID(id), Kind: jobs.KindDelivery, Owner: "test:1:x", Doorbell: 1, DoorbellAttemptedAt: time.Now(),
		Lease: time.Minute, StepTime: time.Minute, Offers: []string{delivery.Need("email")},
	})
	require.NoError(t, err)
	require.True(t, ok, "run %s could not be claimed", id)
	return c
}

// end claims a run and ends the try, as a worker would.
func end(t testing.TB, pool *pgxpool.Pool, id jobs.RunID, event fencing.Event, text string) {
	t.Helper()
	c := claim(t, pool, id)
	outcome := receipts.Failed
	if event == fencing.Succeed {
		outcome = receipts.OK
	}
	_, err := receipts.End{
		Event: event, Run: c.Run, Kind: c.Kind, Attempt: c.Attempt, Owner: "test:1:x", Outcome: outcome,
		Step: receipts.Step{Name: "send", Effect: receipts.AtLeastOnce}, ExternalRef: "<ref-" + text + ">",
		Code: "smtp_550", Message: text,
	}.Write(context.Background(), pool)
	require.NoError(t, err)
}

// clean deletes every finished run, as the cleaner does.
func clean(t testing.TB, pool *pgxpool.Pool) int {
	t.Helper()
	cleaner := fencing.Cleaner{DB: pool, Age: 0, KeepKeys: time.Hour, Page: 100}
	n, err := cleaner.Clean(t.Context())
	require.NoError(t, err)
	return n
}

// inParallel calls f n times at once and returns when all have returned.
func inParallel(n int, f func(i int)) {
	done := make(chan struct{})
	start := make(chan struct{})
	for i := range n {
		go func() {
			defer func() { done <- struct{}{} }()
			<-start
			f(i)
		}()
	}
	close(start)
	for range n {
		<-done
	}
}

// eventually polls until ok, for at most ten seconds.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(10 * time.Second)
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("never: %s", what)
		}
	}
}

// waitsForLock waits until n sessions of the database wait for a lock.
func waitsForLock(t testing.TB, pool *pgxpool.Pool, n int) {
	t.Helper()
	eventually(t, "sessions wait for a lock", func() bool {
		return value[int](t, pool, `select count(*)::int from pg_stat_activity
			where datname = current_database() and wait_event_type = 'Lock'`) >= n
	})
}
