package fencing_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/internal/fencing"
	"github.com/weirqueue/weir/internal/fencing/fencetest"
	"github.com/weirqueue/weir/internal/postgres/pgtest"
	"github.com/weirqueue/weir/internal/receipts"
)

// R2, R13, RV-16: five reapers at once on fifty expired runs. Each is reaped once and rung once; its old job is retired.
func TestReap_EachRunOnceByFiveReapers(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t, pgtest.MaxConns(20))
	bells := fencetest.Bells(t, pool)
	var runs []uuid.UUID
	jobs := map[uuid.UUID]int64{}
	for i := range 50 {
		kind, status := fencetest.Delivery, fencing.Status("pending")
		if i%2 == 1 {
			kind, status = fencetest.Steps, "queued"
		}
		run := fencetest.Insert(t, pool, kind, status)
		jobs[run] = fencetest.Ring(t, pool, bells, kind, run)
		fencetest.StartJob(t, pool, jobs[run])
		claimFor(t, pool, kind, run, jobs[run])
		fencetest.Update(t, pool, run, "lease_expires_at = clock_timestamp() - interval '1 s'")
		runs = append(runs, run)
	}
	live := fencetest.Insert(t, pool, fencetest.Delivery, "processing", fencetest.Owned)

	var (
		wg    sync.WaitGroup
		mu    sync.Mutex
		count = map[uuid.UUID]int{}
	)
	for range 5 {
		reaper := fencetest.Reaper(t, pool)
		reaper.Limit = 7
		wg.Go(func() {
			for range 8 {
				reaped, err := reaper.Reap(t.Context())
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				for _, r := range reaped {
					count[r.Run]++
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	require.Len(t, count, 50)
	for _, run := range runs {
		require.Equal(t, 1, count[run])
		row := fencetest.Read(t, pool, run)
		require.EqualValues(t, 9, row.Attempt)
		require.Equal(t, 1, row.Reaps)
		require.Zero(t, row.Failures, "a dead process is not the payload's failure")
		require.Equal(t, "discarded", fencetest.JobState(t, pool, jobs[run]))
		require.Equal(t, 1, fencetest.LiveJobs(t, pool, run), "rung once")
		require.Equal(t, "available", fencetest.JobState(t, pool, row.Doorbell), "the run knows its new doorbell")
		require.NotEqual(t, jobs[run], row.Doorbell)
		require.Equal(t, []string{"8 reaped w"}, fencetest.Tries(t, pool, run))
	}
	require.True(t, fencetest.Read(t, pool, live).Owned, "a live lease was reaped")
}

// claimFor claims with the River job that rang.
func claimFor(t *testing.T, db fencing.DB, kind string, run uuid.UUID, job int64) fencing.Claimed {
	t.Helper()
	req := fencetest.Request(kind, run)
	req.Doorbell, req.DoorbellAttemptedAt = job, fencetest.Value[time.Time](t, db, "select attempted_at from river_job where id = $1", job)
	claim := receipts.Claim
	if kind == fencetest.Delivery {
		claim = receipts.ClaimStarted
	}
	c, ok, err := claim(t.Context(), db, req)
	require.NoError(t, err)
	require.True(t, ok)
	return c
}

// F13: the reaper meets a claim that has not committed its started receipt yet. Whatever it reaps, it settles.
func TestReap_SettlesWhatTheClaimStarted(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	reaper := fencetest.Reaper(t, pool)
	run := fencetest.Insert(t, pool, fencetest.Delivery, "pending")
	_, ok, err := receipts.ClaimStarted(t.Context(), pool, fencetest.Request(fencetest.Delivery, run))
	require.NoError(t, err)
	require.True(t, ok)
	fencetest.Update(t, pool, run, "lease_expires_at = clock_timestamp() - interval '1 s'")
	reaped, err := reaper.Reap(t.Context())
	require.NoError(t, err)
	require.Len(t, reaped, 1)
	require.Equal(t, []string{"0 send unknown 8"}, fencetest.Outcomes(t, pool, run))
}

// bellsThat lets a test act inside the reap's transaction, after its first statement.
type bellsThat struct {
	fencing.Bells
	before func(ctx context.Context, tx pgx.Tx)
}

func (b bellsThat) Retire(ctx context.Context, tx pgx.Tx, old []fencing.Retired) (fencing.Retirement, error) {
	b.before(ctx, tx)
	return b.Bells.Retire(ctx, tx, old)
}

// F13: settling is a statement of its own, so it sees what was committed after the reap's first snapshot.
func TestReap_SettlesInASecondStatement(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	reaper := fencetest.Reaper(t, pool)
	run := fencetest.Insert(t, pool, fencetest.Delivery, "processing", fencetest.Expired)
	settle := reaper.Settle
	reaper.Settle = func(ctx context.Context, tx pgx.Tx, runs []uuid.UUID) error {
		// Committed by another session between the two statements.
		fencetest.Exec(t, pool, `insert into weir.receipt (run_id, step_index, attempt, outcome, effect, step_name)
			values ($1, 0, 7, 'started', 'at_least_once', 'send')`, run)
		return settle(ctx, tx, runs)
	}
	_, err := reaper.Reap(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"0 send unknown 7"}, fencetest.Outcomes(t, pool, run))
}

// RV-23: reaps and failures: a reap is no failure, but a step over its time is; at max_reaps it ends, code reaped; a suspect
// stays a suspect.
func TestReap_Accounting(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	reaper := fencetest.Reaper(t, pool)
	overTime := fencetest.Set("step_deadline_at = clock_timestamp() - interval '1 s'")
	for name, c := range map[string]struct {
		kind            string
		sets            []fencetest.Set
		status          fencing.Status
		code            string
		failures, reaps int
	}{
		"first":                {fencetest.Delivery, nil, "pending", "", 0, 1},
		"over its time":        {fencetest.Delivery, []fencetest.Set{overTime}, "pending", "", 1, 1},
		"budget spent by time": {fencetest.Delivery, []fencetest.Set{overTime, "failures = 4"}, "dead", fencing.CodeStepDeadline, 5, 1},
		"budget not spent":     {fencetest.Delivery, []fencetest.Set{"failures = 4"}, "pending", "", 4, 1},
		"last reap":            {fencetest.Delivery, []fencetest.Set{"reaps = 4"}, "dead", fencing.CodeReaped, 0, 5},
		"last reap, steps":     {fencetest.Steps, []fencetest.Set{"reaps = 4"}, "failed", fencing.CodeReaped, 0, 5},
		"steps stay running":   {fencetest.Steps, nil, "running", "", 0, 1},
		"cancel requested":     {fencetest.Steps, []fencetest.Set{"cancel_requested_at = now()"}, "canceled", fencing.CodeCanceled, 0, 1},
		"cancel from River":    {fencetest.Delivery, []fencetest.Set{"cancel_requested_at = now(), cancel_code = 'canceled_in_river'"}, "failed", fencing.CodeCanceledInRiver, 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			run := fencetest.Insert(t, pool, c.kind, fencing.MachineOf(c.kind).Ownable[0], fencetest.Expired)
			for _, set := range c.sets {
				fencetest.Update(t, pool, run, set)
			}
			reaped, err := reaper.Reap(t.Context())
			require.NoError(t, err)
			require.Len(t, reaped, 1)
			row := fencetest.Read(t, pool, run)
			require.Equal(t, c.status, row.Status)
			require.Equal(t, c.status, reaped[0].Status)
			require.Equal(t, row.Terminal, reaped[0].Terminal)
			require.Equal(t, c.code, row.Code)
			require.Equal(t, c.failures, row.Failures)
			require.Equal(t, c.reaps, row.Reaps)
			require.Equal(t, !row.Terminal, fencetest.LiveJobs(t, pool, run) == 1, "rung unless it ended")
		})
	}
}

// River's own cancel reached a job whose worker was dead already: the run ends with it, and is not rung.
func TestReap_DoorbellCancelledInRiver(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	run := fencetest.Insert(t, pool, fencetest.Delivery, "pending")
	job := fencetest.Ring(t, pool, fencetest.Bells(t, pool), fencetest.Delivery, run)
	fencetest.StartJob(t, pool, job)
	claimFor(t, pool, fencetest.Delivery, run, job)
	fencetest.SetJob(t, pool, job, `metadata = '{"cancel_attempted_at": "2026-01-01T00:00:00Z"}'`)
	fencetest.Update(t, pool, run, "lease_expires_at = clock_timestamp() - interval '1 s'")
	reaped, err := fencetest.Reaper(t, pool).Reap(t.Context())
	require.NoError(t, err)
	row := fencetest.Read(t, pool, run)
	require.Equal(t, fencing.Status("failed"), row.Status)
	require.Equal(t, fencing.CodeCanceledInRiver, row.Code)
	require.Equal(t, []string{"0 send unknown 8"}, fencetest.Outcomes(t, pool, run))
	require.Zero(t, fencetest.LiveJobs(t, pool, run))
	require.Len(t, reaped, 1)
	require.Equal(t, row.Status, reaped[0].Status, "what is reported is what happened")
	require.Equal(t, row.Attempt, reaped[0].Attempt)
	require.True(t, reaped[0].Terminal)
}

// R12, LF-05: one row that cannot be reaped now, or ever, is the one-by-one path; it does not keep the others.
func TestReap_StubbornRowDoesNotKeepTheOthers(t *testing.T) {
	t.Parallel()
	for code, wantErr := range map[string]bool{"40P01": false, "55P03": false, "40001": false, "P0001": true} {
		t.Run(code, func(t *testing.T) {
			t.Parallel()
			pool := pgtest.Pool(t)
			var runs []uuid.UUID
			for range 6 {
				runs = append(runs, fencetest.Insert(t, pool, fencetest.Delivery, "processing", fencetest.Expired))
			}
			other := fencetest.Insert(t, pool, fencetest.Steps, "running", fencetest.Expired)
			fencetest.Exec(t, pool, fmt.Sprintf(`create function stubborn() returns trigger language plpgsql as $$ begin
				if new.id = '%s' then raise exception 'no' using errcode = '%s'; end if; return new; end $$`, runs[2], code))
			fencetest.Exec(t, pool, "create trigger stubborn before update on weir.run for each row execute function stubborn()")
			reaped, err := fencetest.Reaper(t, pool).Reap(t.Context())
			require.Equal(t, wantErr, err != nil, "a row that is refused for good is reported: %v", err)
			require.Len(t, reaped, 6)
			for i, run := range runs {
				require.Equal(t, i == 2, fencetest.Read(t, pool, run).Owned)
			}
			require.False(t, fencetest.Read(t, pool, other).Owned, "the next table has its turn")
		})
	}
}

// F4, R13: a session that froze with the locks of twenty runs does not delay the rest.
func TestReap_FrozenLocksDelayNobody(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	var frozen, free []uuid.UUID
	for i := range 60 {
		run := fencetest.Insert(t, pool, fencetest.Delivery, "processing", fencetest.Expired)
		if i < 20 {
			frozen = append(frozen, run)
		} else {
			free = append(free, run)
		}
	}
	holder := fencetest.Begin(t, pool)
	fencetest.Exec(t, holder, "select from weir.run where id = any($1) for update", frozen)
	reaper := fencetest.Reaper(t, pool)
	reaper.Limit = 10 // fewer than are frozen, and they come first
	began := time.Now()
	var got []uuid.UUID
	for range 4 {
		reaped, err := reaper.Reap(t.Context())
		require.NoError(t, err)
		for _, r := range reaped {
			got = append(got, r.Run)
		}
	}
	require.Less(t, time.Since(began), 5*time.Second)
	slices.SortFunc(got, func(a, b uuid.UUID) int { return slices.Compare(a[:], b[:]) })
	require.Equal(t, free, got)
}

// F4: the owner froze after its fence. The reaper passes by without waiting, and reaps when the idle timeout has ended
// the transaction; the late commit is refused.
func TestReap_FrozenAfterTheFence(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	ctx := t.Context()
	run := fencetest.Insert(t, pool, fencetest.Steps, "running", fencetest.Expired)
	frozen := fencetest.Begin(t, pool)
	fencetest.Exec(t, frozen, "set local idle_in_transaction_session_timeout = '1s'")
	require.NoError(t, receipts.StepFence{
		Run: run, Kind: fencetest.Steps, Attempt: 7, Step: receipts.Step{Name: "x"}, Lease: time.Minute, StepTime: time.Minute,
	}.Write(ctx, frozen))
	reaper := fencetest.Reaper(t, pool)
	began := time.Now()
	reaped, err := reaper.Reap(ctx)
	require.NoError(t, err)
	require.Empty(t, reaped)
	require.Less(t, time.Since(began), 900*time.Millisecond, "the reaper waited")
	fencetest.Eventually(t, "reaped", func() bool {
		reaped, err := reaper.Reap(ctx)
		return err == nil && len(reaped) == 1
	})
	require.Error(t, frozen.Commit(ctx))
	require.EqualValues(t, 8, fencetest.Read(t, pool, run).Attempt)
	require.Empty(t, fencetest.Outcomes(t, pool, run))
}

// F11, RV-01: the one-by-one path reads its candidates first, and the owner renews in between. The predicate is repeated, so
// the run stays with its owner.
func TestReap_OwnerThatRenewsInBetweenKeepsItsRun(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	first := fencetest.Insert(t, pool, fencetest.Delivery, "processing", fencetest.Expired)
	second := fencetest.Insert(t, pool, fencetest.Delivery, "processing", fencetest.Expired)
	reaper := fencetest.Reaper(t, pool)
	calls := 0
	reaper.Bells = bellsThat{reaper.Bells, func(ctx context.Context, _ pgx.Tx) {
		if calls++; calls == 2 { // the first of the one by one; the many failed before
			fencetest.Update(t, pool, second, "lease_expires_at = clock_timestamp() + interval '1 min'")
		}
	}}
	settle := reaper.Settle
	reaper.Settle = func(ctx context.Context, tx pgx.Tx, runs []uuid.UUID) error {
		if len(runs) == 2 {
			calls++
			_, err := tx.Exec(ctx, "do $$ begin raise exception 'deadlock' using errcode = '40P01'; end $$")
			return err
		}
		return settle(ctx, tx, runs)
	}
	reaped, err := reaper.Reap(t.Context())
	require.NoError(t, err)
	require.Equal(t, 2, calls)
	require.Len(t, reaped, 1)
	require.Equal(t, first, reaped[0].Run)
	row := fencetest.Read(t, pool, second)
	require.True(t, row.Owned)
	require.EqualValues(t, 7, row.Attempt)
}
