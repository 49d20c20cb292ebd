package fencing_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/internal/fencing"
	"github.com/weirqueue/weir/internal/fencing/fencetest"
	"github.com/weirqueue/weir/internal/postgres/pgtest"
	"github.com/weirqueue/weir/internal/receipts"
)

var sendStep = receipts.Step{Index: 0, Name: "send", Effect: receipts.AtLeastOnce}

// Invariant 1: the losers of a race are told so, not failed.
func TestClaim_OneWinnerAmongFifty(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t, pgtest.MaxConns(50))
	ctx := t.Context()
	for range 5 {
		run := fencetest.Insert(t, pool, fencetest.Delivery, "pending")
		var (
			wg      sync.WaitGroup
			ready   sync.WaitGroup
			winners atomic.Int64
			start   = make(chan struct{})
			errs    = make(chan error, 50)
		)
		ready.Add(50)
		for range 50 {
			wg.Go(func() {
				conn, err := pool.Acquire(ctx)
				ready.Done()
				if err != nil {
					errs <- err
					return
				}
				defer conn.Release()
				<-start
				_, ok, err := receipts.ClaimStarted(ctx, conn, fencetest.Request(fencetest.Delivery, run))
				if err != nil {
					errs <- err
				}
				if ok {
					winners.Add(1)
				}
			})
		}
		ready.Wait() // on fifty connections of their own
		close(start)
		wg.Wait()
		close(errs)
		require.NoError(t, <-errs)
		require.EqualValues(t, 1, winners.Load())
		require.EqualValues(t, 8, fencetest.Read(t, pool, run).Attempt, "raised once")
		require.Equal(t, []string{"0 send started 8"}, fencetest.Outcomes(t, pool, run))
	}
}

func TestClaim_RefusedAndSaysWhy(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	ctx := t.Context()
	kind := fencetest.Delivery
	for name, c := range map[string]struct {
		run    uuid.UUID
		kind   string
		reason fencing.Reason
	}{
		"unknown":        {uuid.Must(uuid.NewV7()), kind, fencing.ReasonUnknown},
		"not due":        {fencetest.Insert(t, pool, kind, "pending", "next_attempt_at = clock_timestamp() + interval '1 h'"), kind, fencing.ReasonNotDue},
		"owned":          {fencetest.Insert(t, pool, kind, "processing", fencetest.Owned), kind, fencing.ReasonOwned},
		"expired lease":  {fencetest.Insert(t, pool, kind, "processing", fencetest.Expired), kind, fencing.ReasonOwned},
		"steps, owned":   {fencetest.Insert(t, pool, fencetest.Steps, "running", fencetest.Owned), fencetest.Steps, fencing.ReasonOwned},
		"steps, expired": {fencetest.Insert(t, pool, fencetest.Steps, "running", fencetest.Expired), fencetest.Steps, fencing.ReasonOwned},
		"sent":           {fencetest.Insert(t, pool, kind, "sent"), kind, fencing.ReasonTerminal},
		"dead":           {fencetest.Insert(t, pool, kind, "dead"), kind, fencing.ReasonTerminal},
		"suspect":        {fencetest.Insert(t, pool, kind, "pending", "reaps = 2"), kind, fencing.ReasonSuspect},
		"waits":          {fencetest.Insert(t, pool, fencetest.Steps, "queued", "next_attempt_at = null"), fencetest.Steps, fencing.ReasonWaits},
		"another kind":   {fencetest.Insert(t, pool, "other_kind", "queued"), fencetest.Steps, fencing.ReasonRaced},
		"another table":  {fencetest.Insert(t, pool, kind, "pending"), fencetest.Steps, fencing.ReasonRaced},
	} {
		t.Run(name, func(t *testing.T) {
			_, ok, err := receipts.ClaimStarted(ctx, pool, fencetest.Request(c.kind, c.run))
			require.NoError(t, err)
			require.False(t, ok)
			st, err := fencing.StandingOf(ctx, pool, c.run)
			require.NoError(t, err)
			require.Equal(t, c.reason, st.Reason)
			if c.reason == fencing.ReasonNotDue {
				require.InDelta(t, 3600, st.DueIn.Seconds(), 5)
			}
			require.Empty(t, fencetest.Outcomes(t, pool, c.run), "no receipt without a claim")
		})
	}
}

