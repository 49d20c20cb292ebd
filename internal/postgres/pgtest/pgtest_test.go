package pgtest_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weirqueue/weir/internal/postgres"
	"github.com/weirqueue/weir/internal/postgres/pgtest"
	"github.com/weirqueue/weir/migrations"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func value[T any](t *testing.T, url, sql string, args ...any) T {
	t.Helper()
	ctx := context.Background() // some ask in a cleanup
	conn, err := pgx.Connect(ctx, url)
	require.NoError(t, err)
	defer conn.Close(ctx)
	var v T
	require.NoError(t, conn.QueryRow(ctx, sql, args...).Scan(&v))
	return v
}

// database is the name of the database at an address, and admin the address of the server's own database.
func database(t *testing.T, url string) (name, admin string) {
	t.Helper()
	name = value[string](t, url, "select current_database()")
	return name, strings.Replace(url, "/"+name+"?", "/postgres?", 1)
}

const databases = "select count(*) from pg_database where datname = $1"

func TestURL_IsMigrated(t *testing.T) {
	t.Parallel()
	list, err := migrations.Status(t.Context(), pgtest.URL(t), migrations.Options{})
	require.NoError(t, err)
	require.NotEmpty(t, list)
	for _, m := range list {
		require.True(t, m.Applied, "%+v", m)
	}
}

func TestEmpty_HasNothingInIt(t *testing.T) {
	t.Parallel()
	require.Zero(t, value[int](t, pgtest.Empty(t), `select count(*) from pg_class c join pg_namespace n on n.oid = relnamespace
		where nspname not in ('pg_catalog', 'information_schema', 'pg_toast')`))
}

func TestURL_EachTestHasItsOwn(t *testing.T) {
	t.Parallel()
	one, two := pgtest.Pool(t), pgtest.Pool(t)
	_, err := one.Exec(t.Context(), "create table mine ()")
	require.NoError(t, err)
	var exists bool
	require.NoError(t, two.QueryRow(t.Context(), "select to_regclass('mine') is not null").Scan(&exists))
	require.False(t, exists)
}

func TestPool_IsClosedAndItsDatabaseDroppedAfterTheTest(t *testing.T) {
	t.Parallel()
	var name, admin string
	t.Run("test", func(t *testing.T) {
		pool := pgtest.Pool(t, pgtest.MaxConns(3))
		require.Equal(t, int32(3), pool.Config().MaxConns)
		name, admin = database(t, pool.Config().ConnString())
		require.Contains(t, name, "testpool_isclosed")
		require.Equal(t, 1, value[int](t, admin, databases, name))
	})
	require.Zero(t, value[int](t, admin, databases, name))
}

func TestPool_OpensTenConnectionsByDefault(t *testing.T) {
	t.Parallel()
	require.Equal(t, int32(10), pgtest.Pool(t).Config().MaxConns)
}

func TestCluster_IsTheTestsOwn(t *testing.T) {
	t.Parallel()
	s := pgtest.Cluster(t)
	require.NoError(t, migrations.Up(t.Context(), s.URL("postgres"), migrations.Options{}))
	require.NoError(t, s.Restart(t.Context(), postgres.Immediate))
	require.True(t, value[bool](t, s.URL("postgres"), "select to_regclass('weir.goose_db_version') is not null"))
}

// The tests below run this binary again, as another package's tests would.
const childEnv = "WEIR_TEST_PGTEST_CHILD"

