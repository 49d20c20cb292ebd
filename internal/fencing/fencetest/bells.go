package fencetest

import (
	"context"
	"log/slog"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/internal/doorbell"
	"github.com/weirqueue/weir/internal/fencing"
	"github.com/weirqueue/weir/internal/receipts"
)

// Bells are real doorbells on the real river_job table.
func Bells(t testing.TB, pool *pgxpool.Pool) *doorbell.Bells {
	t.Helper()
	client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	return doorbell.New(client)
}

// Reaper is a reaper as the workers have it.
func Reaper(t testing.TB, pool *pgxpool.Pool) *fencing.Reaper {
	t.Helper()
	return &fencing.Reaper{DB: pool, Bells: Bells(t, pool), Settle: receipts.SettleUnknown, MaxReaps: 5, Limit: 500}
}

// Ring rings for a run and notes the doorbell on it.
func Ring(t testing.TB, pool *pgxpool.Pool, bells fencing.Bells, kind string, run uuid.UUID) int64 {
	t.Helper()
	ctx := context.Background()
	tx := Begin(t, pool)
	require.NoError(t, fencing.Ring(ctx, tx, bells, fencing.Rung{Run: run, Kind: kind, Queue: doorbell.QueueOf(kind), Priority: 1}))
	require.NoError(t, tx.Commit(ctx))
	return Read(t, pool, run).Doorbell
}

// StartJob does what River does when a worker fetches a job.
func StartJob(t testing.TB, db fencing.DB, job int64) {
	t.Helper()
	Exec(t, db, `update river_job set state = 'running', attempt = attempt + 1, attempted_at = clock_timestamp(), attempted_by = '{x}' where id = $1`, job)
}

// SetJob sets columns of a River job.
func SetJob(t testing.TB, db fencing.DB, job int64, set string) {
	t.Helper()
	Exec(t, db, "update river_job set "+set+" where id = $1", job)
}

// JobState is the state of a River job, or "gone".
func JobState(t testing.TB, db fencing.DB, job int64) string {
	t.Helper()
	return Value[string](t, db, `select coalesce((select state::text from river_job where id = $1), 'gone')`, job)
}

// LiveJobs counts the River jobs that still may ring for a run.
func LiveJobs(t testing.TB, db fencing.DB, run uuid.UUID) int {
	t.Helper()
	return Value[int](t, db, `select count(*)::int from river_job where args ->> 'run_id' = $1
		and state in ('available', 'scheduled', 'retryable', 'running')`, run.String())
}
