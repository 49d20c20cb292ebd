package doorbell_test

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/internal/doorbell"
	"github.com/weirqueue/weir/internal/fencing"
	"github.com/weirqueue/weir/internal/fencing/fencetest"
	"github.com/weirqueue/weir/internal/postgres/pgtest"
)

// Many doorbells in one insert: each run notes its own, and what River stores names the run and nothing else.
func TestRing_EachRunNotesItsOwn(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	runs := fencetest.InsertMany(t, pool, 300, fencetest.Delivery, "pending", "doorbell_attempted_at = now()")
	rung := make([]fencing.Rung, len(runs))
	for i, run := range runs {
		rung[i] = fencing.Rung{Run: run, Kind: fencetest.Delivery, Queue: "mail", Priority: 1 + i%4, Tags: []string{"welcome"}}
	}
	tx := fencetest.Begin(t, pool)
	require.NoError(t, fencing.Ring(t.Context(), tx, fencetest.Bells(t, pool), rung...))
	require.NoError(t, tx.Commit(t.Context()))
	require.Equal(t, 300, fencetest.Value[int](t, pool, `select count(*)::int from weir.run r join river_job j on j.id = r.doorbell_id
		where j.args = jsonb_build_object('run_id', r.id) and j.kind = 'weir_delivery' and j.queue = 'mail' and j.state = 'available'
			and j.tags = '{welcome}' and j.max_attempts = 32767 and r.doorbell_attempted_at is null`))
}

// A run that somebody claimed meanwhile keeps the doorbell that claimed it.
func TestRing_LeavesTheDoorbellOfAnOwner(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	run := fencetest.Insert(t, pool, fencetest.Delivery, "processing", fencetest.Owned, "doorbell_id = 5")
	require.EqualValues(t, 5, fencetest.Ring(t, pool, fencetest.Bells(t, pool), fencetest.Delivery, run))
}

func TestRing_Later(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	run := fencetest.Insert(t, pool, fencetest.Delivery, "pending")
	at := time.Now().Add(time.Hour)
	tx := fencetest.Begin(t, pool)
	require.NoError(t, fencing.Ring(t.Context(), tx, fencetest.Bells(t, pool), fencing.Rung{Run: run, Kind: fencetest.Delivery, Queue: "q", Priority: 1, At: at}))
	require.NoError(t, tx.Commit(t.Context()))
	require.Equal(t, "scheduled", fencetest.JobState(t, pool, fencetest.Read(t, pool, run).Doorbell))
}

func retire(t *testing.T, db fencing.Beginner, bells *doorbell.Bells, old ...fencing.Retired) []int64 {
	t.Helper()
	tx, err := fencing.Begin(t.Context(), db)
	require.NoError(t, err)
	defer fencing.RollbackQuietly(t.Context(), tx)
	retirement, err := bells.Retire(t.Context(), tx, old)
	require.NoError(t, err)
	require.NoError(t, tx.Commit(t.Context()))
	return retirement.Canceled
}

// D5: exactly the River attempt that is named. One that River has started again since is somebody else's.
func TestRetire_ExactlyTheNamedAttempt(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	bells := fencetest.Bells(t, pool)
	job := func(state string) (int64, *time.Time) {
		id := fencetest.Ring(t, pool, bells, fencetest.Delivery, fencetest.Insert(t, pool, fencetest.Delivery, "pending"))
		fencetest.StartJob(t, pool, id)
		at := fencetest.Value[*time.Time](t, pool, "select attempted_at from river_job where id = $1", id)
		final := ""
		if state == "completed" || state == "cancelled" {
			final = ", finalized_at = now()"
		}
		fencetest.SetJob(t, pool, id, "state = '"+state+"'"+final)
		return id, at
	}
	running, at := job("running")
	again, first := job("running")
	fencetest.StartJob(t, pool, again)
	nameless, _ := job("running")
	retryable, ratt := job("retryable")
	scheduled, _ := job("scheduled")
	available, _ := job("available")
	completed, catt := job("completed")
	cancelled, xatt := job("cancelled")
	canceled := retire(
		t, pool, bells,
		fencing.Retired{Job: running, AttemptedAt: at, Reason: "lease expired"},
		fencing.Retired{Job: again, AttemptedAt: first, Reason: "x"},
		fencing.Retired{Job: nameless, Reason: "x"},
		fencing.Retired{Job: retryable, AttemptedAt: ratt, Reason: "x"},
		fencing.Retired{Job: scheduled, Reason: "x"},
		fencing.Retired{Job: available, Reason: "x"},
		fencing.Retired{Job: completed, AttemptedAt: catt, Reason: "x"},
		fencing.Retired{Job: cancelled, AttemptedAt: xatt, Reason: "x"},
		fencing.Retired{Job: 1 << 40, Reason: "x"},
	)
	require.Empty(t, canceled)
	for id, want := range map[int64]string{
		running: "discarded", again: "running", nameless: "running", retryable: "discarded", scheduled: "discarded",
		available: "discarded", completed: "completed", cancelled: "cancelled",
	} {
		require.Equal(t, want, fencetest.JobState(t, pool, id))
	}
	// River UI shows why. River's own client reads the row.
	row, err := bells.Client().JobGet(t.Context(), running)
	require.NoError(t, err)
	require.Len(t, row.Errors, 1)
	require.Equal(t, "lease expired", row.Errors[0].Error)
	require.Equal(t, 1, row.Errors[0].Attempt)
	require.NotNil(t, row.FinalizedAt)
	row, err = bells.Client().JobGet(t.Context(), available)
	require.NoError(t, err)
	require.Len(t, row.Errors, 1)
}

