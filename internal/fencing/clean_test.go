package fencing_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/internal/fencing"
	"github.com/weirqueue/weir/internal/fencing/fencetest"
	"github.com/weirqueue/weir/internal/postgres/pgtest"
)

const (
	day  = 24 * time.Hour
	week = 7 * day
	keep = 30 * day
)

func cleaner(pool *pgxpool.Pool) *fencing.Cleaner {
	return &fencing.Cleaner{DB: pool, Age: week, KeepKeys: keep, Page: 10}
}

// finished makes a run that was created and finished so many days ago.
func finished(t *testing.T, db fencing.DB, days int, sets ...fencetest.Set) uuid.UUID {
	run := fencetest.Insert(t, db, fencetest.Delivery, "sent", sets...)
	fencetest.Exec(t, db, `update weir.run set created_at = clock_timestamp() - make_interval(days => $2), finished_at = clock_timestamp() - make_interval(days => $2) where id = $1`, run, days)
	fencetest.Exec(t, db, `insert into weir.receipt (run_id, step_index, attempt, outcome, effect, step_name) values ($1, 0, 7, 'ok', 'at_least_once', 'send')`, run)
	fencetest.Exec(t, db, `insert into weir.ended_try (run_id, attempt, how) values ($1, 6, 'failed')`, run)
	return run
}

func key(t *testing.T, db fencing.DB, root uuid.UUID) {
	fencetest.Exec(t, db, "insert into weir.key (kind, key, run_id, digest) values ('delivery', $2, $1, '')", root, root.String())
}

func exists(t *testing.T, db fencing.DB, run uuid.UUID) bool {
	return fencetest.Value[bool](t, db, "select exists (select from weir.run where id = $1)", run)
}

func TestClean_OldFinishedRunsGoWithTheirRecords(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	var old []uuid.UUID
	for range 35 {
		old = append(old, finished(t, pool, 8))
	}
	longLived := fencetest.Insert(t, pool, fencetest.Delivery, "processing", fencetest.Owned, "created_at = clock_timestamp() - interval '90 days'")
	justFinished := finished(t, pool, 8, "error_code = 'x'")
	fencetest.Update(t, pool, justFinished, "finished_at = clock_timestamp() - interval '1 h'")
	young := finished(t, pool, 6)

	n, err := cleaner(pool).Clean(t.Context())
	require.NoError(t, err)
	require.Equal(t, len(old), n)
	for _, run := range old {
		require.False(t, exists(t, pool, run))
	}
	for _, run := range []uuid.UUID{longLived, justFinished, young} {
		require.True(t, exists(t, pool, run))
	}
	for _, table := range []string{"receipt", "ended_try", "payload"} {
		require.Zero(t, fencetest.Value[int](t, pool, "select count(*)::int from weir."+table+" x where not exists (select from weir.run where id = x.run_id)"), table)
	}
	require.Equal(t, 2, fencetest.Value[int](t, pool, "select count(*)::int from weir.receipt"))
	require.Equal(t, 3, fencetest.Value[int](t, pool, "select count(*)::int from weir.payload"))
}

