package receipts_test

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/internal/fencing"
	"github.com/weirqueue/weir/internal/fencing/fencetest"
	"github.com/weirqueue/weir/internal/postgres/pgtest"
	"github.com/weirqueue/weir/internal/receipts"
)

func outside(run uuid.UUID, attempt int64, effect receipts.Effect) receipts.Outside {
	return receipts.Outside{
		Run: run, Kind: fencetest.Steps, Attempt: attempt, Step: receipts.Step{Index: 2, Name: "issue", Effect: effect},
		Lease: time.Minute, StepTime: time.Minute,
	}
}

// What may be started again after which receipt: never ok; for a Reconciled step nothing that somebody may have done.
func TestOutside_WhatMayBeStartedAgain(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	for _, c := range []struct {
		effect receipts.Effect
		before receipts.Outcome
		began  bool
	}{
		{receipts.Idempotent, "", true},
		{receipts.Idempotent, receipts.Started, true},
		{receipts.Idempotent, receipts.Unknown, true},
		{receipts.AtLeastOnce, receipts.Failed, true},
		{receipts.AtLeastOnce, receipts.OK, false},
		{receipts.Reconciled, "", true},
		{receipts.Reconciled, receipts.Failed, true},
		{receipts.Reconciled, receipts.Started, false},
		{receipts.Reconciled, receipts.Unknown, false},
		{receipts.Reconciled, receipts.OK, false},
	} {
		run, attempt := owned(t, pool)
		before := []string{}
		if c.before != "" {
			fencetest.Exec(t, pool, `insert into weir.receipt (run_id, step_index, attempt, outcome, effect, step_name)
				values ($1, 2, 3, $2, $3, 'issue')`, run, string(c.before), string(c.effect))
			before = fencetest.Outcomes(t, pool, run)
		}
		began, _, err := outside(run, attempt, c.effect).Start(t.Context(), pool)
		require.NoError(t, err)
		require.Equal(t, c.began, began, "%s after %q", c.effect, c.before)
		if began {
			before = []string{"2 issue started 8"}
		}
		require.Equal(t, before, fencetest.Outcomes(t, pool, run), "%s after %q", c.effect, c.before)
	}
}

// A stale owner neither starts nor settles (L4, F9), and nothing is written.
func TestOutside_StaleOwner(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	run, attempt := owned(t, pool)
	take(t, pool, run)
	was := fencetest.Read(t, pool, run)
	_, _, err := outside(run, attempt, receipts.AtLeastOnce).Start(t.Context(), pool)
	require.ErrorIs(t, err, fencing.ErrLeaseLost)
	_, err = outside(run, attempt, receipts.AtLeastOnce).Settle(t.Context(), pool, nil, "")
	require.ErrorIs(t, err, fencing.ErrLeaseLost)
	require.Equal(t, was.RowChangedBy, fencetest.Read(t, pool, run).RowChangedBy)
	require.Empty(t, fencetest.Outcomes(t, pool, run))
}

// Starting keeps the reaps, so that a step that kills its process runs out of them; settling sets them back. Both say
// whether somebody asked for a cancellation.
func TestOutside_StartsAndSettles(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	run, attempt := owned(t, pool)
	fencetest.Update(t, pool, run, "reaps = 2, lease_expires_at = clock_timestamp() + interval '1 s'")
	_, asked, err := outside(run, attempt, receipts.Idempotent).Start(t.Context(), pool)
	require.NoError(t, err)
	require.False(t, asked)
	row := fencetest.Read(t, pool, run)
	require.Equal(t, 2, row.Reaps)
	require.Greater(t, row.LeaseLeft, 50*time.Second)
	fencetest.Update(t, pool, run, "cancel_requested_at = now()")
	asked, err = outside(run, attempt, receipts.Idempotent).Settle(t.Context(), pool, []byte(`{"n":1}`), "ref")
	require.NoError(t, err)
	require.True(t, asked)
	require.Zero(t, fencetest.Read(t, pool, run).Reaps)
	require.Equal(t, []string{"2 issue ok 8"}, fencetest.Outcomes(t, pool, run))
}

