package pgtemplate_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	osexec "os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/internal/postgres/pgtest"
	"github.com/weirqueue/weir/jobs"
	"github.com/weirqueue/weir/workers"
	"github.com/weirqueue/weir/workers/branch"
	"github.com/weirqueue/weir/workers/branch/pgtemplate"
)

const (
	workerURL   = "WEIR_TEST_PGTEMPLATE_URL"
	workerAdmin = "WEIR_TEST_PGTEMPLATE_ADMIN"
	workerStage = "WEIR_TEST_PGTEMPLATE_STAGE"
	workerDir   = "WEIR_TEST_PGTEMPLATE_DIR"
)

func config(p branch.Provider) *workers.Config {
	return &workers.Config{
		Branches: workers.BranchConfig{
			Providers: map[string]branch.Provider{"pgtemplate": p},
			Lease:     3 * time.Second, StepTime: 30 * time.Second, PollFirst: 50 * time.Millisecond, PollMax: 100 * time.Millisecond,
		},
		ReaperInterval: 200 * time.Millisecond, DoorbellGrace: time.Second, FetchPollInterval: 50 * time.Millisecond,
		ShutdownGrace: 200 * time.Millisecond, Logger: slog.New(slog.DiscardHandler),
	}
}

// beWorker is a process of the fleet that waits at one stage of a reset until the file "go" is there. It counts issues in
// the directory's file "issued".
func beWorker() int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	pool, err := pgxpool.New(ctx, os.Getenv(workerURL))
	if err != nil {
		panic(err)
	}
	p, err := pgtemplate.New(pgtemplate.Config{URL: os.Getenv(workerAdmin)})
	if err != nil {
		panic(err)
	}
	dir := os.Getenv(workerDir)
	p.OnStage(func(stage string) {
		if stage != os.Getenv(workerStage) {
			return
		}
		_ = os.WriteFile(filepath.Join(dir, "there"), nil, 0o600)
		for !exists(filepath.Join(dir, "go")) {
			time.Sleep(5 * time.Millisecond)
		}
	})
	fleet, err := workers.New(pool, config(p))
	if err != nil {
		panic(err)
	}
	if err := fleet.Run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	return 0
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// counting counts the issues of the successor.
type counting struct {
	*pgtemplate.Provider
	issues int
}

func (c *counting) Issue(ctx context.Context, r branch.Reset) ([]branch.Operation, error) {
	c.issues++
	return c.Provider.Issue(ctx, r)
}

// BR-03, BR-14, BR-15: a worker is killed, or stopped and woken again, at every stage. A successor brings the run to an
// end by looking only: the branch is as before or reset, as the run says, never gone; nothing is left beside it; and what
// somebody writes to it afterwards stays, whatever the woken process goes on to do.
func TestStages_KilledOrStoppedAtEach(t *testing.T) {
	t.Parallel()
	for _, stage := range pgtemplate.Stages {
		for _, sig := range []syscall.Signal{syscall.SIGKILL, syscall.SIGSTOP} {
			t.Run(fmt.Sprintf("%s at %s", sig, stage), func(t *testing.T) {
				t.Parallel()
				walk(t, stage, sig)
			})
		}
	}
}

func walk(t *testing.T, stage string, sig syscall.Signal) {
	w := newWorld(t)
	url := pgtest.URL(t)
	pool := pgtest.Connect(t, url)
	client, err := jobs.NewClient(pool, nil)
	require.NoError(t, err)
	require.NoError(t, client.RegisterBranch(t.Context(), jobs.Branch{Name: "dev", Provider: "pgtemplate", Target: w.branch, Parent: w.parent}))
	res, err := client.ResetBranch(t.Context(), jobs.Reset{Branch: "dev"}, nil)
	require.NoError(t, err)

	dir := t.TempDir()
	self, err := os.Executable()
	require.NoError(t, err)
	child := osexec.Command(self)
	child.Env = append(os.Environ(), workerURL+"="+url, workerAdmin+"="+w.admin, workerStage+"="+stage, workerDir+"="+dir)
	child.Stderr = os.Stderr
	require.NoError(t, child.Start())
	exited := make(chan struct{})
	go func() {
		_ = child.Wait()
		close(exited)
	}()
	t.Cleanup(func() {
		_ = child.Process.Kill()
		<-exited
	})
	wait(t, "the stage is reached", func() bool { return exists(filepath.Join(dir, "there")) })
	require.NoError(t, child.Process.Signal(sig))

	successor := &counting{Provider: w.provider()}
	fleet, err := workers.New(pool, config(successor))
	require.NoError(t, err)
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- fleet.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		<-done
	})
	waitCtx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	run, err := client.Wait(waitCtx, res.Run.ID)
	require.NoError(t, err)
	require.Zero(t, successor.issues, "it only looks")
	switch run.Status {
	case jobs.StatusSucceeded:
		require.Equal(t, "drop", stage, "only there the swap was committed")
		require.Equal(t, "parent", w.data(w.branch))
	default:
		require.Equal(t, "not_applied", run.ErrorCode, run.ErrorMessage)
		require.NotEqual(t, "drop", stage)
		require.Equal(t, "branch", w.data(w.branch))
	}
	require.Empty(t, w.leftovers())
	require.GreaterOrEqual(t, run.Attempt, int64(3), "there was a takeover")

	w.exec(w.branch, "insert into t values ('work')")
	written := w.data(w.branch)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go"), nil, 0o600))
	if sig == syscall.SIGSTOP {
		require.NoError(t, child.Process.Signal(syscall.SIGCONT))
		require.NoError(t, child.Process.Signal(syscall.SIGTERM))
	}
	select {
	case <-exited:
	case <-time.After(time.Minute):
		t.Fatal("the worker does not end")
	}
	after, err := client.Get(t.Context(), res.Run.ID)
	require.NoError(t, err)
	require.Equal(t, run, after)
	require.Equal(t, written, w.data(w.branch), "never reset after somebody wrote to it")
	require.Empty(t, w.leftovers())

	// The branch is free, and a new reset of it works; on a machine that stands still for a lease not the first one.
	for range 3 {
		res, err = client.ResetBranch(t.Context(), jobs.Reset{Branch: "dev"}, nil)
		require.NoError(t, err)
		run, err = client.Wait(ctx, res.Run.ID)
		require.NoError(t, err)
		if run.ErrorCode != "not_applied" {
			break
		}
	}
	require.Equal(t, jobs.StatusSucceeded, run.Status, run.ErrorMessage)
	require.Equal(t, "parent", w.data(w.branch))
}

func wait(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for !ok() {
		require.True(t, time.Now().Before(deadline), "never: %s", what)
		time.Sleep(10 * time.Millisecond)
	}
}
