package receipts_test

import (
	"context"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/internal/fencing"
	"github.com/weirqueue/weir/internal/fencing/fencetest"
	"github.com/weirqueue/weir/internal/postgres/pgtest"
	"github.com/weirqueue/weir/internal/receipts"
)

var send = receipts.Step{Index: 0, Name: "send", Effect: receipts.AtLeastOnce}

func cancel(ctx context.Context, pool *pgxpool.Pool, run uuid.UUID) (done bool, err error) {
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		_, _, d, err := receipts.Cancel(ctx, tx, run, fencing.CodeCanceled)
		done = d
		return err
	})
	return done, err
}

// F15: the cancellation waits for a claim that commits its started receipt. It decides on what it finds after the wait,
// and only requests.
func TestCancel_WaitsForAClaimThenOnlyRequests(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	ctx := t.Context()
	run := fencetest.Insert(t, pool, fencetest.Delivery, "pending")
	claimer := fencetest.Begin(t, pool)
	c, ok, err := receipts.ClaimStarted(ctx, claimer, fencetest.Request(fencetest.Delivery, run))
	require.NoError(t, err)
	require.True(t, ok)
	type answer struct {
		done bool
		err  error
	}
	got := make(chan answer, 1)
	go func() {
		done, err := cancel(ctx, pool, run)
		got <- answer{done, err}
	}()
	fencetest.WaitsForLock(t, pool, 1)
	require.NoError(t, claimer.Commit(ctx))
	require.Equal(t, answer{false, nil}, <-got)
	row := fencetest.Read(t, pool, run)
	require.Equal(t, fencing.Status("processing"), row.Status)
	require.Equal(t, c.Attempt, row.Attempt, "the owner keeps its token, to honour the request")
	require.True(t, row.CancelRequested)
	require.Equal(t, []string{"0 send started 8"}, fencetest.Outcomes(t, pool, run))

	// The owner's failed try honours it.
	ended, err := receipts.End{
		Event: fencing.FailTry, Run: run, Kind: fencetest.Delivery, Attempt: c.Attempt, Owner: "w", Step: send, Outcome: receipts.Failed, Code: "smtp_451",
	}.Write(ctx, pool)
	require.NoError(t, err)
	require.True(t, ended.Terminal)
	require.Equal(t, fencing.CodeCanceled, fencetest.Read(t, pool, run).Code)
}

// L6, F10: where nothing runs outside, the token is worthless at once; what the owner commits later is refused.
func TestCancel_TakesTheTokenAway(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	ctx := t.Context()
	run, attempt := owned(t, pool)
	done, err := cancel(ctx, pool, run)
	require.NoError(t, err)
	require.True(t, done)
	row := fencetest.Read(t, pool, run)
	require.Equal(t, fencing.Status("canceled"), row.Status)
	require.Equal(t, attempt+1, row.Attempt)
	require.Equal(t, []string{"8 canceled w"}, fencetest.Tries(t, pool, run))
	tx := fencetest.Begin(t, pool)
	require.ErrorIs(t, fence(run, attempt, 0).Write(ctx, tx), fencing.ErrLeaseLost)

	// Not owned: no try ended. Terminal: left alone.
	queued := fencetest.Insert(t, pool, fencetest.Delivery, "pending")
	done, err = cancel(ctx, pool, queued)
	require.NoError(t, err)
	require.True(t, done)
	require.Empty(t, fencetest.Tries(t, pool, queued))
	was := fencetest.Read(t, pool, queued)
	done, err = cancel(ctx, pool, queued)
	require.NoError(t, err)
	require.False(t, done)
	require.Equal(t, was.RowChangedBy, fencetest.Read(t, pool, queued).RowChangedBy)
}

// What an earlier owner started stays unknown, and says so.
func TestCancel_SettlesWhatWasStarted(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	run := fencetest.Insert(t, pool, fencetest.Steps, "running")
	fencetest.Exec(t, pool, `insert into weir.receipt (run_id, step_index, attempt, outcome, effect, step_name)
		values ($1, 0, 3, 'started', 'reconciled', 'issue'), ($1, 1, 3, 'ok', 'reconciled', 'poll')`, run)
	done, err := cancel(t.Context(), pool, run)
	require.NoError(t, err)
	require.True(t, done)
	require.Equal(t, []string{"0 issue unknown 3", "1 poll ok 3"}, fencetest.Outcomes(t, pool, run))
}

