package main

import (
	"encoding/json"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/internal/postgres/pgtest"
	"github.com/weirqueue/weir/internal/smtpsink"
	"github.com/weirqueue/weir/jobs"
)

func notify(t *testing.T, client *jobs.Client, to string) jobs.RunID {
	t.Helper()
	res, err := client.Notify(t.Context(), jobs.Notification{To: []jobs.Recipient{jobs.Email(to)}, Subject: "s", Text: "t"}, nil)
	require.NoError(t, err)
	return res.Runs[0].ID
}

// holding holds the first n mails until release is closed, and counts them.
func holding(n int32, release <-chan struct{}) (*atomic.Int32, smtpsink.Behaviour) {
	held := &atomic.Int32{}
	return held, func(smtpsink.Attempt) smtpsink.Action {
		if held.Load() < n {
			held.Add(1)
			return smtpsink.Hold(release)
		}
		return smtpsink.Accept()
	}
}

// L1, L2, RV-20: a process that is frozen past its lease, and wakes up after its successor has finished, changes
// nothing: not the run, not the receipt, not a job of River's.
func TestRun_AStoppedWorkerChangesNothingAfterItsSuccessor(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	pool := pgtest.Connect(t, url)
	client, err := jobs.NewClient(pool, nil)
	require.NoError(t, err)
	release := make(chan struct{})
	held, behave := holding(1, release)
	sink, err := smtpsink.Start(smtpsink.Config{Behaviour: behave})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, sink.Close()) })

	a, b := startWorker(t, url, sink.Addr()), startWorker(t, url, sink.Addr())
	id := notify(t, client, "stopped@example.com")
	first := owner(t, client, id, a, b)
	second := other(first, a, b)
	eventually(t, "the server holds the mail", func() bool { return held.Load() == 1 })
	first.signal(syscall.SIGSTOP)

	run, err := client.Wait(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, jobs.StatusSent, run.Status)
	tries, err := client.Tries(t.Context(), id)
	require.NoError(t, err)
	require.Len(t, tries, 1)
	require.Equal(t, "reaped", tries[0].How)
	eventually(t, "the successor's job is completed", func() bool {
		return strings.Contains(snapshot(t, pool, id), `"completed"`)
	})
	before := snapshot(t, pool, id)
	require.Contains(t, before, `"discarded"`)

	close(release) // what the frozen process sent is taken, too: mail is at least once
	first.signal(syscall.SIGCONT)
	first.eventually("the refusal is counted", func() bool { return first.metric("weir_leases_lost_total") > 0 })
	first.eventually("nothing is held", func() bool { return first.metric("weir_runs_held") == 0 })
	require.Equal(t, before, snapshot(t, pool, id))
	require.Zero(t, second.metric("weir_leases_lost_total"))
	first.signal(syscall.SIGTERM)
	require.NoError(t, first.exited(10*time.Second))
	require.Equal(t, before, snapshot(t, pool, id), "nor does what River flushes at the end")
}

// LF-04, NO-01, RV-05: kill -9 three times in a row; each try is recorded with its owner, none counts as a failure.
func TestRun_KilledThreeTimesAndSentByTheFourth(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	client, err := jobs.NewClient(pgtest.Connect(t, url), nil)
	require.NoError(t, err)
	held, behave := holding(3, make(chan struct{}))
	sink, err := smtpsink.Start(smtpsink.Config{Behaviour: behave})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, sink.Close()) })
	var id jobs.RunID
	for n := range 3 {
		w := startWorker(t, url, sink.Addr())
		if n == 0 {
			id = notify(t, client, "killed@example.com")
		}
		owner(t, client, id, w)
		eventually(t, "the server holds the mail", func() bool { return int(held.Load()) == n+1 })
		w.signal(syscall.SIGKILL)
		require.Error(t, w.exited(5*time.Second))
		eventually(t, "gone", func() bool { return sink.Conns() == 0 })
	}
	startWorker(t, url, sink.Addr())
	run, err := client.Wait(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, jobs.StatusSent, run.Status)
	require.Zero(t, run.Failures)
	require.Equal(t, 1, sink.Count())
	tries, err := client.Tries(t.Context(), id)
	require.NoError(t, err)
	require.Len(t, tries, 3)
	owners := map[string]bool{}
	for _, try := range tries {
		require.Equal(t, "reaped", try.How)
		owners[try.Owner] = true
	}
	require.Len(t, owners, 3)
}