func statement(run uuid.UUID, attempt int64, sql string, args ...any) receipts.StatementFence {
	return receipts.StatementFence{StepFence: fence(run, attempt, 0), SQL: sql, Args: args}
}

// R9: one statement, its output, fence and receipt: all or nothing.
func TestStatementStep(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	book(t, pool)
	run, attempt := owned(t, pool)
	const insert = "insert into book select $1::text where $2 returning entry -- a comment at its end;"
	_, err := statement(run, attempt, insert, "none", false).Execute(t.Context(), pool)
	require.ErrorIs(t, err, receipts.ErrTouchedNothing)
	require.Empty(t, fencetest.Outcomes(t, pool, run))

	out, err := statement(run, attempt, insert, "one", true).Execute(t.Context(), pool)
	require.NoError(t, err)
	require.JSONEq(t, `[{"entry": "one"}]`, string(out))
	require.Equal(t, []string{"0 enter ok 8"}, fencetest.Outcomes(t, pool, run))

	_, err = statement(run, attempt, insert, "again", true).Execute(t.Context(), pool)
	require.ErrorIs(t, err, receipts.ErrAlreadyDone)
	take(t, pool, run)
	stale := statement(run, attempt, insert, "stale", true)
	stale.Step.Index = 1
	_, err = stale.Execute(t.Context(), pool)
	require.ErrorIs(t, err, fencing.ErrLeaseLost)
	// A stale owner whose statement touched nothing is told that it is stale: that decides.
	stale.Args = []any{"stale", false}
	_, err = stale.Execute(t.Context(), pool)
	require.ErrorIs(t, err, fencing.ErrLeaseLost)
	require.Equal(t, []string{"one"}, entries(t, pool))
	require.Equal(t, []string{"0 enter ok 8"}, fencetest.Outcomes(t, pool, run))
}

// F6: a frozen predecessor's uncommitted unique key blocks the successor's step for no longer than lock_timeout, and
// that burns nothing.
func TestStep_UncommittedKeyOfAPredecessor(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	book(t, pool)
	frozen := fencetest.Begin(t, pool)
	enter(t, frozen, "same")
	tx, err := fencing.Begin(t.Context(), pool)
	require.NoError(t, err)
	defer fencing.RollbackQuietly(t.Context(), tx)
	fencetest.Exec(t, tx, "set local lock_timeout = '200ms'")
	_, err = tx.Exec(t.Context(), "insert into book values ('same')")
	require.True(t, fencing.IsTransient(err), "%v", err)
}

// F16: statement_timeout does not bound COMMIT, so a deferred constraint is made immediate before the fence; then it is
// bounded, and the run is not locked while it works.
func TestStep_DeferredConstraintsRunBeforeTheFence(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	book(t, pool)
	fencetest.Exec(t, pool, `create function slow() returns trigger language plpgsql as $$ begin perform pg_sleep(0.6); return null; end $$`)
	fencetest.Exec(t, pool, `create constraint trigger slow after insert on book deferrable initially deferred for each row execute function slow()`)
	for _, immediate := range []bool{false, true} {
		run, attempt := owned(t, pool)
		tx := fencetest.Begin(t, pool)
		fencetest.Exec(t, tx, "set local statement_timeout = '300ms'")
		enter(t, tx, run.String())
		if immediate {
			_, err := tx.Exec(t.Context(), "set constraints all immediate")
			require.ErrorContains(t, err, "57014")
			continue
		}
		require.NoError(t, fence(run, attempt, 0).Write(t.Context(), tx))
		began := time.Now()
		require.NoError(t, tx.Commit(t.Context()), "PostgreSQL bounds COMMIT now: good")
		require.Greater(t, time.Since(began), 500*time.Millisecond)
	}
}
