package fencing_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/internal/fencing"
	"github.com/weirqueue/weir/internal/fencing/fencetest"
	"github.com/weirqueue/weir/internal/postgres/pgtest"
	"github.com/weirqueue/weir/internal/receipts"
)

type verdictOf struct {
	verdict fencing.Verdict
	attempt int64
	err     error
}

// R10, F12, PL-04: the transaction in doubt is still open. Raising the own attempt waits for it, and then knows.
func TestDoubt_WaitsForTheTransactionInDoubt(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		last, commits bool
		want          verdictOf
		outcomes      []string
	}{
		"a step, and it commits":         {false, true, verdictOf{fencing.StillOwner, 8, nil}, []string{"0 x ok 7"}},
		"a step, and it is rolled back":  {false, false, verdictOf{fencing.StillOwner, 8, nil}, []string{}},
		"the end, and it commits":        {true, true, verdictOf{fencing.Finished, 7, nil}, []string{"0 x ok 7"}},
		"the end, and it is rolled back": {true, false, verdictOf{fencing.StillOwner, 8, nil}, []string{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := pgtest.Pool(t)
			ctx := t.Context()
			run := fencetest.Insert(t, pool, fencetest.Steps, "running", fencetest.Owned)
			inDoubt := fencetest.Begin(t, pool)
			fence := receipts.StepFence{
				Run: run, Kind: fencetest.Steps, Attempt: 7, Step: receipts.Step{Name: "x"}, Last: c.last, Lease: time.Minute, StepTime: time.Minute,
			}
			require.NoError(t, fence.Write(ctx, inDoubt))
			got := make(chan verdictOf, 1)
			go func() {
				v, attempt, err := fencing.ResolveDoubt(ctx, pool, run, 7, time.Minute)
				got <- verdictOf{v, attempt, err}
			}()
			fencetest.WaitsForLock(t, pool, 1)
			if c.commits {
				require.NoError(t, inDoubt.Commit(ctx))
			} else {
				require.NoError(t, inDoubt.Rollback(ctx))
			}
			require.Equal(t, c.want, <-got)
			require.Equal(t, c.outcomes, fencetest.Outcomes(t, pool, run), "read in a statement after the verdict")
		})
	}
}

// F12: the COMMIT had not reached the server. After the verdict it comes too late: its fence names the old attempt.
func TestDoubt_LateCommitOfTheOldAttemptFails(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	ctx := t.Context()
	run := fencetest.Insert(t, pool, fencetest.Steps, "running", fencetest.Owned)
	late := fencetest.Begin(t, pool)
	fencetest.Exec(t, late, "create table effect (n int)")
	v, attempt, err := fencing.ResolveDoubt(ctx, pool, run, 7, time.Minute)
	require.NoError(t, err)
	require.Equal(t, fencing.StillOwner, v)
	require.EqualValues(t, 8, attempt)
	fence := receipts.StepFence{
		Run: run, Kind: fencetest.Steps, Attempt: 7, Step: receipts.Step{Name: "x"}, Lease: time.Minute, StepTime: time.Minute,
	}
	require.ErrorIs(t, fence.Write(ctx, late), fencing.ErrLeaseLost)
	require.Error(t, late.Commit(ctx))
	require.Nil(t, fencetest.Value[*string](t, pool, "select to_regclass('effect')::text"))

	again := fencetest.Begin(t, pool)
	fence.Attempt = attempt
	require.NoError(t, fence.Write(ctx, again))
	require.NoError(t, again.Commit(ctx))
	require.Equal(t, []string{"0 x ok 8"}, fencetest.Outcomes(t, pool, run))
}

func TestDoubt_LostWhenSomebodyTookTheRun(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	ctx := t.Context()
	reaped := fencetest.Insert(t, pool, fencetest.Steps, "running", fencetest.Expired)
	_, err := fencetest.Reaper(t, pool).Reap(ctx)
	require.NoError(t, err)
	canceled := fencetest.Insert(t, pool, fencetest.Steps, "canceled", "attempt = 8")
	claimed := fencetest.Insert(t, pool, fencetest.Steps, "running", fencetest.Owned, "attempt = 9")
	for name, run := range map[string]uuid.UUID{"reaped": reaped, "canceled": canceled, "claimed": claimed, "deleted": uuid.Must(uuid.NewV7())} {
		v, _, err := fencing.ResolveDoubt(ctx, pool, run, 7, time.Minute)
		require.NoError(t, err, name)
		require.Equal(t, fencing.Lost, v, name)
	}
	require.Equal(t, int64(8), fencetest.Read(t, pool, reaped).Attempt)
	require.Equal(t, int64(9), fencetest.Read(t, pool, claimed).Attempt, "the successor's attempt was raised")
}

// A failed try gives the run away and raises the attempt itself: that answer is Lost, and the record is right.
func TestDoubt_AfterAFailedTryThatCommitted(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	run := fencetest.Insert(t, pool, fencetest.Delivery, "processing", fencetest.Owned)
	_, err := end(fencing.FailTry, run, 7).Write(t.Context(), pool)
	require.NoError(t, err)
	was := fencetest.Read(t, pool, run)
	v, _, err := fencing.ResolveDoubt(t.Context(), pool, run, 7, time.Minute)
	require.NoError(t, err)
	require.Equal(t, fencing.Lost, v)
	require.Equal(t, was.RowChangedBy, fencetest.Read(t, pool, run).RowChangedBy)
}

func end(e fencing.Event, run uuid.UUID, attempt int64) receipts.End {
	return receipts.End{
		Event: e, Run: run, Kind: fencetest.Delivery, Attempt: attempt, Owner: "w", Step: sendStep, Outcome: receipts.Unknown, Code: "c", Delay: time.Hour,
	}
}

// What an error means for a statement that commits by itself. A server that speaks another language says FATAL in it.
func TestOutcomeOf(t *testing.T) {
	t.Parallel()
	for want, errs := range map[fencing.Outcome][]error{
		fencing.Refused: {&pgconn.PgError{Code: "40P01", Severity: "ERROR", SeverityUnlocalized: "ERROR"}, fmt.Errorf("x: %w", &pgconn.PgError{Severity: "FEHLER", SeverityUnlocalized: "ERROR"})},
		fencing.Unknown: {
			&pgconn.PgError{Code: "57P01", Severity: "FATAL", SeverityUnlocalized: "FATAL"},
			&pgconn.PgError{Code: "57P02", Severity: "PANIK", SeverityUnlocalized: "PANIC"},
			&pgconn.PgError{Code: "57P01", Severity: "ВАЖНО", SeverityUnlocalized: "FATAL"},
			fmt.Errorf("unexpected EOF"),
		},
	} {
		for _, err := range errs {
			require.Equal(t, want, fencing.OutcomeOf(err), "%#v", err)
		}
	}
}
