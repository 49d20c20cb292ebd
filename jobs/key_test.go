package jobs_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/internal/fencing"
	"github.com/weirqueue/weir/internal/postgres/pgtest"
	"github.com/weirqueue/weir/jobs"
)

func keyed(key string) *jobs.Opts { return &jobs.Opts{IdempotencyKey: key} }

// Contract, invariant 5: a repeat answers with what is there and writes nothing.
func TestKey_SamePayloadAnswersWithTheSameRuns(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	client := newClient(t, pool)
	first := notify(t, client, mail("ada@example.com", "bob@example.com"), keyed("k"))
	before := rows(t, pool)
	again := notify(t, client, mail("ada@example.com", "bob@example.com"), keyed("k"))
	require.True(t, again.Existing)
	require.Equal(t, first.ID, again.ID)
	require.Equal(t, first.Runs, again.Runs)
	require.Equal(t, before, rows(t, pool))

	end(t, pool, first.Runs[1].ID, fencing.Refuse, "no such user")
	after := notify(t, client, mail("ada@example.com", "bob@example.com"), keyed("k"))
	require.Equal(t, jobs.StatusFailed, after.Runs[1].Status)
	require.Equal(t, "smtp_550", after.Runs[1].ErrorCode)
	require.NotNil(t, after.Runs[1].FinishedAt)
	require.False(t, after.Runs[1].Cleaned)
	require.Equal(t, jobs.StatusPending, after.Runs[0].Status)
}

// BR-16: the same key for something else is refused, in a way that the caller's transaction survives.
func TestKey_OtherPayloadIsRefused(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	client := newClient(t, pool)
	first := notify(t, client, mail("ada@example.com"), keyed("k"))
	tx := begin(t, pool, pgx.ReadCommitted)
	_, err := client.NotifyTx(t.Context(), tx, mail("bob@example.com"), keyed("k"))
	var reused *jobs.KeyReusedError
	require.ErrorAs(t, err, &reused)
	require.ErrorIs(t, err, jobs.ErrKeyReused)
	require.Equal(t, jobs.KeyReusedError{Kind: "notification", Key: "k", Run: jobs.RunID(first.ID)}, *reused)
	_, err = client.NotifyTx(t.Context(), tx, mail("bob@example.com"), keyed("another"))
	require.NoError(t, err)
	require.NoError(t, tx.Commit(t.Context()))
}

// PL-01 for keys: fifty callers, one notification.
func TestKey_FiftyRacingCallersMakeOneNotification(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t, pgtest.MaxConns(20))
	client := newClient(t, pool)
	var (
		mu    sync.Mutex
		ids   = map[jobs.NotificationID]int{}
		fresh atomic.Int64
	)
	inParallel(50, func(int) {
		res, err := client.Notify(t.Context(), mail(), keyed("k"))
		if err != nil {
			t.Error(err)
			return
		}
		if !res.Existing {
			fresh.Add(1)
		}
		mu.Lock()
		ids[res.ID]++
		mu.Unlock()
		if len(res.Runs) != 1 {
			t.Errorf("%d runs", len(res.Runs))
		}
	})
	require.Len(t, ids, 1)
	require.EqualValues(t, 1, fresh.Load())
	require.Equal(t, [5]int{1, 1, 1, 1, 1}, rows(t, pool))
}

// D1: who waited for a winner that rolls back becomes the winner.
func TestKey_WinnerThatRollsBackLeavesTheKey(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	client := newClient(t, pool)
	winner := begin(t, pool, pgx.ReadCommitted)
	lost, err := client.NotifyTx(t.Context(), winner, mail(), keyed("k"))
	require.NoError(t, err)
	results := make(chan *jobs.NotifyResult, 3)
	for range 3 {
		go func() {
			res, err := client.Notify(t.Context(), mail(), keyed("k"))
			if err != nil {
				t.Error(err)
			}
			results <- res
		}()
	}
	waitsForLock(t, pool, 3)
	require.NoError(t, winner.Rollback(t.Context()))
	made := 0
	var id jobs.NotificationID
	for range 3 {
		res := <-results
		require.NotNil(t, res)
		require.NotEqual(t, lost.ID, res.ID)
		require.True(t, id == jobs.NotificationID{} || id == res.ID, "one notification")
		id = res.ID
		if !res.Existing {
			made++
		}
	}
	require.Equal(t, 1, made)
	require.Equal(t, [5]int{1, 1, 1, 1, 1}, rows(t, pool))
}

