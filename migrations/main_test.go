package migrations_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weirqueue/weir/migrations"
)

// childEnv makes the test binary a process that migrates the database at the address that is its value.
const childEnv = "WEIR_TEST_MIGRATE"

func TestMain(m *testing.M) {
	if url := os.Getenv(childEnv); url != "" {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		defer cancel()
		if err := migrations.Up(ctx, url, migrations.Options{}); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, conn.Close(context.Background())) })
	return conn
}

func execute(t *testing.T, url, sql string) {
	t.Helper()
	_, err := connect(t, url).Exec(t.Context(), sql)
	require.NoError(t, err)
}

func values[T any](t *testing.T, url, sql string, args ...any) []T {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer conn.Close(t.Context())
	rows, err := conn.Query(t.Context(), sql, args...)
	require.NoError(t, err)
	list, err := pgx.CollectRows(rows, pgx.RowTo[T])
	require.NoError(t, err)
	return list
}

// objects lists what is in a database besides PostgreSQL's own: the state that migrations change.
func objects(t *testing.T, url string) []string {
	t.Helper()
	return values[string](t, url, `
		select format('%s %s.%s %s', relkind, nspname, relname, (select string_agg(attname, ',' order by attnum)
				from pg_attribute where attrelid = c.oid and attnum > 0 and not attisdropped))
			from pg_class c join pg_namespace n on n.oid = relnamespace
			where nspname !~ '^pg_' and nspname <> 'information_schema'
		union all select format('function %s.%s', nspname, proname)
			from pg_proc p join pg_namespace n on n.oid = pronamespace
			where nspname !~ '^pg_' and nspname <> 'information_schema'
		union all select format('type %s.%s', nspname, typname)
			from pg_type t join pg_namespace n on n.oid = typnamespace
			where nspname !~ '^pg_' and nspname <> 'information_schema'
		union all select format('schema %s', nspname)
			from pg_namespace where nspname !~ '^pg_' and nspname <> 'information_schema'
		order by 1`)
}

func up(t *testing.T, url string) {
	t.Helper()
	require.NoError(t, migrations.Up(t.Context(), url, migrations.Options{}))
}

// applied counts the migrations of a source that a database has.
func applied(t *testing.T, url string, source migrations.Source) (n int) {
	t.Helper()
	list, err := migrations.Status(t.Context(), url, migrations.Options{})
	require.NoError(t, err)
	for _, m := range list {
		if m.Source == source && m.Applied {
			n++
		}
	}
	return n
}

// lockHolder is a connection that holds the lock, as another process that migrates does.
func lockHolder(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn := connect(t, url)
	_, err := conn.Exec(t.Context(), "select pg_advisory_lock($1)", migrations.LockKey)
	require.NoError(t, err)
	return conn
}

// locks counts the sessions that hold, or wait for, the lock in a database.
func locks(t *testing.T, url string) int {
	t.Helper()
	return values[int](t, url, `select count(*) from pg_locks where locktype = 'advisory'
		and database = (select oid from pg_database where datname = current_database())`)[0]
}

var errDone = errors.New("done")
