package workers_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	osexec "os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/workers"
	"github.com/weirqueue/weir/workers/channel"
)

// A real process of the fleet is this test binary once more, started with these variables; see TestMain. Its channel
// writes what it does into a table of the database, and does what the address of the message says.
const (
	processURL     = "WEIR_TEST_WORKER_URL"
	processOptions = "WEIR_TEST_WORKER_OPTIONS"
)

type options struct{ Lease, StepTime, Grace, AskWait time.Duration }

const processTables = `
create table acts (at timestamptz default clock_timestamp(), pid int, run uuid, act text);
create table observed (at timestamptz default clock_timestamp(), pid int, run uuid, event text);
create table gate (open boolean);` + planTable

// beWorker is the main function of a worker process.
func beWorker() int {
	var o options
	if err := json.Unmarshal([]byte(os.Getenv(processOptions)), &o); err != nil {
		panic(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	background := context.Background()
	pool, err := pgxpool.New(background, os.Getenv(processURL))
	if err != nil {
		panic(err)
	}
	own, err := pgxpool.New(background, os.Getenv(processURL)) // beside what is tested
	if err != nil {
		panic(err)
	}
	note := func(table, run, what string) {
		_, err := own.Exec(background, "insert into "+table+" (pid, run, "+map[string]string{"acts": "act", "observed": "event"}[table]+") values ($1, $2, $3)", os.Getpid(), run, what)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
	fleet, err := workers.New(pool, quickConfig(actor{own, note}, func(c *workers.Config) {
		c.Delivery.Lease, c.Delivery.StepTime, c.ShutdownGrace = o.Lease, o.StepTime, o.Grace
		c.Branches = branchConfig(branchActor{own, note}).Branches
		c.Branches.Lease, c.Branches.AskWait = o.Lease, o.AskWait
		c.Plan.Lease, c.Plan.StepTime = o.Lease, o.StepTime
		c.Tools = planTools(own)
		c.Logger = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
		c.Observer = workers.ObserverFunc(func(_ context.Context, e workers.Event) {
			switch e := e.(type) {
			case workers.LeaseLost:
				note("observed", e.Run.String(), e.EventName())
			case workers.RunReaped:
				note("observed", e.Run.String(), e.EventName())
			case workers.DoorbellsRung:
				note("observed", "00000000-0000-0000-0000-000000000000", e.EventName())
			}
		})
	}))
	if err != nil {
		panic(err)
	}
	if err := fleet.Run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

type actor struct {
	pool *pgxpool.Pool
	note func(table, run, what string)
}

func (actor) Effect() channel.Effect { return channel.AtLeastOnce }

func (a actor) Send(ctx context.Context, m channel.Message) (channel.Sent, error) {
	background := context.Background()
	a.note("acts", m.RunID, "begin")
	var begun int
	if err := a.pool.QueryRow(background, "select count(*)::int from acts where run = $1 and act = 'begin'", m.RunID).Scan(&begun); err != nil {
		return channel.Sent{}, channel.NotSent("table", err)
	}
	name, _, _ := strings.Cut(m.Address, "@")
	switch {
	case name == "poison":
		os.Exit(137)
	case name == "holds" || name == "stopped" && begun == 1: // whatever happens to its context
		for open := false; !open; <-time.After(20 * time.Millisecond) {
			_ = a.pool.QueryRow(background, "select exists (select from gate where open)").Scan(&open)
		}
	case name == "obeys" && begun == 1:
		<-ctx.Done()
		return channel.Sent{}, channel.NotSent("interrupted", ctx.Err())
	}
	a.note("acts", m.RunID, "send")
	return channel.Sent{ExternalRef: fmt.Sprint("<", os.Getpid(), ">")}, nil
}

// child is a worker process.
type child struct {
	*osexec.Cmd
	exited chan struct{} // closed after Wait
}

func spawn(t *testing.T, url string, o options) *child {
	t.Helper()
	if o.StepTime == 0 {
		o.StepTime = 10 * o.Lease
	}
	if o.AskWait == 0 {
		o.AskWait = time.Second
	}
	text, err := json.Marshal(o)
	require.NoError(t, err)
	self, err := os.Executable()
	require.NoError(t, err)
	c := &child{Cmd: osexec.Command(self), exited: make(chan struct{})}
	c.Env = append(os.Environ(), processURL+"="+url, processOptions+"="+string(text))
	c.Stderr = os.Stderr
	require.NoError(t, c.Start())
	go func() {
		_ = c.Wait()
		close(c.exited)
	}()
	t.Cleanup(func() {
		_ = c.Process.Kill() // a process that is stopped too
		<-c.exited
	})
	return c
}

func (c *child) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	require.NoError(t, c.Process.Signal(s))
}

func (c *child) kill(t *testing.T) {
	t.Helper()
	c.signal(t, syscall.SIGKILL)
	<-c.exited
}

// acts are what the channels of all processes did for a run.
func acts(t *testing.T, pool *pgxpool.Pool, run fmt.Stringer) []string {
	t.Helper()
	return value[[]string](t, pool, "select coalesce(array_agg(act order by at), '{}') from acts where run = $1", run.String())
}

func begun(t *testing.T, pool *pgxpool.Pool, run fmt.Stringer, n int) {
	t.Helper()
	require.NoError(t, eventually(func() bool {
		return len(slices.DeleteFunc(acts(t, pool, run), func(a string) bool { return a != "begin" })) >= n
	}), "run %s did not begin %d times", run, n)
}

func observedBy(t *testing.T, pool *pgxpool.Pool, event string) int {
	t.Helper()
	return value[int](t, pool, "select count(*)::int from observed where event = $1", event)
}