// R5, RV-12: SIGTERM while a mail server is silent before anything was sent: the run is handed over, taken up at once,
// and no failure is counted.
func TestRun_SIGTERMHandsOverWhatWasNotSent(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	client, err := jobs.NewClient(pgtest.Connect(t, url), nil)
	require.NoError(t, err)
	sink, err := smtpsink.Start(smtpsink.Config{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, sink.Close()) })
	silent := silentFirst(t, sink.Addr())

	a, b := startWorker(t, url, silent, "WEIR_DELIVERY_LEASE=30s"), startWorker(t, url, silent, "WEIR_DELIVERY_LEASE=30s")
	id := notify(t, client, "handed@example.com")
	first := owner(t, client, id, a, b)
	first.signal(syscall.SIGTERM)
	began := time.Now()
	require.NoError(t, first.exited(10*time.Second))
	run, err := client.Wait(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, jobs.StatusSent, run.Status)
	require.Less(t, time.Since(began), 10*time.Second, "the lease is 30 s: nobody waited for it")
	require.Zero(t, run.Failures)
	require.Zero(t, run.Reaps)
	tries, err := client.Tries(t.Context(), id)
	require.NoError(t, err)
	require.Len(t, tries, 1)
	require.Equal(t, "released", tries[0].How)
	require.Equal(t, 1, sink.Count())
}

// silentFirst accepts a first connection and never answers it; later ones reach addr.
func silentFirst(t *testing.T, addr string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	var n atomic.Int32
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				if n.Add(1) == 1 {
					_, _ = io.Copy(io.Discard, c)
					return
				}
				up, err := net.Dial("tcp", addr)
				if err != nil {
					return
				}
				defer up.Close()
				go func() { _, _ = io.Copy(up, c) }()
				_, _ = io.Copy(c, up)
			}()
		}
	}()
	return l.Addr().String()
}

// The faces of the demo: exit 0, twice in a row, and exactly the keys that other tools rely on.
func TestDemo_OnceTwiceInARow(t *testing.T) {
	t.Parallel()
	for range 2 {
		cmd := exec.Command(os.Args[0], "demo", "--once", "--json", "--port", "0")
		cmd.Env = append(os.Environ(), asWorker+"=1", "DATABASE_URL=")
		var stderr strings.Builder
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		require.NoError(t, err, stderr.String())
		var report struct {
			Runs []struct {
				ID, Kind, Status         string
				Attempt, Failures, Reaps *int
				Receipts                 []map[string]any
			}
			MailsReceived *float64 `json:"mails_received"`
			Takeovers     *float64
			OK            *bool
		}
		require.NoError(t, json.Unmarshal(out, &report), string(out))
		require.True(t, *report.OK)
		require.EqualValues(t, 4, *report.MailsReceived)
		require.GreaterOrEqual(t, *report.Takeovers, 2.0)
		statuses := map[string]int{}
		for _, r := range report.Runs {
			statuses[r.Status]++
			require.NotNil(t, r.Attempt)
			require.NotNil(t, r.Failures)
			require.NotNil(t, r.Reaps)
			require.Len(t, r.Receipts, map[string]int{"delivery": 1, "branch_reset": 2, "plan": 3}[r.Kind])
		}
		require.Equal(t, map[string]int{"sent": 4, "dead": 1, "succeeded": 1, "executed": 1}, statuses)
	}
}

func runMain(t *testing.T, env []string, args ...string) (string, int) {
	t.Helper()
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(append(os.Environ(), asWorker+"=1"), env...)
	out, err := cmd.CombinedOutput()
	if err == nil {
		return string(out), 0
	}
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit)
	return string(out), exit.ExitCode()
}

