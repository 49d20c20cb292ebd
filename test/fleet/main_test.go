// Package fleet tests processes of the fleet whose handlers misbehave in ways that a mail server cannot make them:
// they kill their process, ignore their context, use up the pool. The processes are real: the test binary again.
package fleet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/internal/postgres/pgtest"
	"github.com/weirqueue/weir/jobs"
	"github.com/weirqueue/weir/workers"
	"github.com/weirqueue/weir/workers/channel"
)

const asWorker = "WEIR_TEST_FLEET"

func TestMain(m *testing.M) {
	if url := os.Getenv(asWorker); url != "" {
		if err := work(url); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// table is a channel whose sends are rows, and whose misbehaviour is in the subject.
type table struct{ pool *pgxpool.Pool }

func (table) Effect() channel.Effect { return channel.AtLeastOnce }

func (c table) Send(ctx context.Context, m channel.Message) (channel.Sent, error) {
	if _, err := c.pool.Exec(context.Background(), "insert into sends (run, pid, subject) values ($1, $2, $3)", m.RunID, os.Getpid(), m.Subject); err != nil {
		return channel.Sent{}, err
	}
	switch m.Subject {
	case "poison":
		os.Exit(137)
	case "polite": // nothing was sent when the process asks it to stop
		if <-ctx.Done(); os.Getenv("WEIR_TEST_FINISH") == "" {
			return channel.Sent{}, channel.NotSent("stopped", context.Cause(ctx))
		}
	case "first is polite":
		var n int
		if err := c.pool.QueryRow(context.Background(), "select count(*) from sends where run = $1", m.RunID).Scan(&n); err != nil || n > 1 {
			return channel.Sent{}, err
		}
		<-ctx.Done()
		return channel.Sent{}, channel.NotSent("stopped", context.Cause(ctx))
	case "first is deaf":
		var n int
		if err := c.pool.QueryRow(context.Background(), "select count(*) from sends where run = $1", m.RunID).Scan(&n); err != nil || n > 1 {
			return channel.Sent{}, err
		}
		select {} // ignores its context for ever
	case "slow":
		select {
		case <-time.After(3 * time.Second):
		case <-ctx.Done():
			return channel.Sent{}, errors.New("interrupted")
		}
	case "brief":
		<-time.After(50 * time.Millisecond)
	}
	return channel.Sent{ExternalRef: "row"}, nil
}

func work(url string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return err
	}
	cfg.MaxConns = 4
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return err
	}
	defer pool.Close()
	sends, err := pgxpool.New(ctx, url)
	if err != nil {
		return err
	}
	defer sends.Close()
	lease, err := time.ParseDuration(os.Getenv("WEIR_TEST_LEASE"))
	if err != nil {
		return err
	}
	fleet, err := workers.New(pool, &workers.Config{
		Channels: map[string]channel.Channel{"table": table{sends}},
		Delivery: workers.DeliveryConfig{
			Lease: lease, StepTime: 20 * time.Second, MaxWorkers: 100,
			Backoff: workers.Backoff{First: 100 * time.Millisecond, Max: 200 * time.Millisecond},
		},
		ReaperInterval: 200 * time.Millisecond, DoorbellGrace: time.Second, ShutdownGrace: 300 * time.Millisecond,
		FetchPollInterval: 100 * time.Millisecond, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return err
	}
	return fleet.Run(ctx)
}

// world is a database with a client, and the processes that work on it.
type world struct {
	t      *testing.T
	url    string
	pool   *pgxpool.Pool
	client *jobs.Client
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, url: pgtest.URL(t)}
	w.pool = pgtest.Connect(t, w.url)
	_, err := w.pool.Exec(t.Context(), `create table sends (id bigserial, run text, pid int, subject text, at timestamptz default clock_timestamp())`)
	require.NoError(t, err)
	w.client, err = jobs.NewClient(w.pool, nil)
	require.NoError(t, err)
	return w
}

type worker struct {
	cmd  *exec.Cmd
	done chan struct{}
	err  error
}

func (w *world) start(lease time.Duration, env ...string) *worker {
	w.t.Helper()
	p := &worker{cmd: exec.Command(os.Args[0]), done: make(chan struct{})}
	p.cmd.Env = append(append(os.Environ(), asWorker+"="+w.url, "WEIR_TEST_LEASE="+lease.String()), env...)
	p.cmd.Stderr = os.Stderr
	require.NoError(w.t, p.cmd.Start())
	go func() { p.err = p.cmd.Wait(); close(p.done) }()
	w.t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.done
	})
	return p
}

func (w *world) notify(subject string, opts *jobs.Opts) jobs.RunID {
	w.t.Helper()
	res, err := w.client.Notify(w.t.Context(), jobs.Notification{
		To: []jobs.Recipient{{Channel: "table", Address: "x"}}, Subject: subject, Text: "t",
	}, opts)
	require.NoError(w.t, err)
	return res.Runs[0].ID
}

func (w *world) wait(id jobs.RunID) *jobs.Run {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), 90*time.Second)
	defer cancel()
	run, err := w.client.Wait(ctx, id)
	require.NoError(w.t, err, "last seen: %+v", run)
	return run
}

// owner waits until somebody owns the run and has begun to send, and returns the pid.
func (w *world) owner(id jobs.RunID) (pid int) {
	w.t.Helper()
	w.eventually("begun", func() bool {
		run, err := w.client.Get(w.t.Context(), id)
		require.NoError(w.t, err)
		if parts := strings.Split(run.LeaseOwner, ":"); len(parts) == 3 {
			_, _ = fmt.Sscan(parts[1], &pid)
		}
		return pid != 0 && w.value("select count(*) from sends where run = $1", id.String()) > 0
	})
	return pid
}

func (w *world) value(sql string, args ...any) (n int) {
	w.t.Helper()
	require.NoError(w.t, w.pool.QueryRow(w.t.Context(), sql, args...).Scan(&n))
	return n
}

func (w *world) eventually(what string, ok func() bool) {
	w.t.Helper()
	require.Eventually(w.t, ok, 60*time.Second, 10*time.Millisecond, what)
}
