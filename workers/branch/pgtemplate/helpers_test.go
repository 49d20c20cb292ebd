package pgtemplate_test

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/internal/postgres/pgtest"
	"github.com/weirqueue/weir/workers/branch"
	"github.com/weirqueue/weir/workers/branch/pgtemplate"
)

// world is a branch and its parent, as databases of the tests' server.
type world struct {
	t              testing.TB
	admin          string // the address of postgres
	branch, parent string
}

func databaseOf(t testing.TB, address string) string {
	t.Helper()
	cfg, err := pgx.ParseConfig(address)
	require.NoError(t, err)
	return cfg.Database
}

func newWorld(t testing.TB) *world {
	t.Helper()
	parent, target := pgtest.Empty(t), pgtest.Empty(t)
	w := &world{t: t, parent: databaseOf(t, parent), branch: databaseOf(t, target)}
	w.admin = strings.Replace(target, "/"+url.PathEscape(w.branch), "/postgres", 1)
	require.Equal(t, "postgres", databaseOf(t, w.admin))
	for _, name := range []string{w.parent, w.branch} {
		w.exec(name, "create table t (who text); insert into t values ('"+map[bool]string{true: "parent", false: "branch"}[name == w.parent]+"')")
	}
	t.Cleanup(func() {
		for _, name := range w.leftovers() {
			w.exec("postgres", "drop database if exists "+name+" with (force)")
		}
	})
	return w
}

func (w *world) connect(name string) (*pgx.Conn, error) {
	cfg, err := pgx.ParseConfig(w.admin)
	if err != nil {
		return nil, err
	}
	cfg.Database = name
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	return pgx.ConnectConfig(ctx, cfg)
}

func (w *world) exec(name, sql string) {
	w.t.Helper()
	conn, err := w.connect(name)
	require.NoError(w.t, err)
	defer conn.Close(context.Background())
	_, err = conn.Exec(context.Background(), sql)
	require.NoError(w.t, err)
}

// data is what a database holds.
func (w *world) data(name string) string {
	w.t.Helper()
	conn, err := w.connect(name)
	require.NoError(w.t, err, "the branch is gone")
	defer conn.Close(context.Background())
	var s string
	require.NoError(w.t, conn.QueryRow(context.Background(), "select coalesce(string_agg(who, ' ' order by who), '') from t").Scan(&s))
	return s
}

// leftovers are databases beside the branch.
func (w *world) leftovers() []string {
	name, err := pgtemplate.Beside(w.reset(1), "_new")
	require.NoError(w.t, err)
	hash := strings.Split(name, "_")[3]
	conn, err := w.connect("postgres")
	require.NoError(w.t, err)
	defer conn.Close(context.Background())
	rows, err := conn.Query(context.Background(), `select datname from pg_database where datname like 'weir\_%\_' || $1 || '\_%'`, hash)
	require.NoError(w.t, err)
	list, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(w.t, err)
	return list
}

var runOfTests = uuid.Must(uuid.NewV7()).String()

func (w *world) reset(attempt int64) branch.Reset {
	return branch.Reset{
		RunID: runOfTests, Attempt: attempt, Branch: "dev", Target: w.branch, Parent: w.parent,
		StillMine: func(ctx context.Context) error { return ctx.Err() },
	}
}

func (w *world) provider(changes ...func(*pgtemplate.Config)) *pgtemplate.Provider {
	w.t.Helper()
	cfg := pgtemplate.Config{URL: w.admin, Patience: 10 * time.Second}
	for _, change := range changes {
		change(&cfg)
	}
	p, err := pgtemplate.New(cfg)
	require.NoError(w.t, err)
	return p
}

func class(err error) branch.Class {
	var e *branch.Error
	if errors.As(err, &e) {
		return e.Class
	}
	return branch.ClassUnknown
}

func code(err error) string {
	var e *branch.Error
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}
