package receipts_test

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/internal/fencing"
	"github.com/weirqueue/weir/internal/fencing/fencetest"
	"github.com/weirqueue/weir/internal/postgres/pgtest"
	"github.com/weirqueue/weir/internal/receipts"
)

func sending(t *testing.T, pool *pgxpool.Pool) uuid.UUID {
	run := fencetest.Insert(t, pool, fencetest.Delivery, "pending")
	_, ok, err := receipts.ClaimStarted(t.Context(), pool, fencetest.Request(fencetest.Delivery, run))
	require.NoError(t, err)
	require.True(t, ok)
	return run
}

func ending(e fencing.Event, run uuid.UUID, outcome receipts.Outcome) receipts.End {
	return receipts.End{
		Event: e, Run: run, Kind: fencetest.Delivery, Attempt: 8, Owner: "w", Step: send, Outcome: outcome,
		ExternalRef: "<1@example.com>", Code: "smtp_451", Message: "later", Delay: time.Minute,
	}
}

// The terminal or failed write settles the receipt and records the try, in one statement.
func TestEnd_SettlesAndRecordsTheTry(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	for _, c := range []struct {
		event   fencing.Event
		outcome receipts.Outcome
		status  fencing.Status
		rows    []string
		tries   []string
	}{
		{fencing.Succeed, receipts.OK, "sent", []string{"0 send ok 8"}, []string{}},
		{fencing.Refuse, receipts.Failed, "failed", []string{"0 send failed 8"}, []string{"8 failed w"}},
		{fencing.FailTry, receipts.Unknown, "pending", []string{"0 send unknown 8"}, []string{"8 failed w"}},
		{fencing.Snooze, receipts.Failed, "pending", []string{"0 send failed 8"}, []string{"8 snoozed w"}},
		// R5: nothing reached the outside, so the started is taken back.
		{fencing.Release, "", "pending", []string{}, []string{"8 released w"}},
	} {
		run := sending(t, pool)
		ended, err := ending(c.event, run, c.outcome).Write(t.Context(), pool)
		require.NoError(t, err, c.event)
		require.Equal(t, c.status, ended.Status)
		require.Equal(t, c.status, fencetest.Read(t, pool, run).Status)
		require.Equal(t, c.rows, fencetest.Outcomes(t, pool, run))
		require.Equal(t, c.tries, fencetest.Tries(t, pool, run))
		switch c.event {
		case fencing.FailTry, fencing.Snooze:
			require.InDelta(t, 60, ended.DueIn.Seconds(), 2)
		case fencing.Release:
			require.LessOrEqual(t, ended.DueIn, time.Duration(0))
		}
	}
}

// L3, LF-09: whatever comes after the end is refused, and writes neither receipt nor try.
func TestEnd_OnlyOnce(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	run := sending(t, pool)
	_, err := ending(fencing.Succeed, run, receipts.OK).Write(t.Context(), pool)
	require.NoError(t, err)
	was := fencetest.Read(t, pool, run)
	for _, e := range []fencing.Event{fencing.Succeed, fencing.Refuse, fencing.FailTry, fencing.Snooze, fencing.Release} {
		_, err := ending(e, run, receipts.Failed).Write(t.Context(), pool)
		require.ErrorIs(t, err, fencing.ErrLeaseLost)
	}
	require.Equal(t, was.RowChangedBy, fencetest.Read(t, pool, run).RowChangedBy)
	require.Equal(t, []string{"0 send ok 8"}, fencetest.Outcomes(t, pool, run))
	require.Empty(t, fencetest.Tries(t, pool, run))
}

// A release takes back only what its own try started.
func TestEnd_ReleaseLeavesOlderReceipts(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	run := fencetest.Insert(t, pool, fencetest.Delivery, "processing", fencetest.Owned)
	fencetest.Exec(t, pool, `insert into weir.receipt (run_id, step_index, attempt, outcome, effect, step_name)
		values ($1, 0, 3, 'started', 'at_least_once', 'a'), ($1, 1, 7, 'ok', 'at_least_once', 'b'), ($1, 2, 7, 'started', 'at_least_once', 'c')`, run)
	end := ending(fencing.Release, run, "")
	end.Attempt = 7
	_, err := end.Write(t.Context(), pool)
	require.NoError(t, err)
	require.Equal(t, []string{"0 a started 3", "1 b ok 7"}, fencetest.Outcomes(t, pool, run))
}

// A step that is ok stays ok, whatever a later try of its run reports.
func TestEnd_NeverOverwritesOK(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	run := fencetest.Insert(t, pool, fencetest.Delivery, "processing", fencetest.Owned)
	fencetest.Exec(t, pool, `insert into weir.receipt (run_id, step_index, attempt, outcome, effect, step_name)
		values ($1, 0, 3, 'ok', 'at_least_once', 'send')`, run)
	end := ending(fencing.FailTry, run, receipts.Unknown)
	end.Attempt = 7
	_, err := end.Write(t.Context(), pool)
	require.NoError(t, err)
	require.Equal(t, []string{"0 send ok 3"}, fencetest.Outcomes(t, pool, run))
}

// Erasure takes what may hold personal data, of terminal runs only.
func TestErase(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	run := sending(t, pool)
	tx := fencetest.Begin(t, pool)
	require.NoError(t, receipts.Erase(t.Context(), tx, run))
	require.NoError(t, tx.Commit(t.Context()))
	_, err := ending(fencing.Succeed, run, receipts.OK).Write(t.Context(), pool)
	require.NoError(t, err)
	require.True(t, fencetest.Value[bool](t, pool, "select external_ref is not null from weir.receipt where run_id = $1", run))
	tx = fencetest.Begin(t, pool)
	require.NoError(t, fencing.EraseLocked(t.Context(), tx, run))
	require.NoError(t, receipts.Erase(t.Context(), tx, run))
	require.NoError(t, tx.Commit(t.Context()))
	require.True(t, fencetest.Value[bool](t, pool, `select r.external_ref is null and r.output is null and p.body is null and p.erased_at is not null
		from weir.receipt r join weir.payload p using (run_id) where run_id = $1`, run))
}
