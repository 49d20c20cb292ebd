package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/jobs"
)

// The test binary is the worker, too: started with this variable it runs main with the arguments that follow.
const asWorker = "WEIR_TEST_AS_WORKER"

func TestMain(m *testing.M) {
	if os.Getenv(asWorker) != "" {
		main() // the variable stays: the demo's workers are this binary too
		return
	}
	os.Exit(m.Run())
}

// process is a real `worker run`.
type process struct {
	t    *testing.T
	cmd  *exec.Cmd
	http string // where it serves health and metrics
	done chan error
	logs *syncBuffer
}

type syncBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// startWorker starts a process with leases of a second and waits until it serves.
func startWorker(t *testing.T, databaseURL, smtpAddr string, env ...string) *process {
	t.Helper()
	host, port, err := net.SplitHostPort(smtpAddr)
	require.NoError(t, err)
	p := &process{t: t, cmd: exec.Command(os.Args[0], "run"), done: make(chan error, 1), logs: &syncBuffer{}}
	p.cmd.Env = append(append(os.Environ(), asWorker+"=1", "DATABASE_URL="+databaseURL, "WEIR_HTTP_ADDR=127.0.0.1:0",
		"WEIR_DELIVERY_LEASE=1s", "WEIR_DELIVERY_STEP_TIME=20s", "WEIR_DELIVERY_BACKOFF_FIRST=100ms", "WEIR_DELIVERY_BACKOFF_MAX=200ms",
		"WEIR_REAPER_INTERVAL=200ms", "WEIR_DOORBELL_GRACE=1s", "WEIR_SHUTDOWN_GRACE=300ms", "WEIR_FETCH_POLL_INTERVAL=100ms",
		"WEIR_POOL_SIZE=4", "WEIR_SMTP_HOST="+host, "WEIR_SMTP_PORT="+port, "WEIR_SMTP_FROM=weir@example.com", "WEIR_SMTP_TLS=none",
		"WEIR_SMTP_SEND_TIMEOUT=15s"), env...)
	stderr, err := p.cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, p.cmd.Start())
	addr := make(chan string, 1)
	go p.read(stderr, addr)
	t.Cleanup(p.kill)
	select {
	case p.http = <-addr:
	case <-time.After(20 * time.Second):
		t.Fatalf("the worker does not serve: %s", p.logs)
	}
	p.eventually("ready", func() bool { return p.get("/readyz") == "ok\n" })
	return p
}

func (p *process) read(stderr io.Reader, addr chan<- string) {
	lines := bufio.NewScanner(io.TeeReader(stderr, p.logs))
	for lines.Scan() {
		var line struct{ Msg, Addr string }
		if json.Unmarshal(lines.Bytes(), &line) == nil && line.Msg == "serving health and metrics" {
			addr <- line.Addr
		}
	}
	p.done <- p.cmd.Wait()
	close(p.done)
}

func (p *process) get(path string) string {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.http+path, nil)
	require.NoError(p.t, err)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return ""
	}
	defer res.Body.Close()
	body, _ := io.ReadAll(res.Body)
	return string(body)
}

// metric sums the samples of a metric, whatever their labels.
func (p *process) metric(name string) float64 {
	sum := 0.0
	for line := range strings.Lines(p.get("/metrics")) {
		if strings.HasPrefix(line, name+"{") || strings.HasPrefix(line, name+" ") {
			fields := strings.Fields(line)
			v, err := strconv.ParseFloat(fields[len(fields)-1], 64)
			require.NoError(p.t, err)
			sum += v
		}
	}
	return sum
}

func (p *process) signal(sig syscall.Signal) {
	require.NoError(p.t, p.cmd.Process.Signal(sig))
}

func (p *process) kill() {
	_ = p.cmd.Process.Signal(syscall.SIGCONT)
	_ = p.cmd.Process.Kill()
	<-p.done
}

// exited returns how the process ended, within the bound.
func (p *process) exited(bound time.Duration) error {
	p.t.Helper()
	select {
	case err := <-p.done:
		return err
	case <-time.After(bound):
		p.t.Fatalf("the worker did not exit within %s: %s", bound, p.logs)
		return nil
	}
}

func (p *process) eventually(what string, ok func() bool) {
	p.t.Helper()
	eventually(p.t, what, ok)
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	require.Eventually(t, ok, 30*time.Second, 10*time.Millisecond, what)
}

// owner returns which of the processes owns the run.
func owner(t *testing.T, client *jobs.Client, id jobs.RunID, of ...*process) *process {
	t.Helper()
	var found *process
	eventually(t, "owned", func() bool {
		run, err := client.Get(t.Context(), id)
		require.NoError(t, err)
		for _, p := range of {
			if strings.Contains(run.LeaseOwner, fmt.Sprintf(":%d:", p.cmd.Process.Pid)) {
				found = p
			}
		}
		return found != nil
	})
	return found
}

func other(p *process, of ...*process) *process {
	for _, o := range of {
		if o != p {
			return o
		}
	}
	return nil
}

// snapshot is all that a stale owner could have changed.
func snapshot(t *testing.T, pool *pgxpool.Pool, id jobs.RunID) string {
	t.Helper()
	var s string
	require.NoError(t, pool.QueryRow(t.Context(), `select jsonb_pretty(jsonb_build_object(
		'run', (select to_jsonb(r) from weir.run r where id = $1),
		'receipts', (select jsonb_agg(to_jsonb(t) order by step_index) from weir.receipts t where run_id = $1),
		'tries', (select jsonb_agg(to_jsonb(e) order by attempt) from weir.ended_try e where run_id = $1),
		'jobs', (select jsonb_agg(jsonb_build_object('id', id, 'state', state, 'attempt', attempt, 'errors', errors) order by id)
			from river_job where args ->> 'run_id' = $1::text and state <> 'running')))`, id.String()).Scan(&s))
	return s
}