// The key outlives its run with the answer, and ends KeepKeys after the run had finished.
func TestClean_KeyKeepsTheAnswer(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	run := finished(t, pool, 10, "error_code = 'none'")
	key(t, pool, run)
	at := fencetest.Value[time.Time](t, pool, "select finished_at from weir.run where id = $1", run)
	n, err := cleaner(pool).Clean(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.Equal(t, "sent", fencetest.Value[string](t, pool, "select outcome -> 0 ->> 'status' from weir.key"))
	require.Equal(t, run.String(), fencetest.Value[string](t, pool, "select outcome -> 0 ->> 'run' from weir.key"))
	require.Equal(t, at.Add(keep).UTC(), fencetest.Value[time.Time](t, pool, "select expires_at from weir.key").UTC())

	fencetest.Exec(t, pool, "update weir.key set expires_at = clock_timestamp() - interval '1 s'")
	_, err = cleaner(pool).Clean(t.Context())
	require.NoError(t, err)
	require.Zero(t, fencetest.Value[int](t, pool, "select count(*)::int from weir.key"), "an expired key goes")
}

// notification makes one with runs that finished so many days ago; 0 is a run that has not.
func notification(t *testing.T, pool *pgxpool.Pool, days ...int) (uuid.UUID, []uuid.UUID) {
	root := uuid.Must(uuid.NewV7())
	var runs []uuid.UUID
	for _, d := range days {
		if d == 0 {
			runs = append(runs, fencetest.Insert(t, pool, fencetest.Delivery, "pending", "created_at = clock_timestamp() - interval '90 days'"))
		} else {
			runs = append(runs, finished(t, pool, d))
		}
	}
	fencetest.Exec(t, pool, "insert into weir.notification (id, run_ids) values ($1, $2)", root, runs)
	fencetest.Exec(t, pool, "update weir.run set root_id = $1 where id = any($2)", root, runs)
	key(t, pool, root)
	return root, runs
}

// A notification's key lives while one of its runs does, and then counts from the run that finished last, whatever the
// order in which they were cleaned away.
func TestClean_KeyOfANotification(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	_, runs := notification(t, pool, 9, 20, 0)
	last := fencetest.Value[time.Time](t, pool, "select finished_at from weir.run where id = $1", runs[0])
	n, err := cleaner(pool).Clean(t.Context())
	require.NoError(t, err)
	require.Equal(t, 2, n)
	require.True(t, exists(t, pool, runs[2]), "a live run stays")
	require.Nil(t, fencetest.Value[*time.Time](t, pool, "select expires_at from weir.key"))
	require.Equal(t, 2, fencetest.Value[int](t, pool, "select jsonb_array_length(outcome) from weir.key"))
	require.Equal(t, 1, fencetest.Value[int](t, pool, "select count(*)::int from weir.notification"))

	// The last one finished earlier than one that is gone.
	fencetest.Update(t, pool, runs[2], "status = 'sent', next_attempt_at = null, finished_at = clock_timestamp() - interval '15 days'")
	n, err = cleaner(pool).Clean(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.Equal(t, 3, fencetest.Value[int](t, pool, "select jsonb_array_length(outcome) from weir.key"))
	require.Equal(t, last.Add(keep).UTC(), fencetest.Value[time.Time](t, pool, "select expires_at from weir.key").UTC())
	require.Zero(t, fencetest.Value[int](t, pool, "select count(*)::int from weir.notification"))
}

// Two cleaners each have a part of one notification, and neither sees what the other has deleted: the last one out
// must wait, or the key would never expire.
func TestClean_TwoCleanersOfOneNotification(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	_, runs := notification(t, pool, 9, 10)
	ctx := context.Background()
	// The second run's end is held up in the cleaner that has it; the other one cleans the first meanwhile.
	fencetest.Exec(t, pool, `create function hold() returns trigger language plpgsql as $$ begin
		perform pg_advisory_xact_lock(1); return old; end $$`)
	fencetest.Exec(t, pool, `create trigger hold before delete on weir.run for each row when (old.id = '`+runs[1].String()+`') execute function hold()`)
	holder := fencetest.Begin(t, pool)
	fencetest.Exec(t, holder, "select pg_advisory_xact_lock(1)")
	locked := fencetest.Begin(t, pool)
	fencetest.Exec(t, locked, "select from weir.run where id = $1 for update", runs[0])
	second := make(chan error, 1)
	go func() { _, err := cleaner(pool).Clean(ctx); second <- err }()
	fencetest.WaitsForLock(t, pool, 1)
	require.NoError(t, locked.Rollback(ctx))

	fencetest.Exec(t, pool, `create function hold_key() returns trigger language plpgsql as $$ begin
		perform pg_advisory_xact_lock(2); return new; end $$`)
	fencetest.Exec(t, pool, `create trigger hold_key before update on weir.key for each row execute function hold_key()`)
	keyHolder := fencetest.Begin(t, pool)
	fencetest.Exec(t, keyHolder, "select pg_advisory_xact_lock(2)")
	first := make(chan error, 1)
	go func() { _, err := cleaner(pool).Clean(ctx); first <- err }()
	fencetest.WaitsForLock(t, pool, 2)
	require.NoError(t, holder.Rollback(ctx)) // both have deleted, neither has committed
	fencetest.WaitsForLock(t, pool, 2)
	require.NoError(t, keyHolder.Rollback(ctx))
	require.NoError(t, <-first)
	require.NoError(t, <-second)

	require.Zero(t, fencetest.Value[int](t, pool, "select count(*)::int from weir.run"))
	require.Equal(t, 2, fencetest.Value[int](t, pool, "select jsonb_array_length(outcome) from weir.key"))
	require.NotNil(t, fencetest.Value[*time.Time](t, pool, "select expires_at from weir.key"), "the key would stay for ever")
	require.Zero(t, fencetest.Value[int](t, pool, "select count(*)::int from weir.notification"))
}
