package doorbell_test

import (
	"fmt"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/internal/doorbell"
	"github.com/weirqueue/weir/internal/fencing/fencetest"
	"github.com/weirqueue/weir/internal/postgres/pgtest"
)

// chunkOf rings for runs that have been due for a minute with one job, which a worker has had for as long. The first
// ones are owned, until so long from now.
func chunkOf(t *testing.T, pool *pgxpool.Pool, bells *doorbell.Bells, n, owned int, lease string) ([]uuid.UUID, int64) {
	t.Helper()
	runs := fencetest.InsertMany(t, pool, n, fencetest.Delivery, "pending", "next_attempt_at = clock_timestamp() - interval '1 min'")
	tx := fencetest.Begin(t, pool)
	ids, err := bells.RingChunks(t.Context(), tx, []doorbell.Chunk{{Runs: runs, Queue: "q", Priority: 1, Channel: "email"}})
	require.NoError(t, err)
	require.NoError(t, tx.Commit(t.Context()))
	fencetest.SetJob(t, pool, ids[0], "state = 'running', attempt = 1, attempted_at = '2026-01-01', attempted_by = '{x}'")
	for i, run := range runs {
		fencetest.Update(t, pool, run, fencetest.Set(fmt.Sprintf("doorbell_id = %d, doorbell_attempted_at = '2026-01-01'", ids[0])))
		if i < owned {
			fencetest.Update(t, pool, run, fencetest.Set(`status = 'processing', attempt = attempt + 1, lease_owner = 'x', next_attempt_at = 'infinity',
				step_deadline_at = clock_timestamp() + interval '1 h', lease_expires_at = clock_timestamp() + interval '`+lease+`'`))
		}
	}
	return runs, ids[0]
}

// D5: a chunk's job is retired only when no other run under it is owned. The run that was reaped has its own doorbell then.
func TestChunk_IsNotRetiredUnderALiveOwner(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	bells := fencetest.Bells(t, pool)
	runs, job := chunkOf(t, pool, bells, 5, 2, "1 h")
	fencetest.Update(t, pool, runs[0], "lease_expires_at = clock_timestamp() - interval '1 s'")
	reaped, err := fencetest.Reaper(t, pool).Reap(t.Context())
	require.NoError(t, err)
	require.Len(t, reaped, 1)
	require.Equal(t, "running", fencetest.JobState(t, pool, job))
	require.NotEqual(t, job, fencetest.Read(t, pool, runs[0]).Doorbell)
	require.Equal(t, 1, fencetest.LiveJobs(t, pool, runs[0]))
	for _, run := range runs[1:] {
		require.Equal(t, job, fencetest.Read(t, pool, run).Doorbell)
	}
}

// A dead worker's chunk gets as many doorbells as its runs need, in the transaction of the reap.
func TestChunk_ADeadWorkersRunsAreAllRung(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	bells := fencetest.Bells(t, pool)
	runs, job := chunkOf(t, pool, bells, 5, 2, "-1 s")
	fencetest.Update(t, pool, runs[4], "status = 'sent', next_attempt_at = null, finished_at = clock_timestamp()")
	reaped, err := fencetest.Reaper(t, pool).Reap(t.Context())
	require.NoError(t, err)
	require.Len(t, reaped, 2)
	require.Equal(t, "discarded", fencetest.JobState(t, pool, job))
	for _, run := range runs[:4] {
		require.Equal(t, 1, fencetest.LiveJobs(t, pool, run))
		require.Equal(t, "available", fencetest.JobState(t, pool, fencetest.Read(t, pool, run).Doorbell))
	}
	require.Zero(t, fencetest.LiveJobs(t, pool, runs[4]))
}

// D3: a chunk that owns one of its runs, or has just ended one, is at work: what waits under it is not rung again.
func TestChunk_AtWorkIsNotSilent(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	bells := fencetest.Bells(t, pool)
	owned, _ := chunkOf(t, pool, bells, 5, 1, "1 h")
	ended, _ := chunkOf(t, pool, bells, 5, 0, "")
	fencetest.Update(t, pool, ended[0], "status = 'sent', next_attempt_at = null, finished_at = clock_timestamp()")
	idle, job := chunkOf(t, pool, bells, 5, 0, "")
	n, err := doorbell.NewSweeper(pool, bells, grace).Sweep(t.Context())
	require.NoError(t, err)
	require.Equal(t, 5, n, "those whose chunk nobody works")
	require.Equal(t, "discarded", fencetest.JobState(t, pool, job))
	for _, run := range idle {
		require.Equal(t, 1, fencetest.LiveJobs(t, pool, run))
	}
	for _, run := range append(owned, ended...) {
		require.Zero(t, fencetest.LiveJobs(t, pool, run))
	}
}

// Cancelling a chunk's job cancels nothing and is rung again.
func TestChunk_CancelledIsRungAgain(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	bells := fencetest.Bells(t, pool)
	runs, job := chunkOf(t, pool, bells, 3, 0, "")
	fencetest.SetJob(t, pool, job, `state = 'cancelled', finalized_at = now(), metadata = '{"cancel_attempted_at": "2026-01-01"}'`)
	canceled, err := doorbell.NewCanceled(pool, "").Next(t.Context())
	require.NoError(t, err)
	require.Empty(t, canceled)
	n, err := doorbell.NewSweeper(pool, bells, grace).Sweep(t.Context())
	require.NoError(t, err)
	require.Equal(t, 3, n)
	require.Equal(t, 1, fencetest.LiveJobs(t, pool, runs[2]))
}

// Whatever somebody writes into a job's arguments, it stops neither reaper nor sweep.
func TestChunk_ForeignArgumentsStopNobody(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	bells := fencetest.Bells(t, pool)
	for _, args := range []string{`{}`, `{"run_ids": null}`, `{"run_ids": "x"}`, `{"run_ids": " 1  x-y "}`, `{"run_ids": [1, null, "x", {}]}`, `[]`} {
		_, job := chunkOf(t, pool, bells, 2, 1, "-1 s")
		fencetest.Exec(t, pool, "update river_job set args = $2 where id = $1", job, args)
	}
	reaped, err := fencetest.Reaper(t, pool).Reap(t.Context())
	require.NoError(t, err)
	require.Len(t, reaped, 6)
	n, err := doorbell.NewSweeper(pool, bells, grace).Sweep(t.Context())
	require.NoError(t, err)
	require.Equal(t, 6, n)
}
