package migrations_test

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/internal/postgres/pgtest"
	"github.com/weirqueue/weir/migrations"
)

func TestUp_AppliesRiversMigrationsAndWeirs(t *testing.T) {
	t.Parallel()
	url := pgtest.Empty(t)
	var log bytes.Buffer
	require.NoError(t, migrations.Up(t.Context(), url, migrations.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))}))

	list, err := migrations.Status(t.Context(), url, migrations.Options{})
	require.NoError(t, err)
	count := map[migrations.Source]int{}
	for _, m := range list {
		require.True(t, m.Applied, "%+v", m)
		require.NotEmpty(t, m.Name)
		count[m.Source]++
	}
	require.GreaterOrEqual(t, count[migrations.SourceRiver], 8)
	require.GreaterOrEqual(t, count[migrations.SourceWeir], 1)
	require.Equal(t, len(list), bytes.Count(log.Bytes(), []byte("direction=up")), "each is logged")
	require.Contains(t, objects(t, url), "schema weir")
}

func TestUp_IsIdempotent(t *testing.T) {
	t.Parallel()
	url := pgtest.Empty(t)
	up(t, url)
	before := objects(t, url)
	rows := values[string](t, url, "select v::text from weir.goose_db_version v union all select m::text from river_migration m order by 1")
	up(t, url)
	require.Equal(t, before, objects(t, url))
	require.Equal(t, rows, values[string](t, url, "select v::text from weir.goose_db_version v union all select m::text from river_migration m order by 1"))
}

// waiting waits until a session asks for the lock of a database again and again.
func waiting(t *testing.T, url string, n int) {
	t.Helper()
	require.Eventually(t, func() bool {
		return values[int](t, url, `select count(*) from pg_stat_activity where datname = current_database()
			and query like 'select pg_try_advisory_lock%' and pid <> pg_backend_pid()`)[0] == n
	}, time.Minute, 20*time.Millisecond)
}

func TestUp_TwentyProcessesAtOnceOnAnEmptyDatabase(t *testing.T) {
	t.Parallel()
	url := pgtest.Empty(t)
	exe, err := os.Executable()
	require.NoError(t, err)
	// They wait behind the lock until all are there: processes start too slowly to meet by themselves.
	holder := lockHolder(t, url)
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			cmd := exec.Command(exe)
			cmd.Env = append(os.Environ(), childEnv+"="+url)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
	waiting(t, url, 20)
	require.NoError(t, holder.Close(t.Context()))
	all.Wait()

	require.Zero(t, locks(t, url))
	reference := pgtest.URL(t)
	require.Equal(t, objects(t, reference), objects(t, url))
}

func TestUp_RiverInASchemaOfItsOwn(t *testing.T) {
	t.Parallel()
	url := pgtest.Empty(t)
	opts := migrations.Options{RiverSchema: `odd "name`}
	require.NoError(t, migrations.Up(t.Context(), url, opts))
	require.NoError(t, migrations.Up(t.Context(), url, opts))
	require.Equal(t, []string{`odd "name`}, values[string](t, url,
		"select nspname::text from pg_class c join pg_namespace n on n.oid = relnamespace where relname = 'river_job'"))
	list, err := migrations.Status(t.Context(), url, opts)
	require.NoError(t, err)
	for _, m := range list {
		require.True(t, m.Applied, "%+v", m)
	}
	require.Zero(t, applied(t, url, migrations.SourceRiver), "there are none where River looks by default")
}

