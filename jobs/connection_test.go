package jobs_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/internal/postgres/pgtest"
	"github.com/weirqueue/weir/jobs"
)

// PG-03: a COMMIT that fails (here a deferred constraint), and a context that ends in the middle of a query, leave no
// connection in a broken transaction behind.
func TestPool_NoConnectionComesBackInABrokenTransaction(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t, pgtest.MaxConns(2))
	client, err := jobs.NewClient(pool, nil)
	require.NoError(t, err)
	_, err = pool.Exec(t.Context(), `create function refuse() returns trigger language plpgsql as
		$$ begin raise exception 'not today'; end $$;
		create constraint trigger refuse after insert on weir.notification deferrable initially deferred
		for each row execute function refuse()`)
	require.NoError(t, err)
	n := jobs.Notification{To: []jobs.Recipient{jobs.Email("ada@example.com")}, Text: "t"}
	for range 5 {
		_, err := client.Notify(t.Context(), n, nil)
		require.ErrorContains(t, err, "not today")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = client.Notify(ctx, n, nil)
		require.ErrorIs(t, err, context.Canceled)
	}
	_, err = pool.Exec(t.Context(), "drop trigger refuse on weir.notification")
	require.NoError(t, err)
	for range 100 {
		_, err := client.List(t.Context(), jobs.Filter{})
		require.NoError(t, err)
	}
	_, err = client.Notify(t.Context(), n, nil)
	require.NoError(t, err)
}

// PG-08: a backend that is killed between the last statement and the COMMIT is an error for the caller, and nothing is
// stored.
func TestNotifyTx_ABackendKilledBeforeTheCommitStoresNothing(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	client, err := jobs.NewClient(pool, nil)
	require.NoError(t, err)
	tx, err := pool.Begin(t.Context())
	require.NoError(t, err)
	res, err := client.NotifyTx(t.Context(), tx, jobs.Notification{To: []jobs.Recipient{jobs.Email("ada@example.com")}, Text: "t"}, nil)
	require.NoError(t, err)
	_, err = pool.Exec(t.Context(), "select pg_terminate_backend($1)", tx.Conn().PgConn().PID())
	require.NoError(t, err)
	require.Error(t, tx.Commit(t.Context()))
	_, err = client.Get(t.Context(), res.Runs[0].ID)
	require.ErrorIs(t, err, jobs.ErrNotFound)
	var left int
	require.NoError(t, pool.QueryRow(t.Context(), `select (select count(*) from weir.run) + (select count(*) from weir.payload)
		+ (select count(*) from weir.notification) + (select count(*) from river_job)`).Scan(&left))
	require.Zero(t, left)
}