// A slip of the hand does not delete work that is still to be done.
func TestMigrateDown_RefusesWhileRunsAreNotFinished(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	pool := pgtest.Connect(t, url)
	client, err := jobs.NewClient(pool, nil)
	require.NoError(t, err)
	id := notify(t, client, "ada@example.com")
	env := []string{"DATABASE_URL=" + url}
	out, code := runMain(t, env, "migrate", "down")
	require.Equal(t, 1, code)
	require.Contains(t, out, "--force")
	require.NoError(t, client.Cancel(t.Context(), id))
	out, code = runMain(t, env, "migrate", "down")
	require.Zero(t, code, out)
	out, code = runMain(t, env, "migrate", "up")
	require.Zero(t, code, out)
	out, code = runMain(t, env, "migrate", "status")
	require.Zero(t, code)
	require.NotContains(t, out, " no\n")
}

func TestMigrate_SaysThatThereIsNothingToDo(t *testing.T) {
	t.Parallel()
	out, code := runMain(t, []string{"DATABASE_URL=" + pgtest.URL(t)}, "migrate", "up")
	require.Zero(t, code, out)
	require.Contains(t, out, "all are applied already")
	out, code = runMain(t, []string{"DATABASE_URL=" + pgtest.Empty(t)}, "migrate", "down")
	require.Zero(t, code, out)
	require.Contains(t, out, "nothing to roll back")
}

func TestWorker_AWrongCommandLineIsStatus2(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{}, {"rum"}, {"run", "--pool-sise=8"}} {
		out, code := runMain(t, nil, args...)
		require.Equal(t, 2, code, out)
	}
}

// A setting that is misspelt has its default, and nobody would know.
func TestRun_NamesVariablesThatNoCommandKnows(t *testing.T) {
	t.Parallel()
	out, code := runMain(t, []string{"DATABASE_URL=" + pgtest.Empty(t), "WEIR_RETENTON=hunter2", "WEIR_VIEWERS=ada", "WEIR_HTTP_ADDR=off"}, "run")
	require.Equal(t, 1, code, "it is not migrated")
	require.Contains(t, out, `"variables":["WEIR_RETENTON"]`)
	require.NotContains(t, out, "hunter2")
}

// All faults at once, each with its variable and its bound, and no secret.
func TestRun_NamesEveryFaultOfItsConfiguration(t *testing.T) {
	t.Parallel()
	out, code := runMain(t, []string{
		"DATABASE_URL=hunter2", "WEIR_POOL_SIZE=x", "WEIR_RETENTION_OF=plan=1h,plan", "WEIR_DELIVERY_LEASE=1h2", "WEIR_SMTP_HOST=h", "WEIR_SMTP_FROM=bad",
		"WEIR_SMTP_USERNAME=u", "WEIR_SMTP_PORT=0", "RIVER_SCHEMA=bad name",
	}, "run")
	require.Equal(t, 2, code)
	for _, variable := range []string{
		"DATABASE_URL", "WEIR_POOL_SIZE", "WEIR_RETENTION_OF", "WEIR_DELIVERY_LEASE", "WEIR_SMTP_FROM", "WEIR_SMTP_PASSWORD", "WEIR_SMTP_PORT", "RIVER_SCHEMA",
	} {
		require.Contains(t, out, variable+" = ")
	}
	require.NotContains(t, out, "hunter2")
}

// The demo on a database that somebody uses takes none of that one's mail.
func TestDemo_LeavesTheMailOfAnotherApplicationAlone(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	client, err := jobs.NewClient(pgtest.Connect(t, url), nil)
	require.NoError(t, err)
	id := notify(t, client, "customer@example.com")
	out, code := runMain(t, []string{"DATABASE_URL=" + url}, "demo", "--once", "--port", "0")
	require.Zero(t, code, out)
	run, err := client.Get(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, jobs.StatusPending, run.Status)
	require.Zero(t, run.Attempt)
}