// run starts one test of this binary as a process of its own.
func run(t *testing.T, test string, env ...string) (*exec.Cmd, *bytes.Buffer) {
	t.Helper()
	exe, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(exe, "-test.run=^"+test+"$", "-test.v")
	cmd.Env = append(append(os.Environ(), childEnv+"=1"), env...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	return cmd, &out
}

func TestChild_UsesADatabase(t *testing.T) {
	if os.Getenv(childEnv) == "" {
		return // it is for the tests that run it in a process of its own
	}
	url := pgtest.URL(t)
	name, _ := database(t, url)
	if file := os.Getenv("WEIR_TEST_PGTEST_SAY"); file != "" {
		require.NoError(t, os.WriteFile(file+".new", []byte(name), 0o600))
		require.NoError(t, os.Rename(file+".new", file))
		select {} // until it is killed
	}
}

func TestURL_ManyProcessesAtOnce(t *testing.T) {
	t.Parallel()
	var all sync.WaitGroup
	for range 6 {
		all.Go(func() {
			cmd, out := run(t, "TestChild_UsesADatabase")
			if err := cmd.Run(); err != nil {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
	all.Wait()
}

func TestURL_DatabasesOfKilledProcessesAreDroppedByTheNext(t *testing.T) {
	t.Parallel()
	mine, admin := database(t, pgtest.URL(t))
	file := t.TempDir() + "/name"
	cmd, out := run(t, "TestChild_UsesADatabase", "WEIR_TEST_PGTEST_SAY="+file)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	require.Eventually(t, func() bool {
		_, err := os.Stat(file)
		return err == nil
	}, 30*time.Second, 10*time.Millisecond, "the child has its database")
	left, err := os.ReadFile(file)
	require.NoError(t, err)

	next := func() {
		cmd, out := run(t, "TestChild_UsesADatabase")
		require.NoError(t, cmd.Run(), out)
	}
	next()
	require.Equal(t, 1, value[int](t, admin, databases, string(left)), "its owner lives")

	require.NoError(t, cmd.Process.Kill())
	require.Error(t, cmd.Wait(), out)
	next()
	require.Zero(t, value[int](t, admin, databases, string(left)))
	require.Equal(t, 1, value[int](t, admin, databases, mine), "this process lives")
}

func TestURL_FailsWithoutPostgreSQL(t *testing.T) {
	t.Parallel()
	cmd, out := run(t, "TestChild_UsesADatabase", "PG_BIN="+t.TempDir())
	require.Error(t, cmd.Run())
	require.Contains(t, out.String(), postgres.ErrNoBinaries.Error())
	require.Contains(t, out.String(), "--- FAIL")
}

func TestPool_ATestThatKeepsAConnectionFails(t *testing.T) {
	t.Parallel()
	cmd, out := run(t, "TestChild_KeepsAConnection")
	require.Error(t, cmd.Run())
	require.Contains(t, out.String(), "1 connections of the pool are still in use after the test")
	require.Contains(t, out.String(), "--- FAIL: TestChild_KeepsAConnection")
}

func TestChild_KeepsAConnection(t *testing.T) {
	if os.Getenv(childEnv) == "" {
		return // it is for the test that runs it in a process of its own
	}
	_, err := pgtest.Pool(t).Acquire(t.Context())
	require.NoError(t, err)
}

func TestURL_ManyProcessesMakeOneTemplate(t *testing.T) {
	t.Parallel()
	// In a cluster without one: the shared cluster has its template already.
	s := pgtest.Cluster(t)
	// What a process leaves that was killed while it made the template.
	require.NoError(t, s.CreateDatabase(t.Context(), "unfinished_template_"+migrations.Fingerprint()[:16]))

	names := make([]string, 4)
	var all sync.WaitGroup
	for i := range names {
		all.Go(func() {
			p, err := pgtest.Join(t.Context(), s)
			if !assert.NoError(t, err) {
				return
			}
			// Not before the last has joined: it drops the databases of those who left.
			t.Cleanup(func() { assert.NoError(t, p.Leave()) })
			names[i], err = p.Create(t.Context(), t.Name())
			assert.NoError(t, err)
		})
	}
	all.Wait()
	for _, name := range names {
		require.True(t, value[bool](t, s.URL(name), "select to_regclass('weir.run') is not null"))
	}
	templates := value[[]string](t, s.URL("postgres"), "select array_agg(datname::text) from pg_database where datname like '%template\\_%'")
	require.Equal(t, []string{"template_" + migrations.Fingerprint()[:16]}, templates)
	_, err := pgx.Connect(t.Context(), s.URL(templates[0]))
	require.ErrorContains(t, err, "not currently accepting connections")
}

func TestURL_ATemplateThatIsGoneIsMadeAgain(t *testing.T) {
	t.Parallel()
	s := pgtest.Cluster(t)
	p, err := pgtest.Join(t.Context(), s)
	require.NoError(t, err)
	defer func() { require.NoError(t, p.Leave()) }()
	_, err = p.Create(t.Context(), "before")
	require.NoError(t, err)
	require.NoError(t, s.DropDatabase(t.Context(), "template_"+migrations.Fingerprint()[:16]))
	_, err = p.Create(t.Context(), "after")
	require.NoError(t, err)
}

func TestURL_TemplatesThatNobodyUsesAreDropped(t *testing.T) {
	t.Parallel()
	s := pgtest.Cluster(t)
	for _, name := range []string{"template_old", "template_other_checkout"} {
		require.NoError(t, s.CreateDatabase(t.Context(), name))
	}
	used := filepath.Join(s.Dir(), "templates")
	require.NoError(t, os.Mkdir(used, 0o700))
	for name, age := range map[string]time.Duration{"template_old": 48 * time.Hour, "template_other_checkout": time.Hour} {
		require.NoError(t, os.WriteFile(filepath.Join(used, name), nil, 0o600))
		at := time.Now().Add(-age)
		require.NoError(t, os.Chtimes(filepath.Join(used, name), at, at))
	}
	p, err := pgtest.Join(t.Context(), s)
	require.NoError(t, err)
	defer func() { require.NoError(t, p.Leave()) }()
	_, err = p.Create(t.Context(), t.Name())
	require.NoError(t, err)
	require.Zero(t, value[int](t, s.URL("postgres"), databases, "template_old"))
	require.Equal(t, 1, value[int](t, s.URL("postgres"), databases, "template_other_checkout"))
}

// A matrix over versions of PostgreSQL must not be given the installed one each time.
func TestURL_AnotherMajorThanTheMatrixAskedForIsRefused(t *testing.T) {
	t.Parallel()
	s := pgtest.Cluster(t)
	require.NoError(t, pgtest.CheckMajor(t.Context(), s, ""))
	require.NoError(t, pgtest.CheckMajor(t.Context(), s, strconv.Itoa(s.Major())))
	require.ErrorContains(t, pgtest.CheckMajor(t.Context(), s, strconv.Itoa(s.Major()+1)), "serves")
}