func TestUp_GivesTheLockUpOnEveryPath(t *testing.T) {
	t.Parallel()
	url := pgtest.Empty(t)
	require.NoError(t, migrations.Locked(t.Context(), url, func(ctx context.Context, _ *pgxpool.Pool) error {
		require.Equal(t, 1, locks(t, url))
		return nil
	}))
	require.Zero(t, locks(t, url))

	require.ErrorIs(t, migrations.Locked(t.Context(), url, func(context.Context, *pgxpool.Pool) error { return errDone }), errDone)
	require.Zero(t, locks(t, url))

	ctx, cancel := context.WithCancelCause(t.Context())
	err := migrations.Locked(ctx, url, func(ctx context.Context, pool *pgxpool.Pool) error {
		cancel(errDone)
		_, err := pool.Exec(ctx, "select 1")
		return err
	})
	require.ErrorIs(t, err, context.Canceled)
	require.Zero(t, locks(t, url))

	require.Panics(t, func() {
		_ = migrations.Locked(t.Context(), url, func(context.Context, *pgxpool.Pool) error { panic("a bug") })
	})
	require.Zero(t, locks(t, url))
}

func TestUp_WaitsForTheLockAsLongAsItsContext(t *testing.T) {
	t.Parallel()
	url := pgtest.Empty(t)
	lockHolder(t, url)
	ctx, cancel := context.WithCancelCause(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- migrations.Up(ctx, url, migrations.Options{}) }()
	waiting(t, url, 1)
	cancel(errDone)
	err := <-ended
	require.ErrorIs(t, err, errDone)
	require.ErrorContains(t, err, "another process that migrates")
	require.Equal(t, 1, locks(t, url), "the other one keeps it")
	require.NotContains(t, objects(t, url), "schema weir")
}

func TestUp_WhoWaitsForTheLockDoesNotBlockAnIndexThatIsBuiltConcurrently(t *testing.T) {
	t.Parallel()
	url := pgtest.Empty(t)
	execute(t, url, "create table busy (id int)")
	holder := lockHolder(t, url)
	ended := make(chan error, 1)
	go func() { ended <- migrations.Up(t.Context(), url, migrations.Options{}) }()
	waiting(t, url, 1)

	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	_, err := holder.Exec(ctx, "create index concurrently on busy (id)")
	require.NoError(t, err)
	require.NoError(t, holder.Close(t.Context()))
	require.NoError(t, <-ended)
}

func TestUp_AnIdleSessionTimeoutDoesNotTakeTheLock(t *testing.T) {
	t.Parallel()
	url := pgtest.Empty(t)
	execute(t, url, `do $$ begin execute format('alter database %I set idle_session_timeout = 50', current_database()); end $$`)
	require.NoError(t, migrations.Locked(t.Context(), url, func(ctx context.Context, pool *pgxpool.Pool) error {
		_, err := pool.Exec(ctx, "select pg_sleep(0.5)")
		require.NoError(t, err)
		var held int
		require.NoError(t, pool.QueryRow(ctx, `select count(*) from pg_locks where locktype = 'advisory'
			and database = (select oid from pg_database where datname = current_database())`).Scan(&held))
		require.Equal(t, 1, held)
		return nil
	}))
}

func TestUp_NeedsNoRightToCreateSchemasWhenTheyAreThere(t *testing.T) {
	t.Parallel()
	url := pgtest.Empty(t)
	up(t, url)
	execute(t, url, `do $$ begin
		create role weir_plain login;
		exception when duplicate_object or unique_violation then null;
	end $$`)
	execute(t, url, `
		grant usage on schema weir, public to weir_plain;
		grant select on all tables in schema weir, public to weir_plain`)
	config, err := pgxpool.ParseConfig(url)
	require.NoError(t, err)
	plain := "host=" + config.ConnConfig.Host + " user=weir_plain sslmode=disable dbname=" + config.ConnConfig.Database
	up(t, plain)
}

func TestUp_AnOlderWeirLeavesANewerDatabaseAlone(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	execute(t, url, "insert into weir.goose_db_version (version_id, is_applied) values (99999, true)")
	before := objects(t, url)
	up(t, url)
	require.Equal(t, before, objects(t, url))
}

func TestFingerprint_IsStable(t *testing.T) {
	t.Parallel()
	require.Equal(t, migrations.Fingerprint(), migrations.Fingerprint())
	require.Regexp(t, "^[0-9a-f]{64}$", migrations.Fingerprint())
}