// Fifty cancellations race with fifty claims: no run is both canceled and owned.
func TestCancel_RacesWithClaims(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t, pgtest.MaxConns(20))
	ctx := t.Context()
	runs := fencetest.InsertMany(t, pool, 50, fencetest.Delivery, "pending", "")
	var wg sync.WaitGroup
	for _, run := range runs {
		wg.Go(func() {
			if _, err := cancel(ctx, pool, run); err != nil {
				t.Error(err)
			}
		})
		wg.Go(func() {
			if _, _, err := receipts.ClaimStarted(ctx, pool, fencetest.Request(fencetest.Delivery, run)); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	canceled, requested := 0, 0
	for _, run := range runs {
		switch row := fencetest.Read(t, pool, run); row.Status {
		case "failed":
			canceled++
			require.False(t, row.Owned)
			require.Empty(t, fencetest.Outcomes(t, pool, run))
		case "processing":
			requested++
			require.True(t, row.CancelRequested)
		default:
			t.Errorf("run %s is %s", run, row.Status)
		}
	}
	require.Equal(t, 50, canceled+requested)
}

// PG-05: bulk cancels and redrives in one transaction each, in id order, while others claim and finish.
func TestCancel_InBulkWithoutDeadlocks(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t, pgtest.MaxConns(12))
	ctx := t.Context()
	runs := fencetest.InsertMany(t, pool, 300, fencetest.Delivery, "pending", "")
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
				for _, run := range runs {
					if _, _, _, err := receipts.Cancel(ctx, tx, run, fencing.CodeCanceled); err != nil {
						return err
					}
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	for w := range 4 {
		wg.Go(func() {
			for i := range runs {
				run := runs[(i*7+w*75)%len(runs)]
				c, ok, err := receipts.ClaimStarted(ctx, pool, fencetest.Request(fencetest.Delivery, run))
				if err != nil {
					t.Error(err)
				}
				if !ok {
					continue
				}
				if _, err := (receipts.End{
					Event: fencing.Succeed, Run: run, Kind: fencetest.Delivery, Attempt: c.Attempt, Step: send, Outcome: receipts.OK,
				}).Write(ctx, pool); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	require.Zero(t, fencetest.Value[int](t, pool, "select count(*)::int from weir.run where finished_at is null"))
}

func redrive(ctx context.Context, pool *pgxpool.Pool, run uuid.UUID) (ok bool, err error) {
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		l, _, err := fencing.LockRun(ctx, tx, run)
		if err != nil {
			return err
		}
		ok, err = fencing.RedriveLocked(ctx, tx, fencing.MachineOf(l.Kind), run)
		return err
	})
	return ok, err
}

// R4: redrive is for dead, and failed other than canceled: budgets to zero, a new token, the receipts stay.
func TestRedrive(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	for name, c := range map[string]struct {
		kind   string
		status fencing.Status
		set    fencetest.Set
		ok     bool
	}{
		"dead":      {fencetest.Delivery, "dead", "failures = 5, reaps = 3, error_code = 'reaped'", true},
		"failed":    {fencetest.Delivery, "failed", "failures = 1, error_code = 'smtp_550'", true},
		"canceled":  {fencetest.Delivery, "failed", "cancel_requested_at = now(), error_code = 'canceled'", false},
		"sent":      {fencetest.Delivery, "sent", "failures = 1", false},
		"pending":   {fencetest.Delivery, "pending", "failures = 1", false},
		"owned":     {fencetest.Delivery, "processing", fencetest.Owned, false},
		"own kinds": {fencetest.Steps, "failed", "failures = 1", false},
	} {
		run := fencetest.Insert(t, pool, c.kind, c.status, c.set)
		fencetest.Exec(t, pool, `insert into weir.receipt (run_id, step_index, attempt, outcome, effect, step_name)
			values ($1, 0, 3, 'failed', 'at_least_once', 'send')`, run)
		was := fencetest.Read(t, pool, run)
		ok, err := redrive(t.Context(), pool, run)
		require.NoError(t, err, name)
		require.Equal(t, c.ok, ok, name)
		row := fencetest.Read(t, pool, run)
		if !ok {
			require.Equal(t, was.RowChangedBy, row.RowChangedBy, name)
			continue
		}
		require.Equal(t, fencing.Status("pending"), row.Status)
		require.Equal(t, was.Attempt+1, row.Attempt)
		require.Zero(t, row.Failures+row.Reaps)
		require.True(t, row.DueNow)
		require.Empty(t, row.Code)
		require.Equal(t, []string{"0 send failed 3"}, fencetest.Outcomes(t, pool, run))
		_, ok, err = receipts.ClaimStarted(t.Context(), pool, fencetest.Request(c.kind, run))
		require.NoError(t, err)
		require.True(t, ok)
	}
}

// An exclusive key that another run holds meanwhile refuses the redrive, and nothing changes.
func TestRedrive_ExclusiveKeyTakenMeanwhile(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	run := fencetest.Insert(t, pool, fencetest.Delivery, "dead", "exclusive_key = 'k'")
	fencetest.Insert(t, pool, fencetest.Delivery, "pending", "exclusive_key = 'k'")
	_, err := redrive(t.Context(), pool, run)
	require.ErrorContains(t, err, "run_exclusive_idx")
	require.Equal(t, fencing.Status("dead"), fencetest.Read(t, pool, run).Status)
}
