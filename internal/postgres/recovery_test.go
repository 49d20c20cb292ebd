package postgres

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestStart_RecoversAfterSIGKILLOfThePostmaster(t *testing.T) {
	t.Parallel()
	opts := ownCluster(t)
	opts.Durable = true
	crashed := start(t, opts)
	execute(t, crashed.URL("postgres"), "create table kept as select 42 as answer")
	pid := crashed.PID()
	require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))

	s := start(t, opts)
	require.NotEqual(t, pid, s.PID())
	require.Equal(t, 42, query[int](t, s.URL("postgres"), "select answer from kept"))
	require.Equal(t, 42, query[int](t, crashed.URL("postgres"), "select answer from kept"), "who was there before goes on")
}

func TestStart_EndsProcessesThatOutlivedTheirServer(t *testing.T) {
	t.Parallel()
	opts := ownCluster(t)
	crashed := start(t, opts)
	server := crashed.PID()
	var orphan int
	for _, pid := range processesIn(crashed.cluster.data()) {
		if pid != server {
			orphan = pid
		}
	}
	// A stopped process does not notice that its server is gone, and keeps the shared memory.
	require.NoError(t, syscall.Kill(orphan, syscall.SIGSTOP))
	require.NoError(t, syscall.Kill(server, syscall.SIGKILL))

	s := start(t, opts)
	require.Equal(t, 1, query[int](t, s.URL("postgres"), "select 1"))
	require.False(t, running(orphan))
}

func TestStart_LeavesOtherProgramsInTheDirectoryAlone(t *testing.T) {
	t.Parallel()
	opts := ownCluster(t)
	crashed := start(t, opts)
	visitor := exec.Command("sleep", "600")
	visitor.Dir = crashed.cluster.data()
	require.NoError(t, visitor.Start())
	t.Cleanup(func() {
		require.NoError(t, visitor.Process.Kill(), "it lives")
		_ = visitor.Wait()
	})
	require.NoError(t, syscall.Kill(crashed.PID(), syscall.SIGKILL))
	s := start(t, opts)
	require.NotZero(t, s.PID())
	require.True(t, running(visitor.Process.Pid))
}

func TestStart_RecoversAfterTheStarterWasKilled(t *testing.T) {
	t.Parallel()
	for _, at := range []string{"data.new*", "data.new*/global/pg_control", "data/postmaster.pid"} {
		t.Run(at, func(t *testing.T) {
			t.Parallel()
			opts := newCluster(t)
			c, err := open(t.Context(), opts)
			require.NoError(t, err)
			starter := spawn(t, opts)
			eventually(t, "the starter comes to "+at, func() bool {
				found, _ := filepath.Glob(c.path(at))
				return len(found) > 0
			})
			starter.kill(t)

			s := start(t, opts)
			require.Equal(t, 1, query[int](t, s.URL("postgres"), "select 1"))
			leftovers, _ := filepath.Glob(c.path("data.new*"))
			require.Empty(t, leftovers)
		})
	}
}

// Who works in a data directory is killed before the next start, so this must not be wrong. No mutant breaks it: its
// tests would end every PostgreSQL of the machine.
func TestWorksIn_IsTrueForPostgresInThisDirectoryOnly(t *testing.T) {
	t.Parallel()
	data, other := t.TempDir(), t.TempDir()
	sleep, err := exec.LookPath("sleep")
	require.NoError(t, err)
	sleep, err = filepath.EvalSymlinks(sleep)
	require.NoError(t, err)
	program, err := os.ReadFile(sleep)
	require.NoError(t, err)
	postgres := filepath.Join(t.TempDir(), "postgres")
	require.NoError(t, os.WriteFile(postgres, program, 0o700))

	run := func(program, dir string) int {
		cmd := exec.Command(program, "600")
		cmd.Dir = dir
		require.NoError(t, cmd.Start())
		t.Cleanup(func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		})
		return cmd.Process.Pid
	}
	server, elsewhere, visitor := run(postgres, data), run(postgres, other), run(sleep, data)
	require.True(t, worksIn(server, data))
	require.False(t, worksIn(elsewhere, data))
	require.False(t, worksIn(visitor, data))
	require.False(t, worksIn(os.Getpid(), data))
	require.Equal(t, []int{server}, processesIn(data))
}

// misleadingPID makes the cluster look as after a crash of the machine, when another program of the same user was given
// the dead server's number. It returns that program.
func misleadingPID(t *testing.T, c *cluster, pidFile []byte, dead string) *exec.Cmd {
	t.Helper()
	other := c.as.command(t.Context(), "sleep", "600")
	require.NoError(t, other.Start())
	t.Cleanup(func() {
		_ = other.Process.Kill()
		_ = other.Wait()
	})
	stale := append([]byte(strconv.Itoa(other.Process.Pid)), bytes.TrimPrefix(pidFile, []byte(dead))...)
	for _, path := range []string{c.pidFile(), filepath.Join(c.socket, socketName+".lock")} {
		require.NoError(t, os.WriteFile(path, stale, 0o600))
		require.NoError(t, c.as.own(path))
	}
	return other
}

func TestStart_IsNotMisledByAPIDThatIsNowAnotherProgram(t *testing.T) {
	t.Parallel()
	opts := ownCluster(t)
	before := start(t, opts)
	pidFile, err := os.ReadFile(before.cluster.pidFile())
	require.NoError(t, err)
	dead := strconv.Itoa(before.PID())
	require.NoError(t, before.Close())

	other := misleadingPID(t, before.cluster, pidFile, dead)
	s := start(t, opts)
	require.Equal(t, 1, query[int](t, s.URL("postgres"), "select 1"))
	require.True(t, running(other.Process.Pid))
}

