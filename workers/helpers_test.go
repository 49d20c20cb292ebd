package workers_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/jobs"
	"github.com/weirqueue/weir/workers"
	"github.com/weirqueue/weir/workers/channel"
)

// fake is a channel that does what a test says and counts its sends. The address says who is meant.
type fake struct {
	effect channel.Effect
	// do is called with how often this run was sent before, plus one. Nil takes every message.
	do func(ctx context.Context, m channel.Message, n int) (channel.Sent, error)

	mu    sync.Mutex
	sends map[string]int
}

func (f *fake) Effect() channel.Effect {
	if f.effect == "" {
		return channel.AtLeastOnce
	}
	return f.effect
}

func (f *fake) Send(ctx context.Context, m channel.Message) (channel.Sent, error) {
	f.mu.Lock()
	if f.sends == nil {
		f.sends = map[string]int{}
	}
	f.sends[m.RunID]++
	n := f.sends[m.RunID]
	f.mu.Unlock()
	if f.do == nil {
		return channel.Sent{ExternalRef: "<" + m.RunID + ">"}, nil
	}
	return f.do(ctx, m, n)
}

func (f *fake) sent(id jobs.RunID) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.sends[id.String()]
}

// taken is what a provider answers that took the message.
func taken() (channel.Sent, error) { return channel.Sent{ExternalRef: "<ok>"}, nil }

// observed records what a process observes.
type observed struct {
	mu   sync.Mutex
	list []workers.Event
}

func (e *observed) Observe(_ context.Context, event workers.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.list = append(e.list, event)
}

// of returns the events of one type.
func of[T workers.Event](e *observed) []T {
	e.mu.Lock()
	defer e.mu.Unlock()
	var out []T
	for _, event := range e.list {
		if x, ok := event.(T); ok {
			out = append(out, x)
		}
	}
	return out
}

// notClaimed lists the reasons why doorbells of a run were not answered by a claim.
func (e *observed) notClaimed(id jobs.RunID) []string {
	var out []string
	for _, x := range of[workers.RunNotClaimed](e) {
		if x.Run == id {
			out = append(out, x.Reason)
		}
	}
	return out
}

// quickConfig has leases of two seconds, and everything else in proportion.
func quickConfig(ch channel.Channel, changes ...func(*workers.Config)) *workers.Config {
	cfg := &workers.Config{
		Channels: map[string]channel.Channel{"email": ch},
		Delivery: workers.DeliveryConfig{
			Lease: 2 * time.Second, StepTime: 20 * time.Second, MaxWorkers: 20,
			Backoff: workers.Backoff{First: 20 * time.Millisecond, Max: 50 * time.Millisecond},
		},
		ReaperInterval: 200 * time.Millisecond, DoorbellGrace: 3 * time.Second, ShutdownGrace: 200 * time.Millisecond,
		FetchPollInterval: 50 * time.Millisecond, Logger: slog.New(slog.DiscardHandler),
	}
	for _, change := range changes {
		change(cfg)
	}
	return cfg
}

// process is a process of the fleet inside the test.
type process struct {
	*workers.Fleet
	events *observed
	// stop ends it, once, and returns what Run returned.
	stop func() error
}

func start(t testing.TB, pool *pgxpool.Pool, cfg *workers.Config) *process {
	t.Helper()
	p := &process{events: &observed{}}
	cfg.Observer = p.events
	var err error
	p.Fleet, err = workers.New(pool, cfg)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	p.stop = sync.OnceValue(func() error {
		cancel()
		return <-done
	})
	t.Cleanup(func() { _ = p.stop() })
	require.NoError(t, eventually(func() bool { return p.Healthy() == nil || len(done) > 0 }), "start")
	return p
}

// eventually polls until ok, for at most 30 seconds.
func eventually(ok func() bool) error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(30 * time.Second)
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			return fmt.Errorf("did not happen within 30 s")
		}
	}
	return nil
}