// R2: one suspect at a time is the worker's rule; the claim asks it to say that this is the one.
func TestClaim_SuspectNeedsTheSlot(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	run := fencetest.Insert(t, pool, fencetest.Delivery, "pending", "reaps = 2")
	req := fencetest.Request(fencetest.Delivery, run)
	req.Suspect = true
	c, ok, err := receipts.Claim(t.Context(), pool, req)
	require.NoError(t, err)
	require.True(t, ok)
	require.True(t, c.IsSuspect())
	require.JSONEq(t, `{"to":"a@example.com"}`, string(c.Payload))
}

// F3, LF-01: the lease is stamped after the wait for the row, not before.
func TestClaim_FullLeaseAfterWaitingForALock(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	ctx := t.Context()
	for _, started := range []bool{false, true} {
		run := fencetest.Insert(t, pool, fencetest.Delivery, "pending")
		holder := fencetest.Begin(t, pool)
		fencetest.Exec(t, holder, "select from weir.run where id = $1 for update", run)
		req := fencetest.Request(fencetest.Delivery, run)
		req.Lease = 2 * time.Second
		done := make(chan error, 1)
		go func() {
			var err error
			if started {
				_, _, err = receipts.ClaimStarted(ctx, pool, req)
			} else {
				_, _, err = receipts.Claim(ctx, pool, req)
			}
			done <- err
		}()
		fencetest.WaitsForLock(t, pool, 1)
		fencetest.Exec(t, pool, "select pg_sleep(1)")
		require.NoError(t, holder.Rollback(ctx))
		require.NoError(t, <-done)
		row := fencetest.Read(t, pool, run)
		require.True(t, row.Owned)
		require.Greater(t, row.LeaseLeft, 1500*time.Millisecond, "a lease of 2 s was born with %s", row.LeaseLeft)
	}
}

// A client dies before its claim is committed: the claim never was, and the next one wins.
func TestClaim_UncommittedDiesWithItsClient(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	ctx := t.Context()
	run := fencetest.Insert(t, pool, fencetest.Delivery, "pending")
	victim := fencetest.Begin(t, pool)
	_, ok, err := receipts.ClaimStarted(ctx, victim, fencetest.Request(fencetest.Delivery, run))
	require.NoError(t, err)
	require.True(t, ok)

	next := make(chan bool, 1)
	go func() {
		_, ok, err := receipts.ClaimStarted(ctx, pool, fencetest.Request(fencetest.Delivery, run))
		next <- ok && err == nil
	}()
	fencetest.WaitsForLock(t, pool, 1)
	fencetest.Exec(t, pool, "select pg_terminate_backend($1)", int(victim.Conn().PgConn().PID()))
	require.True(t, <-next)
	require.EqualValues(t, 8, fencetest.Read(t, pool, run).Attempt)
	require.Equal(t, []string{"0 send started 8"}, fencetest.Outcomes(t, pool, run))
}

// The started receipt commits with the claim, takes over what an earlier try left open, and never overwrites ok.
func TestClaim_StartedReceiptInTheSameCommit(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	for before, after := range map[string]string{
		"":        "0 send started 8",
		"unknown": "0 send started 8",
		"started": "0 send started 8",
		"failed":  "0 send started 8",
		"ok":      "0 send ok 3",
	} {
		run := fencetest.Insert(t, pool, fencetest.Delivery, "pending")
		if before != "" {
			fencetest.Exec(t, pool, `insert into weir.receipt (run_id, step_index, attempt, outcome, effect, step_name)
				values ($1, 0, 3, $2, 'at_least_once', 'send')`, run, before)
		}
		_, ok, err := receipts.ClaimStarted(t.Context(), pool, fencetest.Request(fencetest.Delivery, run))
		require.NoError(t, err)
		require.True(t, ok)
		require.Equal(t, []string{after}, fencetest.Outcomes(t, pool, run), "after %q", before)
	}
}

// D4: what a claim records of its doorbell is exactly what River has, to the microsecond.
func TestClaim_RecordsTheDoorbellThatMadeIt(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	ctx := context.Background()
	bells := fencetest.Bells(t, pool)
	run := fencetest.Insert(t, pool, fencetest.Delivery, "pending")
	job := fencetest.Ring(t, pool, bells, fencetest.Delivery, run)
	fencetest.StartJob(t, pool, job)
	req := fencetest.Request(fencetest.Delivery, run)
	req.Doorbell, req.DoorbellAttemptedAt = job, fencetest.Value[time.Time](t, pool, "select attempted_at from river_job where id = $1", job)
	_, ok, err := receipts.Claim(ctx, pool, req)
	require.NoError(t, err)
	require.True(t, ok)
	require.True(t, fencetest.Value[bool](t, pool, `select r.doorbell_attempted_at = j.attempted_at from weir.run r
		join river_job j on j.id = r.doorbell_id where r.id = $1`, run))
}