// F14: a job that River is just writing is left to River; the reap does not wait for it.
func TestRetire_LeavesLockedJobs(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	bells := fencetest.Bells(t, pool)
	id := fencetest.Ring(t, pool, bells, fencetest.Delivery, fencetest.Insert(t, pool, fencetest.Delivery, "pending"))
	holder := fencetest.Begin(t, pool)
	fencetest.Exec(t, holder, "select from river_job where id = $1 for update", id)
	began := time.Now()
	retire(t, pool, bells, fencing.Retired{Job: id, Reason: "x"})
	require.Less(t, time.Since(began), time.Second)
	require.NoError(t, holder.Rollback(t.Context()))
	require.Equal(t, "available", fencetest.JobState(t, pool, id))
}

// River notes a cancellation of a running job on the job. Whoever retires it passes that on.
func TestRetire_ReportsWhatRiverWasAskedToCancel(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	bells := fencetest.Bells(t, pool)
	id := fencetest.Ring(t, pool, bells, fencetest.Delivery, fencetest.Insert(t, pool, fencetest.Delivery, "pending"))
	fencetest.StartJob(t, pool, id)
	_, err := bells.Client().JobCancel(t.Context(), id) // by River itself: pins the name of what it writes
	require.NoError(t, err)
	require.Equal(t, "running", fencetest.JobState(t, pool, id))
	at := fencetest.Value[*time.Time](t, pool, "select attempted_at from river_job where id = $1", id)
	require.Equal(t, []int64{id}, retire(t, pool, bells, fencing.Retired{Job: id, AttemptedAt: at, Reason: "x"}))
	require.Nil(t, retire(t, pool, bells))
}

// RV-21: whoever inserts into River may write anything. What is not a doorbell is walked past, and a run that is due
// only tomorrow is found too.
func TestCanceled_FindsLiveRunsOnly(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	bells := fencetest.Bells(t, pool)
	cancelJob := func(id int64) {
		_, err := bells.Client().JobCancel(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, "cancelled", fencetest.JobState(t, pool, id))
	}
	ring := func(sets ...fencetest.Set) (uuid.UUID, int64) {
		run := fencetest.Insert(t, pool, fencetest.Delivery, "pending", sets...)
		return run, fencetest.Ring(t, pool, bells, fencetest.Delivery, run)
	}
	tomorrow, job := ring("next_attempt_at = clock_timestamp() + interval '1 day'")
	cancelJob(job)
	due, job := ring()
	cancelJob(job)
	_, job = ring() // cancelled by somebody else than River's client: rung again by the sweep
	fencetest.SetJob(t, pool, job, "state = 'cancelled', finalized_at = now()")
	rungAgain, job := ring() // the doorbell is not the run's any more
	cancelJob(job)
	fencetest.Update(t, pool, rungAgain, "doorbell_id = 1")
	finished, job := ring()
	cancelJob(job)
	fencetest.Update(t, pool, finished, "status = 'sent', finished_at = now(), next_attempt_at = null")
	for _, args := range []string{`{}`, `[]`, `"x"`, `{"run_id": 1}`, `{"run_id": null}`, `{"run_id": "not a uuid"}`, `{"run_id": {"a": 1}}`, `{"run_id": "` + due.String() + `0"}`} {
		for _, kind := range []string{"weir_delivery", "theirs"} {
			fencetest.Exec(t, pool, `insert into river_job (state, finalized_at, args, kind, metadata)
				values ('cancelled', now(), $1::jsonb, $2, '{"cancel_attempted_at": "x"}')`, args, kind)
		}
	}
	c := doorbell.NewCanceled(pool, "")
	for range 2 { // after the last page from the start again
		runs, err := c.Next(t.Context())
		require.NoError(t, err)
		require.ElementsMatch(t, []uuid.UUID{tomorrow, due}, runs)
	}
}

// More cancelled jobs than a page holds are read over several calls.
func TestCanceled_Pages(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	bells := fencetest.Bells(t, pool)
	fencetest.Exec(t, pool, `insert into river_job (state, finalized_at, args, kind)
		select 'cancelled', now() - interval '1 h', '{}', 'theirs' from generate_series(1, 2500)`)
	run := fencetest.Insert(t, pool, fencetest.Delivery, "pending")
	_, err := bells.Client().JobCancel(t.Context(), fencetest.Ring(t, pool, bells, fencetest.Delivery, run))
	require.NoError(t, err)
	c := doorbell.NewCanceled(pool, "")
	var found []uuid.UUID
	for range 3 {
		runs, err := c.Next(t.Context())
		require.NoError(t, err)
		found = append(found, runs...)
	}
	require.Equal(t, []uuid.UUID{run}, found)
}

// River's tables may be in a schema of the user's own.
func TestTable_OfAnotherSchema(t *testing.T) {
	t.Parallel()
	require.Equal(t, "river_job", doorbell.Table(""))
	require.Equal(t, `"my ""river"."river_job"`, doorbell.Table(`my "river`))
}
