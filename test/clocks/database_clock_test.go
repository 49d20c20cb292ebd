//go:build linux

package clocks_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/internal/postgres"
	"github.com/weirqueue/weir/migrations"
)

// skewedDatabase is a migrated database whose server's clock is ahead.
func skewedDatabase(t *testing.T, by time.Duration) (url string) {
	t.Helper()
	server, err := postgres.Start(t.Context(), postgres.Options{Ephemeral: true, Env: []string{
		"LD_PRELOAD=" + buildClock(t), "CLOCK_AHEAD=" + strconv.Itoa(int(by.Seconds())),
	}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Close()) })
	require.NoError(t, server.CreateDatabase(t.Context(), "clocks"))
	url = server.URL("clocks")
	require.NoError(t, migrations.Up(t.Context(), url, migrations.Options{}))

	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close(t.Context())) }()
	var now time.Time
	require.NoError(t, conn.QueryRow(t.Context(), "select clock_timestamp()").Scan(&now))
	require.InDelta(t, by.Seconds(), time.Until(now).Seconds(), 10, "the server's clock")
	_, err = conn.Exec(t.Context(), "set statement_timeout = 300")
	require.NoError(t, err)
	began := time.Now()
	_, err = conn.Exec(t.Context(), "select pg_sleep(60)")
	require.ErrorContains(t, err, "57014")
	require.InDelta(t, 0.3, time.Since(began).Seconds(), 5, "the server's timeouts are as long as ever")
	return url
}

// buildClock makes the library that gives a server another clock, where the server's account can read it.
func buildClock(t *testing.T) (library string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "weir-clock-")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	require.NoError(t, os.Chmod(dir, 0o755))
	library = filepath.Join(dir, "clock.so")
	out, err := exec.Command("cc", "-shared", "-fPIC", "-O1", "-Wall", "-o", library, filepath.Join("testdata", "clock.c")).CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.NoError(t, os.Chmod(library, 0o755))
	return library
}
