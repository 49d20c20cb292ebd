package postgres

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

func TestStart_TheServerIsNeverRoot(t *testing.T) {
	t.Parallel()
	s := start(t, ownCluster(t))
	info, err := os.Stat(filepath.Join("/proc", query[string](t, s.URL("postgres"), "select pg_backend_pid()::text")))
	if err == nil { // the backend may be gone already
		require.NotZero(t, info.Sys().(*syscall.Stat_t).Uid)
	}
	info, err = os.Stat(s.cluster.data())
	require.NoError(t, err)
	require.NotZero(t, info.Sys().(*syscall.Stat_t).Uid)
	require.Equal(t, os.FileMode(0o700), info.Mode().Perm())
}

func TestStart_RootUsesTheFirstUserThatThereIs(t *testing.T) {
	t.Parallel()
	as, err := firstUser("weir-no-such-user", "nobody")
	require.NoError(t, err)
	require.Equal(t, "nobody", as.name)
	require.NotZero(t, as.uid)
	require.True(t, as.switched)

	_, err = firstUser("weir-no-such-user", "weir-nor-this")
	require.ErrorContains(t, err, "no user weir-no-such-user or weir-nor-this")
}

func TestStart_AnotherUserHasItInTheCacheDirectory(t *testing.T) {
	t.Parallel()
	skipUnlessRoot(t)
	var home string
	asUser := asNobody(t)
	p := spawn(t, Options{Name: "nobodys"}, asUser, func(cmd *exec.Cmd) {
		home = cmd.Dir
		// A client's settings that would lead a server astray.
		cmd.Env = append(cmd.Env, "PGDATA=/nowhere", "PGPORT=1", "PGHOST=/nowhere")
	})
	j := p.joined(t)
	require.True(t, strings.HasPrefix(j.Dir, filepath.Join(home, ".cache", "weir", "postgres")), j.Dir)
	require.Equal(t, "UTF8", query[string](t, j.URL, "show server_encoding"))
	p.leave(t)
	require.False(t, running(j.PID))
}

func TestStart_AUserWithoutAHomeHasItInASharedDirectory(t *testing.T) {
	t.Parallel()
	skipUnlessRoot(t)
	asUser := asNobody(t)
	p := spawn(t, Options{Ephemeral: true}, asUser, func(cmd *exec.Cmd) {
		cmd.Env = append(cmd.Env, "HOME=/nonexistent")
	})
	j := p.joined(t)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll("/var/tmp/weir-postgres-65534")) })
	require.True(t, strings.HasPrefix(j.Dir, "/var/tmp/weir-postgres-65534/"), j.Dir)
	p.leave(t)
}

func TestMkdir_RefusesADirectoryOfSomebodyElse(t *testing.T) {
	t.Parallel()
	skipUnlessRoot(t)
	as, err := serverAccount()
	require.NoError(t, err)
	dir := filepath.Join(t.TempDir(), "taken")
	require.NoError(t, os.Mkdir(dir, 0o777))
	require.NoError(t, os.Chown(dir, 12345, 12345))
	require.ErrorContains(t, as.mkdir(dir), "somebody else")

	link := filepath.Join(t.TempDir(), "link")
	require.NoError(t, os.Symlink(t.TempDir(), link))
	require.ErrorContains(t, as.mkdir(link), "somebody else")
}

func TestURL_TheSocketsPathIsShort(t *testing.T) {
	t.Parallel()
	as, err := serverAccount()
	require.NoError(t, err)
	long := filepath.Join(worldDir(t), strings.Repeat("long", 30))
	c := &cluster{dir: long, as: as}
	require.NoError(t, c.prepare())
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(c.socket)) })
	require.Less(t, len(filepath.Join(c.socket, socketName)), maxSocketPath)
	info, err := os.Stat(c.socket)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o700), info.Mode().Perm())
}

func TestURL_IsUnderstoodByPgxAndPsql(t *testing.T) {
	t.Parallel()
	s := start(t, ownCluster(t))
	const odd = `odd name?&"`
	require.NoError(t, s.CreateDatabase(t.Context(), odd))

	config, err := pgx.ParseConfig(s.URL(odd))
	require.NoError(t, err)
	require.Equal(t, odd, config.Database)
	require.Equal(t, odd, query[string](t, s.URL(odd), "select current_database()"))

	psql, err := exec.LookPath("psql")
	if err != nil {
		t.Skip("there is no psql to ask")
	}
	out, err := exec.Command(psql, s.URL(odd), "-XAtc", "select current_database()").CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Equal(t, odd+"\n", string(out))
}

func TestDatabases_AreCopiedAndDroppedWithWhoIsConnected(t *testing.T) {
	t.Parallel()
	s := start(t, ownCluster(t))
	require.NoError(t, s.CreateDatabase(t.Context(), "original"))
	execute(t, s.URL("original"), "create table copied as select 42 as answer")
	require.NoError(t, s.CopyDatabase(t.Context(), "copy", "original"))
	require.Equal(t, 42, query[int](t, s.URL("copy"), "select answer from copied"))

	conn, err := pgx.Connect(t.Context(), s.URL("copy"))
	require.NoError(t, err)
	require.NoError(t, s.DropDatabase(t.Context(), "copy"))
	require.Error(t, conn.Ping(t.Context()))
	require.NoError(t, s.DropDatabase(t.Context(), "copy"), "dropping what is not there is no error")
}
