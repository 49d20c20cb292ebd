package receipts_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/internal/fencing"
	"github.com/weirqueue/weir/internal/fencing/fencetest"
	"github.com/weirqueue/weir/internal/postgres/pgtest"
	"github.com/weirqueue/weir/internal/receipts"
)

// book is a table of the application: the effect that a step commits with its receipt.
func book(t *testing.T, pool *pgxpool.Pool) {
	fencetest.Exec(t, pool, "create table book (entry text primary key)")
}

func enter(t *testing.T, tx pgx.Tx, entry string) {
	fencetest.Exec(t, tx, "insert into book values ($1)", entry)
}

func entries(t *testing.T, pool *pgxpool.Pool) []string {
	rows, err := pool.Query(t.Context(), "select entry from book order by entry")
	require.NoError(t, err)
	out, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	return append([]string{}, out...)
}

func fence(run uuid.UUID, attempt int64, step int) receipts.StepFence {
	return receipts.StepFence{
		Run: run, Kind: fencetest.Steps, Attempt: attempt, Step: receipts.Step{Index: step, Name: "enter"},
		Output: []byte(`{"n":1}`), Lease: time.Minute, StepTime: time.Minute,
	}
}

func owned(t *testing.T, pool *pgxpool.Pool) (uuid.UUID, int64) {
	run := fencetest.Insert(t, pool, fencetest.Steps, "queued")
	return run, fencetest.Claim(t, pool, fencetest.Steps, run).Attempt
}

func take(t *testing.T, pool *pgxpool.Pool, run uuid.UUID) int64 {
	fencetest.Update(t, pool, run, "lease_expires_at = clock_timestamp() - interval '1 s'")
	reaped, err := fencetest.Reaper(t, pool).Reap(t.Context())
	require.NoError(t, err)
	require.Len(t, reaped, 1)
	return fencetest.Claim(t, pool, fencetest.Steps, run).Attempt
}

// Invariants 3 and 8: the effect, its receipt and the renewal are one commit.
func TestStep_EffectAndReceiptCommitTogether(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	book(t, pool)
	run, attempt := owned(t, pool)
	fencetest.Update(t, pool, run, "reaps = 2, lease_expires_at = clock_timestamp() + interval '5 s'")
	tx := fencetest.Begin(t, pool)
	enter(t, tx, "one")
	require.NoError(t, fence(run, attempt, 0).Write(t.Context(), tx))
	require.Empty(t, fencetest.Outcomes(t, pool, run))
	require.NoError(t, tx.Commit(t.Context()))

	require.Equal(t, []string{"one"}, entries(t, pool))
	require.Equal(t, []string{"0 enter ok 8"}, fencetest.Outcomes(t, pool, run))
	row := fencetest.Read(t, pool, run)
	require.Zero(t, row.Reaps, "a step that commits proves that the payload does not kill its process")
	require.Greater(t, row.LeaseLeft, 50*time.Second)

	last := fence(run, attempt, 1)
	last.Last, last.RunOutput = true, []byte(`"done"`)
	tx = fencetest.Begin(t, pool)
	require.NoError(t, last.Write(t.Context(), tx))
	require.NoError(t, tx.Commit(t.Context()))
	row = fencetest.Read(t, pool, run)
	require.Equal(t, fencing.Status("succeeded"), row.Status)
	require.Equal(t, attempt, row.Attempt)
	require.Equal(t, "done", fencetest.Value[string](t, pool, "select output #>> '{}' from weir.run where id = $1", run))
}

// F1, F2, L4, L5: whoever was replaced writes nothing, and its own effects are rolled back with the receipt.
func TestStep_StaleOwnerWritesNothing(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	book(t, pool)
	run, attempt := owned(t, pool)
	fencetest.Exec(t, pool, `insert into weir.receipt (run_id, step_index, attempt, outcome, effect, step_name)
		values ($1, 1, 3, 'ok', 'transactional', 'other')`, run)
	tx := fencetest.Begin(t, pool)
	enter(t, tx, "stale")
	successor := take(t, pool, run)
	was := fencetest.Read(t, pool, run)

	err := fence(run, attempt, 0).Write(t.Context(), tx)
	require.ErrorIs(t, err, fencing.ErrLeaseLost)
	// A caller that overlooks the error cannot commit either: PostgreSQL has aborted the transaction.
	require.ErrorIs(t, tx.Commit(t.Context()), pgx.ErrTxCommitRollback)
	require.Empty(t, entries(t, pool))
	require.Equal(t, []string{"1 other ok 3"}, fencetest.Outcomes(t, pool, run))
	require.Equal(t, was.RowChangedBy, fencetest.Read(t, pool, run).RowChangedBy)
	// Lost comes before done: whoever lost the run learns nothing from its receipts.
	tx = fencetest.Begin(t, pool)
	require.ErrorIs(t, fence(run, attempt, 1).Write(t.Context(), tx), fencing.ErrLeaseLost)

	tx = fencetest.Begin(t, pool)
	enter(t, tx, "live")
	require.NoError(t, fence(run, successor, 0).Write(t.Context(), tx))
	require.NoError(t, tx.Commit(t.Context()))
	require.Equal(t, []string{"live"}, entries(t, pool))
}

