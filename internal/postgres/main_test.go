package postgres

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// childEnv makes the test binary a process that uses a server, instead of running tests. Its value is the Options.
const childEnv = "WEIR_TEST_POSTGRES_CHILD"

func TestMain(m *testing.M) {
	if opts := os.Getenv(childEnv); opts != "" {
		os.Exit(child(opts))
	}
	removeLeftovers()
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		if pristineDir != "" {
			_ = os.RemoveAll(pristineDir)
		}
		os.Exit(code)
	}))
}

// removeLeftovers removes the clusters of test processes that were killed.
func removeLeftovers() {
	c, err := open(context.Background(), Options{Name: "any"})
	if err != nil {
		return // the tests will say so
	}
	dirs, _ := filepath.Glob(filepath.Join(filepath.Dir(c.dir), "*-*-*"))
	for _, dir := range dirs {
		var pid int
		if _, err := fmt.Sscanf(filepath.Base(dir), "own-%d-", &pid); err != nil {
			_, _ = fmt.Sscanf(filepath.Base(dir), "pristine-%d-", &pid)
		}
		if pid != 0 && !running(pid) {
			_ = os.RemoveAll(dir)
		}
	}
}

// joined is what a child says when it has its server.
type joined struct {
	PID   int
	URL   string
	Dir   string
	Error string
}

// child starts a server, says so, and closes it at the end of its input.
func child(options string) int {
	var opts Options
	if err := json.Unmarshal([]byte(options), &opts); err != nil {
		panic(err)
	}
	out := json.NewEncoder(os.Stdout)
	s, err := Start(context.Background(), opts)
	if err != nil {
		_ = out.Encode(joined{Error: err.Error()})
		return 1
	}
	_ = out.Encode(joined{PID: s.PID(), URL: s.URL("postgres"), Dir: s.Dir()})
	_, _ = io.Copy(io.Discard, os.Stdin)
	if err := s.Close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// process is a child from the test's side.
type process struct {
	*exec.Cmd
	in  io.Closer
	out *bufio.Reader
}

// spawn runs a child, without waiting for its server. change may alter the command before it starts.
func spawn(t *testing.T, opts Options, change ...func(*exec.Cmd)) *process {
	t.Helper()
	value, err := json.Marshal(opts)
	require.NoError(t, err)
	exe, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), childEnv+"="+string(value))
	cmd.Stderr = os.Stderr
	for _, c := range change {
		c(cmd)
	}
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	p := &process{Cmd: cmd, in: in, out: bufio.NewReader(out)}
	t.Cleanup(func() {
		if p.ProcessState == nil {
			_ = p.Process.Kill()
			_ = p.Wait()
		}
	})
	return p
}

// joined waits until the child has its server.
func (p *process) joined(t *testing.T) joined {
	t.Helper()
	line, err := p.out.ReadBytes('\n')
	require.NoError(t, err)
	var j joined
	require.NoError(t, json.Unmarshal(line, &j))
	require.Empty(t, j.Error)
	return j
}

// leave lets the child close its server and waits for its end.
func (p *process) leave(t *testing.T) {
	t.Helper()
	require.NoError(t, p.in.Close())
	require.NoError(t, p.Wait())
}

// kill ends the child with no chance to clean up.
func (p *process) kill(t *testing.T) {
	t.Helper()
	require.NoError(t, p.Process.Kill())
	_ = p.Wait() // says that it was killed
}

// newCluster is a cluster that no other test knows and that nobody has made yet. It is removed after the test, when
// nobody uses it any more.
func newCluster(t *testing.T) Options {
	t.Helper()
	opts := Options{Name: fmt.Sprintf("own-%d-%d", os.Getpid(), clusters.Add(1))}
	t.Cleanup(func() {
		c, err := open(context.Background(), opts)
		require.NoError(t, err)
		eventually(t, "no server is left running", func() bool { return len(processesIn(c.data())) == 0 })
		require.NoError(t, os.RemoveAll(c.dir))
	})
	return opts
}

var clusters atomic.Int64

// ownCluster is a newCluster with its data in place, copied because that takes a third of the time.
func ownCluster(t *testing.T) Options {
	t.Helper()
	opts := newCluster(t)
	c, err := open(t.Context(), opts)
	require.NoError(t, err)
	require.NoError(t, c.prepare())
	original, err := pristine()
	require.NoError(t, err)
	out, err := exec.Command("cp", "-a", original.data(), c.data()).CombinedOutput()
	require.NoError(t, err, "%s", out)
	return opts
}

// pristineDir is where pristine is, for TestMain to remove.
var pristineDir string

// pristine is a cluster that is never started.
var pristine = sync.OnceValues(func() (*cluster, error) {
	c, err := open(context.Background(), Options{Name: fmt.Sprintf("pristine-%d", os.Getpid())})
	if err != nil {
		return nil, err
	}
	if err := c.prepare(); err != nil {
		return nil, err
	}
	pristineDir = c.dir
	return c, c.initialize(context.Background())
})

// start is Start for tests in which it succeeds.
func start(t *testing.T, opts Options) *Server {
	t.Helper()
	s, err := Start(t.Context(), opts)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// query asks a server for one value.
func query[T any](t *testing.T, url, sql string) T {
	t.Helper()
	ctx := context.Background() // some ask in a cleanup
	conn, err := pgx.Connect(ctx, url)
	require.NoError(t, err)
	defer conn.Close(ctx)
	var value T
	require.NoError(t, conn.QueryRow(ctx, sql).Scan(&value))
	return value
}

func execute(t *testing.T, url, sql string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer conn.Close(t.Context())
	_, err = conn.Exec(t.Context(), sql)
	require.NoError(t, err)
}

// eventually polls for what another process is about to do.
func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	require.Eventually(t, done, 20*time.Second, 5*time.Millisecond, what)
}

// running reports whether the process lives; a zombie does not.
func running(pid int) bool {
	stat, err := os.ReadFile(filepath.Join("/proc", fmt.Sprint(pid), "stat"))
	if err != nil {
		return false
	}
	_, after, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(after, "Z")
}

func skipUnlessRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs to become another user, which only root can")
	}
}

// asNobody runs a command as the user nobody, with an empty home.
func asNobody(t *testing.T) func(*exec.Cmd) {
	t.Helper()
	const uid = 65534
	dir := worldDir(t)
	home := filepath.Join(dir, "home")
	require.NoError(t, os.Mkdir(home, 0o700))
	require.NoError(t, os.Chown(home, uid, uid))
	exe, err := os.ReadFile("/proc/self/exe")
	require.NoError(t, err)
	copied := filepath.Join(dir, "test")
	require.NoError(t, os.WriteFile(copied, exe, 0o755))
	return func(cmd *exec.Cmd) {
		cmd.Path, cmd.Dir = copied, home
		cmd.Env = append(cmd.Env, "HOME="+home, "XDG_CACHE_HOME=")
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	}
}

// worldDir is a temporary directory that every user can enter.
func worldDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.Chmod(dir, 0o755))
	require.NoError(t, os.Chmod(filepath.Dir(dir), 0o755))
	return dir
}