func TestStart_TheWatcherLeavesAProgramAloneThatHasTheServersNumberNow(t *testing.T) {
	t.Parallel()
	opts := ownCluster(t)
	c, err := open(t.Context(), opts)
	require.NoError(t, err)
	require.NoError(t, c.prepare())
	last := spawn(t, opts)
	server := last.joined(t)
	pidFile, err := os.ReadFile(c.pidFile())
	require.NoError(t, err)
	require.NoError(t, syscall.Kill(server.PID, syscall.SIGKILL))
	eventually(t, "the server is gone", func() bool { return !running(server.PID) })
	other := misleadingPID(t, c, pidFile, strconv.Itoa(server.PID))

	last.kill(t)
	eventually(t, "the watcher has ended", func() bool {
		watch, err := openLock(c.path("watch"), c.as)
		require.NoError(t, err)
		defer watch.release()
		ended, err := watch.try(syscall.LOCK_EX)
		require.NoError(t, err)
		return ended
	})
	require.True(t, running(other.Process.Pid))
}

func TestStart_MakesABrokenClusterAnew_UnlessItIsDurable(t *testing.T) {
	t.Parallel()
	opts := ownCluster(t)
	s := start(t, opts)
	require.NoError(t, s.CreateDatabase(t.Context(), "before"))
	require.NoError(t, s.Close())
	control := filepath.Join(s.cluster.data(), "global", "pg_control")
	require.NoError(t, os.Truncate(control, 0))

	opts.Durable = true
	_, err := Start(t.Context(), opts)
	require.ErrorContains(t, err, "pg_control")
	require.FileExists(t, control)

	opts.Durable = false
	s = start(t, opts)
	require.Zero(t, query[int](t, s.URL("postgres"), "select count(*) from pg_database where datname = 'before'"))
}

func TestStart_KeepsWhatIsInTheCluster(t *testing.T) {
	t.Parallel()
	opts := ownCluster(t)
	s := start(t, opts)
	execute(t, s.URL("postgres"), "create table kept as select 42 as answer")
	require.NoError(t, s.Close())
	require.Equal(t, 42, query[int](t, start(t, opts).URL("postgres"), "select answer from kept"))
}

func TestStart_ABadSettingIsNamed(t *testing.T) {
	t.Parallel()
	opts := ownCluster(t)
	opts.Settings = map[string]string{"work_mem": "plenty"}
	_, err := Start(t.Context(), opts)
	require.ErrorContains(t, err, "work_mem")
}

func TestEphemeral_IsGoneAfterClose(t *testing.T) {
	t.Parallel()
	s := start(t, Options{Ephemeral: true})
	pid, dir := s.PID(), s.Dir()
	require.NoError(t, s.Close())
	require.False(t, running(pid))
	require.NoDirExists(t, dir)
}

func TestEphemeral_IsGoneWhenItsOwnerIsKilled(t *testing.T) {
	t.Parallel()
	owner := spawn(t, Options{Ephemeral: true})
	server := owner.joined(t)
	owner.kill(t)
	eventually(t, "the watcher removes it", func() bool {
		_, err := os.Stat(server.Dir)
		return os.IsNotExist(err) && !running(server.PID)
	})
}

func TestEphemeral_OneThatNobodyRemovedIsRemovedLater(t *testing.T) {
	t.Parallel()
	as, err := serverAccount()
	require.NoError(t, err)
	home := t.TempDir()
	mkdir := func(name string) string {
		dir := filepath.Join(home, ephemeralPrefix+name)
		require.NoError(t, os.Mkdir(dir, 0o700))
		return dir
	}
	abandoned, young, used := mkdir("abandoned"), mkdir("young"), mkdir("used")
	users, err := openLock(filepath.Join(used, "users"), as)
	require.NoError(t, err)
	require.NoError(t, users.take(t.Context(), syscall.LOCK_SH))
	old := func(dir string) {
		long := 2 * startTimeout
		info, err := os.Stat(dir)
		require.NoError(t, err)
		require.NoError(t, os.Chtimes(dir, info.ModTime().Add(-long), info.ModTime().Add(-long)))
	}
	old(abandoned)
	old(used)

	removeStale(t.Context(), home, as)
	require.NoDirExists(t, abandoned)
	require.DirExists(t, young, "it may be one that is being made")
	require.DirExists(t, used)
	require.NoError(t, users.release())
}

func TestRestart_KeepsWhatWasCommitted(t *testing.T) {
	t.Parallel()
	s := start(t, Options{Ephemeral: true, Durable: true})
	execute(t, s.URL("postgres"), "create table kept as select 42 as answer")
	for _, mode := range []StopMode{Fast, Immediate} {
		pid := s.PID()
		require.NoError(t, s.Restart(t.Context(), mode))
		require.NotEqual(t, pid, s.PID())
		require.Equal(t, 42, query[int](t, s.URL("postgres"), "select answer from kept"))
	}
}

func TestStop_IsAnOutageUntilRestart(t *testing.T) {
	t.Parallel()
	s := start(t, Options{Ephemeral: true})
	require.NoError(t, s.Stop(t.Context(), Fast))
	require.Zero(t, s.PID())
	require.NoError(t, s.Stop(t.Context(), Fast), "stopping what is stopped is no error")
	require.Error(t, s.CreateDatabase(context.Background(), "never"))
	require.NoError(t, s.Restart(t.Context(), Fast))
	require.NoError(t, s.CreateDatabase(t.Context(), "now"))
}
