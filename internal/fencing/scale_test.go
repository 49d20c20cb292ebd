package fencing_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/internal/fencing"
	"github.com/weirqueue/weir/internal/fencing/fencetest"
	"github.com/weirqueue/weir/internal/postgres/pgtest"
	"github.com/weirqueue/weir/migrations"
)

// insertOwned makes n owned runs among others that are not, one in every so many, in one insert: as in a table that
// has been in use for a while, owned runs lie scattered.
func insertOwned(t *testing.T, db fencing.DB, n, every int) []uuid.UUID {
	ids, owned := make([]uuid.UUID, n*every), []uuid.UUID{}
	for i := range ids {
		ids[i] = uuid.Must(uuid.NewV7())
		if i%every == 0 {
			owned = append(owned, ids[i])
		}
	}
	fencetest.Exec(t, db, `insert into weir.run (id, root_id, kind, status, queue, max_failures, attempt, next_attempt_at,
			lease_owner, lease_expires_at, step_deadline_at, claimed_at)
		select id, id, 'delivery', case when mine then 'processing' else 'pending' end, 'weir_delivery', 5, 1,
			case when mine then 'infinity' else clock_timestamp() end, case when mine then 'w' end,
			case when mine then clock_timestamp() + interval '1 min' end, case when mine then clock_timestamp() + interval '5 min' end,
			case when mine then clock_timestamp() end
		from (select id, (n - 1) % $2 = 0 as mine from unnest($1::uuid[]) with ordinality u(id, n)) x`, ids, every)
	return owned
}

// R6: slices of at most 5,000, each one statement.
func TestKeeper_SlicesOfFiveThousand(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	b := keeper(t, pool, always)
	runs := insertOwned(t, pool, 10_001, 1)
	for _, id := range runs {
		_, h := b.Hold(t.Context(), id, 1, time.Minute, 5*time.Minute, time.Now())
		defer h.Drop()
	}
	b.Beat(t.Context())
	require.NoError(t, b.total().Err)
	require.Equal(t, 10_001, b.total().Renewed)
	statements := 0
	for _, sql := range b.sent {
		if strings.HasPrefix(sql, "with mine") {
			statements++
		}
	}
	require.Equal(t, 3, statements)
}

// Renewals are HOT updates: at least nine in ten touch no index. On a server of its own: PostgreSQL prunes a page by a
// horizon that it refreshes only when the oldest snapshot of the whole server moves, so a long transaction in another
// test's database would keep the space of old versions.
func TestKeeper_RenewalsAreHOT(t *testing.T) {
	t.Parallel()
	url := pgtest.Cluster(t).URL("postgres")
	require.NoError(t, migrations.Up(t.Context(), url, migrations.Options{}))
	pool := pgtest.Connect(t, url)
	b := keeper(t, pool, always)
	const owned, beats = 1000, 10
	for _, id := range insertOwned(t, pool, owned, 20) {
		_, h := b.Hold(t.Context(), id, 1, time.Minute, 5*time.Minute, time.Now())
		defer h.Drop()
	}
	for range beats {
		b.Beat(t.Context())
	}
	require.Equal(t, owned*beats, b.total().Renewed)
	b.hangUp() // a session reports its statistics when it ends at the latest
	var updates, hot int64
	fencetest.Eventually(t, "statistics", func() bool {
		fencetest.Exec(t, pool, "select pg_stat_clear_snapshot()")
		updates = fencetest.Value[int64](t, pool, "select n_tup_upd from pg_stat_user_tables where relid = 'weir.run'::regclass")
		hot = fencetest.Value[int64](t, pool, "select n_tup_hot_upd from pg_stat_user_tables where relid = 'weir.run'::regclass")
		return updates >= owned*beats
	})
	require.GreaterOrEqual(t, float64(hot)/float64(updates), 0.9, "%d of %d renewals are HOT", hot, updates)
}