// never asserts that something stays true for d.
func never(t testing.TB, d time.Duration, what string, happened func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(d)
	for {
		select {
		case <-tick.C:
			require.False(t, happened(), what)
		case <-deadline:
			return
		}
	}
}

func newClient(t testing.TB, pool *pgxpool.Pool) *jobs.Client {
	t.Helper()
	client, err := jobs.NewClient(pool, nil)
	require.NoError(t, err)
	return client
}

// notify enqueues one delivery, to an address that names the test's case.
func notify(t testing.TB, client *jobs.Client, name string, opts *jobs.Opts) jobs.RunID {
	t.Helper()
	res, err := client.Notify(context.Background(), jobs.Notification{To: []jobs.Recipient{jobs.Email(name + "@example.com")}, Text: "x"}, opts)
	require.NoError(t, err)
	return res.Runs[0].ID
}

func get(t testing.TB, client *jobs.Client, id jobs.RunID) *jobs.Run {
	t.Helper()
	run, err := client.Get(context.Background(), id)
	require.NoError(t, err)
	return run
}

// until waits until the run is as wanted.
func until(t testing.TB, client *jobs.Client, id jobs.RunID, what string, ok func(*jobs.Run) bool) *jobs.Run {
	t.Helper()
	var run *jobs.Run
	err := eventually(func() bool {
		var err error
		run, err = client.Get(context.Background(), id)
		return err == nil && ok(run)
	})
	require.NoError(t, err, "run is not %s: %+v", what, run)
	return run
}

func untilStatus(t testing.TB, client *jobs.Client, id jobs.RunID, status jobs.Status) *jobs.Run {
	t.Helper()
	return until(t, client, id, string(status), func(r *jobs.Run) bool { return r.Status == status })
}

// outcomes are a run's receipts as "outcome attempt".
func outcomes(t testing.TB, client *jobs.Client, id jobs.RunID) []string {
	t.Helper()
	list, err := client.Receipts(context.Background(), id)
	require.NoError(t, err)
	out := []string{}
	for _, r := range list {
		out = append(out, fmt.Sprintf("%s %d", r.Outcome, r.Attempt))
	}
	return out
}

// hows are how a run's tries ended.
func hows(t testing.TB, client *jobs.Client, id jobs.RunID) []string {
	t.Helper()
	list, err := client.Tries(context.Background(), id)
	require.NoError(t, err)
	out := []string{}
	for _, x := range list {
		out = append(out, x.How)
	}
	return out
}

type db interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

func value[T any](t testing.TB, db db, sql string, args ...any) T {
	t.Helper()
	var v T
	require.NoError(t, db.QueryRow(context.Background(), sql, args...).Scan(&v), sql)
	return v
}

func execSQL(t testing.TB, pool *pgxpool.Pool, sql string, args ...any) {
	t.Helper()
	_, err := pool.Exec(context.Background(), sql, args...)
	require.NoError(t, err, sql)
}

// riverJob is a run's River job as River shows it.
type riverJob struct {
	ID      int64
	State   string
	Snoozes int
	Errors  string
	DueIn   float64
}

func jobByID(t testing.TB, pool *pgxpool.Pool, id int64) riverJob {
	t.Helper()
	j := riverJob{ID: id}
	require.NoError(t, pool.QueryRow(context.Background(), `select state, coalesce((metadata ->> 'snoozes')::int, 0), coalesce(errors::text, ''),
		extract(epoch from scheduled_at - clock_timestamp())::float8 from river_job where id = $1`, id).Scan(&j.State, &j.Snoozes, &j.Errors, &j.DueIn))
	return j
}

// untilJob waits until a River job is in one of the states: River writes what a worker returned some time later.
func untilJob(t testing.TB, pool *pgxpool.Pool, id int64, states ...string) riverJob {
	t.Helper()
	var j riverJob
	err := eventually(func() bool {
		j = jobByID(t, pool, id)
		return slices.Contains(states, j.State)
	})
	require.NoError(t, err, "job is not %v: %+v", states, j)
	return j
}