// A key that has run out is free again, for exactly one.
func TestKey_ExpiredIsTakenOverByOneOfTwenty(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t, pgtest.MaxConns(20))
	client := newClient(t, pool)
	old := notify(t, client, mail(), keyed("k"))
	end(t, pool, old.Runs[0].ID, fencing.Succeed, "")
	require.Equal(t, 1, clean(t, pool))
	execSQL(t, pool, "update weir.key set expires_at = clock_timestamp() - interval '1 s'")
	var fresh, repeats atomic.Int64
	inParallel(20, func(i int) {
		// Also another payload: what the key stood for is over.
		res, err := client.Notify(t.Context(), mail("new@example.com"), keyed("k"))
		switch {
		case err != nil:
			t.Error(err)
		case res.ID == old.ID:
			t.Error("an expired key answered")
		case res.Existing:
			repeats.Add(1)
		default:
			fresh.Add(1)
		}
	})
	require.EqualValues(t, 1, fresh.Load())
	require.EqualValues(t, 19, repeats.Load())
	require.Equal(t, 1, value[int](t, pool, "select count(*)::int from weir.run"))
}

// Contract, invariant 5: also after the run was cleaned away, for the life of its key.
func TestKey_AnswersAfterCleaning(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	client := newClient(t, pool)
	n := mail("ada@example.com", "bob@example.com", "eve@example.com")
	first := notify(t, client, n, keyed("k"))
	end(t, pool, first.Runs[2].ID, fencing.Refuse, "no")
	require.Equal(t, 1, clean(t, pool))
	require.True(t, value[bool](t, pool, "select expires_at is null from weir.key"), "the key lives as long as a run under it")
	part := notify(t, client, n, keyed("k"))
	require.True(t, part.Existing)
	for i := range n.To {
		require.Equal(t, first.Runs[i].ID, part.Runs[i].ID, "by id, whether cleaned or not")
		require.Equal(t, i == 2, part.Runs[i].Cleaned)
	}
	end(t, pool, first.Runs[0].ID, fencing.Succeed, "")
	end(t, pool, first.Runs[1].ID, fencing.Succeed, "")
	require.Equal(t, 2, clean(t, pool))
	require.Equal(t, [5]int{0, 0, 0, 1, 3}, rows(t, pool))

	all := notify(t, client, n, keyed("k"))
	require.True(t, all.Existing)
	require.Equal(t, first.ID, all.ID)
	for i, want := range []jobs.Status{jobs.StatusSent, jobs.StatusSent, jobs.StatusFailed} {
		require.Equal(t, first.Runs[i].ID, all.Runs[i].ID)
		require.Equal(t, want, all.Runs[i].Status)
		require.True(t, all.Runs[i].Cleaned)
		require.NotNil(t, all.Runs[i].FinishedAt)
	}
	require.Equal(t, "smtp_550", all.Runs[2].ErrorCode)
	_, err := client.Notify(t.Context(), mail("other@example.com"), keyed("k"))
	require.ErrorIs(t, err, jobs.ErrKeyReused)
}

// RV-18: keys that are taken come back exactly; look-alikes are different keys.
func TestKey_RoundTripsExactly(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	client := newClient(t, pool)
	keys := []string{"k", "K", " k", "k ", "е", "e", "é", "e\u0301", "🔑", "a\nb", `"; drop table weir.key; --`, `\x00`, "%", fmt.Sprintf("%0500d", 1)}
	for i, key := range keys {
		res := notify(t, client, mail(fmt.Sprintf("a%d@example.com", i)), keyed(key))
		require.False(t, res.Existing, "%q", key)
		require.Equal(t, key, value[string](t, pool, "select key from weir.key where run_id = $1", res.ID.String()))
	}
	for i, key := range keys {
		require.True(t, notify(t, client, mail(fmt.Sprintf("a%d@example.com", i)), keyed(key)).Existing, "%q", key)
	}
}

// D1: a stricter isolation level gets 40001, never a wrong answer.
func TestKey_RepeatableReadGetsASerializationFailure(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	client := newClient(t, pool)
	for _, level := range []pgx.TxIsoLevel{pgx.RepeatableRead, pgx.Serializable} {
		key := "k " + string(level)
		tx := begin(t, pool, level)
		execSQL(t, tx, "select 1") // the snapshot
		notify(t, client, mail(), keyed(key))
		_, err := client.NotifyTx(t.Context(), tx, mail(), keyed(key))
		var pgErr *pgconn.PgError
		require.ErrorAs(t, err, &pgErr, string(level))
		require.Equal(t, "40001", pgErr.Code)
		require.NoError(t, tx.Rollback(t.Context()))

		tx = begin(t, pool, level)
		res, err := client.NotifyTx(t.Context(), tx, mail(), keyed(key))
		require.NoError(t, err, "the next try sees it")
		require.True(t, res.Existing)
		require.NoError(t, tx.Commit(t.Context()))
	}
}
