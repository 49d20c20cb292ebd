//go:build linux

package clocks_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/internal/postgres/pgtest"
	"github.com/weirqueue/weir/internal/smtpsink"
	"github.com/weirqueue/weir/jobs"
)

// world is a database, a mail server, and the processes that deliver from one to the other.
type world struct {
	t      *testing.T
	url    string
	pool   *pgxpool.Pool
	client *jobs.Client
	sink   *smtpsink.Sink
	// release lets go the mails to recipients that begin with the key.
	release map[string]chan struct{}
}

// newWorld has a mail server that holds the mails to "slow…" and "orphan…" at first, refuses each "twice…" once, and takes
// a moment for each, so that every process gets some.
func newWorld(t *testing.T, url string) *world {
	t.Helper()
	w := &world{t: t, url: url, pool: pgtest.Connect(t, url), release: map[string]chan struct{}{
		"slow": make(chan struct{}), "orphan": make(chan struct{}),
	}}
	_, err := w.pool.Exec(t.Context(), "create table process (pid int, now timestamptz, river text)")
	require.NoError(t, err)
	w.client, err = jobs.NewClient(w.pool, nil)
	require.NoError(t, err)
	w.sink, err = smtpsink.Start(smtpsink.Config{Behaviour: func(a smtpsink.Attempt) smtpsink.Action {
		for begins, release := range w.release {
			if strings.HasPrefix(a.To, begins) {
				return smtpsink.Hold(release)
			}
		}
		time.Sleep(30 * time.Millisecond)
		if strings.HasPrefix(a.To, "twice") && a.N == 1 {
			return smtpsink.Refuse(451, "4.3.0", "later")
		}
		return smtpsink.Accept()
	}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, w.sink.Close()) })
	return w
}

// process is one of the fleet.
type process struct {
	cmd   *exec.Cmd
	done  chan error
	river string // its name among River's leaders
}

// start starts a process whose clock is ahead, and waits until it has said so.
func (w *world) start(by time.Duration) *process {
	w.t.Helper()
	p := &process{cmd: exec.Command(os.Args[0]), done: make(chan error, 1)}
	p.cmd.Env = append(os.Environ(), asWorker+"="+w.url, smtpAddr+"="+w.sink.Addr(), ahead+"="+by.String())
	p.cmd.Stderr = os.Stderr
	require.NoError(w.t, p.cmd.Start())
	go func() { p.done <- p.cmd.Wait(); close(p.done) }()
	w.t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.done
	})
	var now time.Time
	w.eventually("a process of the fleet", func() bool {
		return w.pool.QueryRow(w.t.Context(), "select now, river from process where pid = $1", p.cmd.Process.Pid).Scan(&now, &p.river) == nil
	})
	require.InDelta(w.t, by.Seconds(), time.Until(now).Seconds(), 10, "the process's clock")
	return p
}

// stop ends a process in order.
func (w *world) stop(p *process) {
	w.t.Helper()
	require.NoError(w.t, p.cmd.Process.Signal(syscall.SIGTERM))
	require.NoError(w.t, <-p.done)
}

// notify sends one mail to each.
func (w *world) notify(opts *jobs.Opts, to ...string) (ids []jobs.RunID) {
	w.t.Helper()
	n := jobs.Notification{Subject: "s", Text: "t"}
	for _, name := range to {
		n.To = append(n.To, jobs.Email(name+"@example.com"))
	}
	res, err := w.client.Notify(w.t.Context(), n, opts)
	require.NoError(w.t, err)
	for _, r := range res.Runs {
		ids = append(ids, r.ID)
	}
	return ids
}

func (w *world) get(id jobs.RunID) *jobs.Run {
	w.t.Helper()
	run, err := w.client.Get(w.t.Context(), id)
	require.NoError(w.t, err)
	return run
}

// sent waits until the runs are.
func (w *world) sent(ids ...jobs.RunID) (runs []*jobs.Run) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), 40*time.Second)
	defer cancel()
	for _, id := range ids {
		run, err := w.client.Wait(ctx, id)
		require.NoError(w.t, err, "last seen: %+v", run)
		require.Equal(w.t, jobs.StatusSent, run.Status)
		runs = append(runs, run)
	}
	return runs
}

// owned waits until somebody owns the run, and returns it.
func (w *world) owned(id jobs.RunID) (run *jobs.Run) {
	w.t.Helper()
	w.eventually("owned", func() bool {
		run = w.get(id)
		return run.LeaseOwner != ""
	})
	return run
}

func (p *process) owns(run *jobs.Run) bool {
	return strings.Contains(run.LeaseOwner, fmt.Sprintf(":%d:", p.cmd.Process.Pid))
}

// keeps requires that the run stays with its owner for some leases.
func (w *world) keeps(run *jobs.Run) {
	w.t.Helper()
	for until := time.Now().Add(3 * lease); time.Now().Before(until); time.Sleep(50 * time.Millisecond) {
		now := w.get(run.ID)
		require.Equal(w.t, run.LeaseOwner, now.LeaseOwner, w.story(run.ID))
		require.Equal(w.t, run.Attempt, now.Attempt, w.story(run.ID))
	}
}

// story is all that is known of a run, for who must find out what happened.
func (w *world) story(id jobs.RunID) string {
	w.t.Helper()
	return value[string](w, `select jsonb_pretty(jsonb_build_object('now', clock_timestamp(),
		'run', (select to_jsonb(r) from weir.run r where id = $1), 'tries', (select jsonb_agg(e) from weir.ended_try e where run_id = $1),
		'jobs', (select jsonb_agg(to_jsonb(j) - 'args' - 'metadata') from river_job j where args ->> 'run_id' = $1::text)))`, id.String())
}

// now is the time by the database's clock.
func (w *world) now() time.Time {
	w.t.Helper()
	return value[time.Time](w, "select clock_timestamp()")
}

func value[T any](w *world, sql string, args ...any) (v T) {
	w.t.Helper()
	require.NoError(w.t, w.pool.QueryRow(w.t.Context(), sql, args...).Scan(&v), sql)
	return v
}

// rungAgain is how many doorbells the sweep has replaced.
func (w *world) rungAgain() int {
	w.t.Helper()
	return value[int](w, "select count(*) from river_job where exists (select from unnest(errors) e where e ->> 'error' like 'rung again%')")
}

// settled requires that all mails were taken once, nothing was taken over but the reaped, and that River gave up no job
// but those that Weir itself retired.
func (w *world) settled(mails, reaped int) {
	w.t.Helper()
	require.Equal(w.t, mails, w.sink.Count(), "mails")
	require.Equal(w.t, mails, value[int](w, "select count(*) from weir.run where status = 'sent'"))
	require.Equal(w.t, reaped, value[int](w, "select count(*) from weir.ended_try where how = 'reaped'"), "takeovers")
	require.Zero(w.t, value[int](w, "select count(*) from weir.run where status in ('dead', 'failed')"))
	require.Zero(w.t, value[int](w, `select count(*) from river_job where state in ('discarded', 'cancelled') and not exists (
		select from unnest(errors) e where e ->> 'error' like 'rung again%' or e ->> 'error' = 'lease expired')`))
}

func (w *world) eventually(what string, ok func() bool) {
	w.t.Helper()
	require.Eventually(w.t, ok, 30*time.Second, 10*time.Millisecond, what)
}

// names are n recipients that begin with a word.
func names(word string, n int) (list []string) {
	for i := range n {
		list = append(list, fmt.Sprintf("%s%d", word, i))
	}
	return list
}