// F1: the fence locks. A reap that comes between the fence and its commit waits, or finds the lease renewed.
func TestStep_FenceHoldsTheRunUntilTheCommit(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	run, attempt := owned(t, pool)
	fencetest.Update(t, pool, run, "lease_expires_at = clock_timestamp() - interval '1 s'")
	tx := fencetest.Begin(t, pool)
	require.NoError(t, fence(run, attempt, 0).Write(t.Context(), tx))
	reaped, err := fencetest.Reaper(t, pool).Reap(t.Context())
	require.NoError(t, err)
	require.Empty(t, reaped, "the reaper took a run that is being committed")
	require.NoError(t, tx.Commit(t.Context()))
	reaped, err = fencetest.Reaper(t, pool).Reap(t.Context())
	require.NoError(t, err)
	require.Empty(t, reaped)
	require.Equal(t, attempt, fencetest.Read(t, pool, run).Attempt)
}

// F1, F2: a fence that waited for a takeover decides on what that left, not on the snapshot from before.
func TestStep_FenceThatWaitedSeesTheTakeover(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	run, attempt := owned(t, pool)
	other := fencetest.Begin(t, pool)
	fencetest.Exec(t, other, "update weir.run set attempt = attempt + 1 where id = $1", run)
	done := make(chan error, 1)
	tx := fencetest.Begin(t, pool)
	go func() { done <- fence(run, attempt, 0).Write(t.Context(), tx) }()
	fencetest.WaitsForLock(t, pool, 1)
	require.NoError(t, other.Commit(t.Context()))
	require.ErrorIs(t, <-done, fencing.ErrLeaseLost)
}

// PL-01: two executions of one step. The second is told that it is done; its effects go, and the receipt stays.
func TestStep_AlreadyDone(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	book(t, pool)
	run, attempt := owned(t, pool)
	first, second := fencetest.Begin(t, pool), fencetest.Begin(t, pool)
	enter(t, first, "first")
	enter(t, second, "second")
	require.NoError(t, fence(run, attempt, 0).Write(t.Context(), first))
	done := make(chan error, 1)
	go func() { done <- fence(run, attempt, 0).Write(t.Context(), second) }()
	fencetest.WaitsForLock(t, pool, 1)
	require.NoError(t, first.Commit(t.Context()))
	require.ErrorIs(t, <-done, receipts.ErrAlreadyDone)
	require.ErrorIs(t, second.Commit(t.Context()), pgx.ErrTxCommitRollback)
	require.Equal(t, []string{"first"}, entries(t, pool))
	require.Equal(t, []string{"0 enter ok 8"}, fencetest.Outcomes(t, pool, run))
}

// Only ok stops a step of a live run: what a failed or an unknown try left is overwritten.
func TestStep_ExecutedAgainAfterATryThatWasNotOK(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	for _, before := range []receipts.Outcome{receipts.Failed, receipts.Unknown, receipts.Started} {
		run, attempt := owned(t, pool)
		fencetest.Exec(t, pool, `insert into weir.receipt (run_id, step_index, attempt, outcome, effect, step_name)
			values ($1, 0, 3, $2, 'transactional', 'enter')`, run, string(before))
		err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error { return fence(run, attempt, 0).Write(t.Context(), tx) })
		require.NoError(t, err, "after %s", before)
		require.Equal(t, []string{"0 enter ok 8"}, fencetest.Outcomes(t, pool, run))
	}
}

// LF-03: the attempt decides, time does not.
func TestStep_ExpiredButNotReapedMayCommit(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	run, attempt := owned(t, pool)
	fencetest.Update(t, pool, run, "lease_expires_at = clock_timestamp() - interval '1 h', step_deadline_at = clock_timestamp() - interval '1 h'")
	err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error { return fence(run, attempt, 0).Write(t.Context(), tx) })
	require.NoError(t, err)
	require.Greater(t, fencetest.Read(t, pool, run).LeaseLeft, 50*time.Second)
}

// F7: under REPEATABLE READ a heartbeat alone fails the fence of a live owner, so steps run READ COMMITTED.
func TestStep_RepeatableReadFailsALiveOwner(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	run, attempt := owned(t, pool)
	tx, err := pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	require.NoError(t, err)
	defer fencing.RollbackQuietly(t.Context(), tx)
	fencetest.Exec(t, tx, "select 1") // the snapshot
	fencetest.Update(t, pool, run, "lease_expires_at = clock_timestamp() + interval '1 min'")
	err = fence(run, attempt, 0).Write(t.Context(), tx)
	var refused *pgconn.PgError
	require.True(t, errors.As(err, &refused))
	require.Equal(t, "40001", refused.Code)
	require.True(t, fencing.IsTransient(err))
	require.NotErrorIs(t, err, fencing.ErrLeaseLost)
}

// The user's own NOT NULL and unique violations are a failed step, not a lost lease or a step that is done.
func TestStep_OwnConstraintsOfTheUserAreNotTheFence(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	fencetest.Exec(t, pool, "create table receipt (attempt int not null, constraint receipt_pkey primary key (attempt) deferrable initially deferred)")
	fencetest.Exec(t, pool, `create function fail_receipt() returns trigger language plpgsql as $$ begin
		insert into public.receipt values (null); return null; end $$`)
	fencetest.Exec(t, pool, `create trigger x after insert on weir.receipt for each row execute function fail_receipt()`)
	run, attempt := owned(t, pool)
	err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error { return fence(run, attempt, 0).Write(t.Context(), tx) })
	require.Error(t, err)
	require.NotErrorIs(t, err, fencing.ErrLeaseLost)
	require.NotErrorIs(t, err, receipts.ErrAlreadyDone)
}
