package jobs_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/internal/fencing"
	"github.com/weirqueue/weir/internal/postgres/pgtest"
	"github.com/weirqueue/weir/jobs"
)

func refusedState(t *testing.T, err error, op string, status jobs.Status) *jobs.StateError {
	t.Helper()
	var state *jobs.StateError
	require.ErrorAs(t, err, &state)
	require.ErrorIs(t, err, jobs.ErrState)
	require.Equal(t, op, state.Op)
	require.Equal(t, status, state.Status)
	require.Contains(t, err.Error(), state.Run.String())
	return state
}

func one(t *testing.T, client *jobs.Client) jobs.RunID {
	t.Helper()
	return notify(t, client, mail(), nil).Runs[0].ID
}

func TestCancel_PendingIsCanceledAtOnce(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	client := newClient(t, pool)
	id := one(t, client)
	require.NoError(t, client.Cancel(t.Context(), id))
	run := get(t, client, id)
	require.Equal(t, []any{jobs.StatusFailed, "canceled", true}, []any{run.Status, run.ErrorCode, run.Terminal()})
	require.NotNil(t, run.CancelRequestedAt)
	require.NoError(t, client.Cancel(t.Context(), id), "canceling twice is fine")
	require.Equal(t, run, get(t, client, id), "and changes nothing")
}

// Where a send is under way, the cancellation is a request, and the provider that has taken the message wins.
func TestCancel_ProcessingIsRequested(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	client := newClient(t, pool)
	id := one(t, client)
	c := claim(t, pool, id)
	require.NoError(t, client.Cancel(t.Context(), id))
	run := get(t, client, id)
	require.Equal(t, jobs.StatusProcessing, run.Status)
	require.Equal(t, c.Attempt, run.Attempt, "the owner keeps its token")
	require.NotNil(t, run.CancelRequestedAt)
}

func TestCancel_EndedIsAStateError(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	client := newClient(t, pool)
	sent, failed := one(t, client), one(t, client)
	end(t, pool, sent, fencing.Succeed, "")
	end(t, pool, failed, fencing.Refuse, "no")
	refusedState(t, client.Cancel(t.Context(), sent), "cancel", jobs.StatusSent)
	refusedState(t, client.Cancel(t.Context(), failed), "cancel", jobs.StatusFailed)
	require.ErrorIs(t, client.Cancel(t.Context(), jobs.RunID{1}), jobs.ErrNotFound)
	require.ErrorIs(t, client.Redrive(t.Context(), jobs.RunID{1}), jobs.ErrNotFound)
	require.ErrorIs(t, client.Erase(t.Context(), jobs.RunID{1}), jobs.ErrNotFound)
}

// CancelTx and RedriveTx belong to the caller's transaction.
func TestControlTx_RollsBack(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	client := newClient(t, pool)
	pending, failed := one(t, client), one(t, client)
	end(t, pool, failed, fencing.Refuse, "no")
	tx := begin(t, pool, pgx.ReadCommitted)
	require.NoError(t, client.CancelTx(t.Context(), tx, pending))
	require.NoError(t, client.RedriveTx(t.Context(), tx, failed))
	require.NoError(t, tx.Rollback(t.Context()))
	require.Equal(t, jobs.StatusPending, get(t, client, pending).Status)
	require.Equal(t, jobs.StatusFailed, get(t, client, failed).Status)
	require.Equal(t, 2, value[int](t, pool, "select count(*)::int from river_job"))
}

// NO-05: budgets and due time start anew, history and identity stay, and a double click is harmless.
func TestRedrive_OnceHoweverOftenAsked(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	client := newClient(t, pool)
	res := notify(t, client, mail(), &jobs.Opts{MaxAttempts: 1, IdempotencyKey: "k", Queue: "slow", Priority: 4})
	id := res.Runs[0].ID
	end(t, pool, id, fencing.FailTry, "timeout")
	dead := get(t, client, id)
	require.Equal(t, []any{jobs.StatusDead, 1}, []any{dead.Status, dead.Failures})

	inParallel(8, func(int) {
		if err := client.Redrive(t.Context(), id); err != nil {
			t.Error(err)
		}
	})
	run := get(t, client, id)
	require.Equal(t, []any{jobs.StatusPending, 0, 0, "", ""}, []any{run.Status, run.Failures, run.Reaps, run.ErrorCode, run.ErrorMessage})
	require.Equal(t, dead.Attempt+1, run.Attempt, "redriven once")
	require.Nil(t, run.FinishedAt)
	require.NotNil(t, run.NextAttemptAt)
	require.Equal(t, 2, value[int](t, pool, "select count(*)::int from river_job"), "and rung once")
	require.NotEqual(t, *dead.DoorbellID, *run.DoorbellID)
	require.Equal(t, "slow 4 available", value[string](t, pool, "select queue || ' ' || priority || ' ' || state from river_job where id = $1", *run.DoorbellID))
	tries, err := client.Tries(t.Context(), id)
	require.NoError(t, err)
	require.Len(t, tries, 1, "history stays")
	require.Equal(t, []any{"failed", "timeout", "test:1:x"}, []any{tries[0].How, tries[0].Error, tries[0].Owner})
	require.True(t, notify(t, client, mail(), keyed("k")).Existing, "the key stands for the run that lives again")

	end(t, pool, id, fencing.FailTry, "again")
	require.NoError(t, client.Redrive(t.Context(), id), "and works a second time")
	end(t, pool, id, fencing.Succeed, "")
	refusedState(t, client.Redrive(t.Context(), id), "redrive", jobs.StatusSent)
	require.Equal(t, jobs.StatusSent, get(t, client, id).Status)
}

func TestRedrive_RefusesWhatItCannotRevive(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	client := newClient(t, pool)
	canceled, owned, erased := one(t, client), one(t, client), one(t, client)
	require.NoError(t, client.Cancel(t.Context(), canceled))
	claim(t, pool, owned)
	end(t, pool, erased, fencing.Refuse, "no")
	require.NoError(t, client.Erase(t.Context(), erased))
	require.Contains(t, refusedState(t, client.Redrive(t.Context(), canceled), "redrive", jobs.StatusFailed).Detail, "canceled")
	refusedState(t, client.Redrive(t.Context(), owned), "redrive", jobs.StatusProcessing)
	require.Contains(t, refusedState(t, client.Redrive(t.Context(), erased), "redrive", jobs.StatusFailed).Detail, "erased")
}

// A cancellation that was requested, and lost to a refusal by the provider, still rules out a redrive.
func TestRedrive_RefusesAfterARequestedCancel(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	client := newClient(t, pool)
	id := one(t, client)
	execSQL(t, pool, "update weir.run set cancel_requested_at = clock_timestamp() where id = $1", id.String())
	end(t, pool, id, fencing.Refuse, "no")
	refusedState(t, client.Redrive(t.Context(), id), "redrive", jobs.StatusFailed)
}
