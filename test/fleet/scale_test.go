package fleet

import (
	"log/slog"
	"testing"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/internal/doorbell"
)

// backlog inserts n deliveries that have been due for an hour, each with its payload and an available doorbell.
func (w *world) backlog(n int) {
	w.t.Helper()
	tx, err := w.pool.Begin(w.t.Context())
	require.NoError(w.t, err)
	for _, sql := range []string{
		`create temporary table made on commit drop as
			select md5('r' || i)::uuid as run, md5('n' || i)::uuid as root, nextval('river_job_id_seq') as job, i from generate_series(1, $1::int) i`,
		`insert into river_job (id, args, kind, queue, max_attempts, priority, state, scheduled_at)
			select job, jsonb_build_object('run_id', run, 'channel', 'table'), 'weir_delivery', 'weir_delivery', 32767, 1, 'available', now() - interval '1 h' from made`,
		`insert into weir.notification (id, run_ids) select root, array[run] from made`,
		`insert into weir.run (id, root_id, kind, status, queue, priority, max_failures, next_attempt_at, doorbell_id, needs)
			select run, root, 'delivery', 'pending', 'weir_delivery', 1, 8, now() - interval '1 h' + i * interval '1 us', job, array['channel:table'] from made`,
		`insert into weir.payload (run_id, body, digest) select run, b, sha256(b) from made, convert_to(
			'{"notification":"' || root || '","channel":"table","address":"x","subject":"brief","text":"t"}', 'UTF8') b`,
	} {
		var args []any
		if sql[:6] == "create" {
			args = append(args, n)
		}
		began := time.Now()
		_, err := tx.Exec(w.t.Context(), sql, args...)
		require.NoError(w.t, err, sql)
		w.t.Logf("%.40q took %s", sql, time.Since(began).Round(time.Millisecond))
	}
	require.NoError(w.t, tx.Commit(w.t.Context()))
	_, err = w.pool.Exec(w.t.Context(), "analyze weir.run; analyze river_job")
	require.NoError(w.t, err)
}

// D3: a backlog that only waits for somebody to have time is walked past, some pages a round, and none of it is rung
// again: each round would double the jobs.
func TestSweep_ABacklogThatOnlyWaitsIsNotRungAgain(t *testing.T) {
	const runs = 1_000_000
	w := newWorld(t)
	began := time.Now()
	w.backlog(runs)
	t.Logf("inserted in %s", time.Since(began).Round(time.Millisecond))
	client, err := river.NewClient(riverpgxv5.New(w.pool), &river.Config{Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	sweeper := doorbell.NewSweeper(w.pool, doorbell.New(client), 15*time.Second)

	const perSweep = 10_000 // five pages
	var slowest, sum time.Duration
	for range runs/perSweep + 20 { // all of it, and again from the start
		began := time.Now()
		rang, err := sweeper.Sweep(t.Context())
		require.NoError(t, err)
		require.Zero(t, rang)
		took := time.Since(began)
		slowest, sum = max(slowest, took), sum+took
	}
	t.Logf("%d sweeps: slowest %s, mean %s", runs/perSweep+20, slowest.Round(time.Millisecond), (sum / (runs/perSweep + 20)).Round(time.Millisecond))
	require.Less(t, slowest, 5*time.Second, "each is bounded, wherever in the backlog it reads")
	require.Equal(t, runs, w.value("select count(*) from river_job"))

	// The walk gets everywhere: one silent doorbell in the middle is found within one walk.
	_, err = w.pool.Exec(t.Context(), "delete from river_job where id = (select doorbell_id from weir.run order by next_attempt_at offset 12345 limit 1)")
	require.NoError(t, err)
	found := 0
	for range runs/perSweep + 2 {
		rang, err := sweeper.Sweep(t.Context())
		require.NoError(t, err)
		found += rang
	}
	require.Equal(t, 1, found)
}
