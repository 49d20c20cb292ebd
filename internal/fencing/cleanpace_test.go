package fencing_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/internal/fencing/fencetest"
	"github.com/weirqueue/weir/internal/postgres/pgtest"
)

// slowDB takes so long to begin a transaction, as a busy database does, and says when it has.
type slowDB struct {
	*pgxpool.Pool
	delay time.Duration
	began chan struct{}
}

func (d *slowDB) BeginTx(ctx context.Context, opts pgx.TxOptions) (pgx.Tx, error) {
	time.Sleep(d.delay)
	d.began <- struct{}{}
	return d.Pool.BeginTx(ctx, opts)
}

func TestClean_EachKindAfterItsOwnRetention(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	plan := finished(t, pool, 90, "kind = 'plan', status = 'executed'")
	oldPlan := finished(t, pool, 400, "kind = 'plan', status = 'executed'")
	ours := finished(t, pool, 2, "kind = 'ours', status = 'succeeded'")
	theirs := finished(t, pool, 2, "kind = 'theirs', status = 'succeeded'")
	old := finished(t, pool, 8)

	c := cleaner(pool)
	c.AgeOf = map[string]time.Duration{"plan": 365 * day, "ours": day}
	n, err := c.Clean(t.Context())
	require.NoError(t, err)
	require.Equal(t, 3, n)
	require.True(t, exists(t, pool, plan), "a kind that is kept longer")
	require.True(t, exists(t, pool, theirs), "a kind without a retention of its own")
	require.False(t, exists(t, pool, oldPlan))
	require.False(t, exists(t, pool, ours), "a kind that is kept shorter, behind one that is not")
	require.False(t, exists(t, pool, old))
}

// The fleet has the time in which the cleaner rests: nine times as long as it was at work, where its share is a tenth.
func TestClean_RestsAfterEachPage(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	for range 25 {
		finished(t, pool, 8)
	}
	db := &slowDB{Pool: pool, delay: 20 * time.Millisecond, began: make(chan struct{}, 10)}
	c := cleaner(pool)
	c.DB, c.Share = db, 0.1
	began := time.Now()
	n, err := c.Clean(t.Context())
	require.NoError(t, err)
	require.Equal(t, 25, n)
	pages := len(db.began)
	require.GreaterOrEqual(t, pages, 3)
	require.GreaterOrEqual(t, time.Since(began), time.Duration(10*(pages-1)+1)*db.delay, "rests between %d pages", pages)

	// A shutdown does not wait for the rest.
	for range 25 {
		finished(t, pool, 8)
	}
	c.Share = 1e-6
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1)
	for len(db.began) > 0 {
		<-db.began
	}
	go func() { _, err := c.Clean(ctx); ended <- err }()
	<-db.began
	fencetest.Eventually(t, "a page is gone", func() bool {
		return fencetest.Value[int](t, pool, "select count(*)::int from weir.run") == 15
	})
	short, end := context.WithTimeout(t.Context(), 5*time.Second)
	defer end()
	n, err = c.Clean(short)
	require.NoError(t, err)
	require.Zero(t, n, "one that cleans is enough")
	stop()
	require.ErrorIs(t, <-ended, context.Canceled)
}

// A round is bounded, and what is kept for long at the front keeps no round from what is behind it.
func TestClean_TheNextRoundGoesOn(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	for range 20 {
		finished(t, pool, 90, "kind = 'plan', status = 'executed'")
	}
	for range 15 {
		finished(t, pool, 8)
	}
	c := cleaner(pool)
	c.AgeOf, c.Longest = map[string]time.Duration{"plan": 365 * day}, time.Nanosecond
	for round, want := range []int{0, 0, 10, 5, 0} {
		n, err := c.Clean(t.Context())
		require.NoError(t, err)
		require.Equal(t, want, n, "round %d", round)
	}
	require.Equal(t, 20, fencetest.Value[int](t, pool, "select count(*)::int from weir.run"))
}

// A round that fails is gone on with too.
func TestClean_AnErrorLosesNoPlace(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	for range 10 {
		finished(t, pool, 90, "kind = 'plan', status = 'executed'")
	}
	for range 10 {
		finished(t, pool, 8)
	}
	c := cleaner(pool)
	c.AgeOf, c.Longest = map[string]time.Duration{"plan": 365 * day}, time.Nanosecond
	n, err := c.Clean(t.Context())
	require.NoError(t, err)
	require.Zero(t, n)
	ended, end := context.WithCancel(t.Context())
	end()
	_, err = c.Clean(ended)
	require.ErrorIs(t, err, context.Canceled)
	n, err = c.Clean(t.Context())
	require.NoError(t, err)
	require.Equal(t, 10, n)
}

func TestClean_AllExpiredKeysGo(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	fencetest.Exec(t, pool, `insert into weir.key (kind, key, run_id, digest, expires_at)
		select 'delivery', n::text, gen_random_uuid(), '', clock_timestamp() + case when n <= 25 then interval '-1 s' else '1 h' end from generate_series(1, 28) n`)
	_, err := cleaner(pool).Clean(t.Context())
	require.NoError(t, err)
	require.Equal(t, 3, fencetest.Value[int](t, pool, "select count(*)::int from weir.key"))
}
