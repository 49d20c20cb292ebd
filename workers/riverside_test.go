package workers_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/internal/postgres/pgtest"
	"github.com/weirqueue/weir/jobs"
	"github.com/weirqueue/weir/workers"
	"github.com/weirqueue/weir/workers/channel"
)

// sender is a channel that is a function.
type sender func(ctx context.Context, m channel.Message) (channel.Sent, error)

func (sender) Effect() channel.Effect { return channel.AtLeastOnce }

func (f sender) Send(ctx context.Context, m channel.Message) (channel.Sent, error) { return f(ctx, m) }

// sea is a database with a fleet of one process in this one.
type sea struct {
	t      *testing.T
	pool   *pgxpool.Pool
	client *jobs.Client
	river  *river.Client[pgx.Tx]
	events *events
}

// sail starts a fleet whose one channel is f. change may change its configuration.
func sail(t *testing.T, pool *pgxpool.Pool, f sender, change func(*workers.Config)) *sea {
	t.Helper()
	s := &sea{t: t, pool: pool, events: &events{}}
	cfg := &workers.Config{
		Channels: map[string]channel.Channel{"fn": f},
		Delivery: workers.DeliveryConfig{
			Lease: 2 * time.Second, StepTime: time.Second, MaxWorkers: 20,
			Backoff: workers.Backoff{First: 20 * time.Millisecond, Max: 100 * time.Millisecond},
		},
		ReaperInterval: 200 * time.Millisecond, DoorbellGrace: time.Second, ShutdownGrace: time.Second,
		FetchPollInterval: 100 * time.Millisecond, Logger: slog.New(slog.DiscardHandler), Observer: s.events,
	}
	if change != nil {
		change(cfg)
	}
	fleet, err := workers.New(pool, cfg)
	require.NoError(t, err)
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- fleet.Run(ctx) }()
	t.Cleanup(func() { stop(); <-done })
	s.client, err = jobs.NewClient(pool, nil)
	require.NoError(t, err)
	s.river, err = river.NewClient(riverpgxv5.New(pool), &river.Config{Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	return s
}

func (s *sea) notify(subject string, opts *jobs.Opts) jobs.RunID {
	s.t.Helper()
	res, err := s.client.Notify(s.t.Context(), jobs.Notification{
		To: []jobs.Recipient{{Channel: "fn", Address: "somebody"}}, Subject: subject, Text: "t",
	}, opts)
	require.NoError(s.t, err)
	return res.Runs[0].ID
}

func (s *sea) wait(id jobs.RunID) *jobs.Run { return waitFor(s.t, s.client, id) }

// job is the River job that the run's doorbell names.
type job struct{ State, Errors string }

func (s *sea) job(id jobs.RunID) (j job) {
	s.t.Helper()
	require.NoError(s.t, s.pool.QueryRow(s.t.Context(), `select j.state, coalesce(j.errors::text, '')
		from weir.run r join river_job j on j.id = r.doorbell_id where r.id = $1`, id).Scan(&j.State, &j.Errors))
	return j
}

func (s *sea) eventually(what string, ok func() bool) {
	s.t.Helper()
	require.Eventually(s.t, ok, 30*time.Second, 10*time.Millisecond, what)
}

func (s *sea) jobIs(id jobs.RunID, state string) {
	s.t.Helper()
	s.eventually("River's job is "+state, func() bool { return s.job(id).State == state })
}

// events counts what a fleet observes.
type events struct {
	mu   sync.Mutex
	list []workers.Event
}

func (e *events) Observe(_ context.Context, event workers.Event) {
	e.mu.Lock()
	e.list = append(e.list, event)
	e.mu.Unlock()
}

func count[T workers.Event](e *events, which func(T) bool) (n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, event := range e.list {
		if x, ok := event.(T); ok && which(x) {
			n++
		}
	}
	return n
}

func all[T any](T) bool { return true }

// The table of what a worker does, of the design's doorbell rules, as far as one process shows it.
func TestRiver_ShowsHowATryEndedAndNoText(t *testing.T) {
	t.Parallel()
	var tries sync.Map
	s := sail(t, pgtest.Pool(t), func(_ context.Context, m channel.Message) (channel.Sent, error) {
		n, _ := tries.LoadOrStore(m.RunID, new(atomic.Int32))
		first := n.(*atomic.Int32).Add(1) == 1
		switch {
		case m.Subject == "refused":
			return channel.Sent{}, channel.Refused("smtp_550", errors.New("no such user ada@example.com"))
		case m.Subject == "dead":
			return channel.Sent{}, channel.Temporary("smtp_451", errors.New("ada@example.com is busy"))
		case m.Subject == "panics once" && first:
			panic("ada@example.com")
		}
		return channel.Sent{ExternalRef: "ref"}, nil
	}, nil)

	sent, refused, dead, panics := s.notify("sent", nil), s.notify("refused", nil), s.notify("dead", &jobs.Opts{MaxAttempts: 3}), s.notify("panics once", nil)
	require.Equal(t, jobs.StatusSent, s.wait(sent).Status)
	s.jobIs(sent, "completed")

	run := s.wait(refused)
	require.Equal(t, jobs.StatusFailed, run.Status)
	require.Equal(t, "smtp_550", run.ErrorCode)
	require.Contains(t, run.ErrorMessage, "ada@example.com", "the run's page shows the text")
	s.jobIs(refused, "cancelled")
	require.Contains(t, s.job(refused).Errors, "smtp_550")

	run = s.wait(dead)
	require.Equal(t, jobs.StatusDead, run.Status)
	require.Equal(t, 3, run.Failures)
	s.jobIs(dead, "cancelled")

	require.Equal(t, jobs.StatusSent, s.wait(panics).Status)
	history, err := s.client.Tries(t.Context(), panics)
	require.NoError(t, err)
	require.Len(t, history, 1)
	require.Contains(t, history[0].Error, "panic: ada@example.com")
	require.Contains(t, history[0].Error, "riverside_test.go", "the stack")
	s.jobIs(panics, "completed")

	var leaks int
	require.NoError(t, s.pool.QueryRow(t.Context(), "select count(*) from river_job j where to_jsonb(j)::text like '%ada@%'").Scan(&leaks))
	require.Zero(t, leaks, "River sees codes only")
}

// L7, UI-01: River UI offers to retry a finished job; the run answers from its receipts.
func TestRiver_RetryOfAFinishedJobSendsNothing(t *testing.T) {
	t.Parallel()
	var sends atomic.Int32
	s := sail(t, pgtest.Pool(t), func(context.Context, channel.Message) (channel.Sent, error) {
		sends.Add(1)
		return channel.Sent{}, nil
	}, nil)
	id := s.notify("x", nil)
	before := s.wait(id)
	s.jobIs(id, "completed")
	for range 3 {
		_, err := s.river.JobRetry(t.Context(), *before.DoorbellID)
		require.NoError(t, err)
		n := count(s.events, func(e workers.RunNotClaimed) bool { return e.Reason == "terminal" })
		s.eventually("answered", func() bool {
			return count(s.events, func(e workers.RunNotClaimed) bool { return e.Reason == "terminal" }) > n || s.job(id).State == "completed"
		})
		s.jobIs(id, "completed")
	}
	after, err := s.client.Get(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, before, after)
	require.EqualValues(t, 1, sends.Load())
}

// L8, PG-01: what PostgreSQL cannot store, and what nobody should read, is cleaned; the neighbours still complete.
func TestRiver_UnstorableErrorsAreCleanedAndNeighboursComplete(t *testing.T) {
	t.Parallel()
	texts := map[string]string{
		"nul": "a\x00b", "invalid": "a\xff\xfeb", "half a rune": "x\xf0\x9f\x98", "lone surrogate": "\xed\xa0\x80",
		"long": strings.Repeat("é", 1<<20), "secret": "dial postgres://u:hunter2@h/d and Authorization: Bearer abcdefghijkl",
	}
	s := sail(t, pgtest.Pool(t), func(_ context.Context, m channel.Message) (channel.Sent, error) {
		if text, ok := texts[m.Subject]; ok {
			return channel.Sent{}, channel.Refused("code"+text, errors.New(text))
		}
		return channel.Sent{ExternalRef: "r\x00\xff" + strings.Repeat("é", 1000)}, nil
	}, nil)
	var good, bad []jobs.RunID
	for name := range texts {
		bad = append(bad, s.notify(name, nil))
		good = append(good, s.notify("fine", nil))
	}
	for _, id := range good {
		require.Equal(t, jobs.StatusSent, s.wait(id).Status)
		s.jobIs(id, "completed")
	}
	for _, id := range bad {
		run := s.wait(id)
		require.Equal(t, jobs.StatusFailed, run.Status)
		require.LessOrEqual(t, len(run.ErrorMessage), 4096)
		require.NotContains(t, run.ErrorMessage, "hunter2")
		require.NotContains(t, run.ErrorMessage, "abcdefghijkl")
		s.jobIs(id, "cancelled")
	}
}

// NO-06: being throttled forty times burns no failure. EM-04: nor does a wrong setting of ours. Both have a limit.
func TestDelivery_PutOffBurnsNoFailureUpToALimit(t *testing.T) {
	t.Parallel()
	var throttled, misconfigured atomic.Int32
	s := sail(t, pgtest.Pool(t), func(_ context.Context, m channel.Message) (channel.Sent, error) {
		if m.Subject == "throttled" && throttled.Add(1) <= 40 {
			return channel.Sent{}, channel.Throttled(time.Millisecond, "smtp_421", errors.New("later"))
		}
		if m.Subject == "misconfigured" && misconfigured.Add(1) <= 3 {
			return channel.Sent{}, channel.Misconfigured("smtp_535", errors.New("wrong password"))
		}
		return channel.Sent{}, nil
	}, nil)
	a, b := s.notify("throttled", &jobs.Opts{MaxAttempts: 2}), s.notify("misconfigured", &jobs.Opts{MaxAttempts: 2})
	for _, id := range []jobs.RunID{a, b} {
		run := s.wait(id)
		require.Equal(t, jobs.StatusSent, run.Status)
		require.Zero(t, run.Failures)
	}
	require.Equal(t, 3, count(s.events, all[workers.Misconfigured]))

	limited := sail(t, pgtest.Pool(t), func(context.Context, channel.Message) (channel.Sent, error) {
		return channel.Sent{}, channel.Throttled(time.Millisecond, "smtp_421", errors.New("later"))
	}, func(c *workers.Config) { c.Delivery.ThrottleLimit = time.Second })
	run := limited.wait(limited.notify("x", &jobs.Opts{MaxAttempts: 2}))
	require.Equal(t, jobs.StatusDead, run.Status)
	require.Equal(t, 2, run.Failures)
}

// NO-05: redrive gives a dead delivery another life, and again.
func TestDelivery_RedriveOfADeadOneSendsIt(t *testing.T) {
	t.Parallel()
	var up atomic.Bool
	s := sail(t, pgtest.Pool(t), func(context.Context, channel.Message) (channel.Sent, error) {
		if up.Load() {
			return channel.Sent{}, nil
		}
		return channel.Sent{}, channel.NotSent("smtp_connect", errors.New("refused"))
	}, nil)
	id := s.notify("x", &jobs.Opts{MaxAttempts: 2})
	require.Equal(t, jobs.StatusDead, s.wait(id).Status)
	require.NoError(t, s.client.Redrive(t.Context(), id))
	s.eventually("dead again", func() bool {
		run, err := s.client.Get(t.Context(), id)
		require.NoError(t, err)
		return run.Status == jobs.StatusDead
	})
	up.Store(true)
	require.NoError(t, s.client.Redrive(t.Context(), id))
	if err := s.client.Redrive(t.Context(), id); err != nil { // a double click: it may be under way, or sent, by now
		require.ErrorIs(t, err, jobs.ErrState)
	}
	run := s.wait(id)
	require.Equal(t, jobs.StatusSent, run.Status)
	require.Zero(t, run.Failures)
	tries, err := s.client.Tries(t.Context(), id)
	require.NoError(t, err)
	require.Len(t, tries, 4, "the history is kept")
}
