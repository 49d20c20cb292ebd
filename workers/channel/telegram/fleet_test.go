package telegram_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weirqueue/weir/internal/postgres/pgtest"
	"github.com/weirqueue/weir/jobs"
	"github.com/weirqueue/weir/workers"
	"github.com/weirqueue/weir/workers/channel"
	"github.com/weirqueue/weir/workers/channel/telegram"
)

// The test binary is also the worker process of the test that kills one.
const (
	asWorker = "WEIR_TEST_TELEGRAM_DATABASE"
	asServer = "WEIR_TEST_TELEGRAM_SERVER"
)

func TestMain(m *testing.M) {
	if url := os.Getenv(asWorker); url != "" {
		if err := work(url, os.Getenv(asServer)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	code := m.Run()
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func work(url, server string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return err
	}
	defer pool.Close()
	c, err := telegram.New(telegram.Config{Token: token, ServerURL: server, ChatInterval: time.Millisecond})
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	fleet, err := workers.New(pool, fleetConfig(c))
	if err != nil {
		return err
	}
	return fleet.Run(ctx)
}

func fleetConfig(c channel.Channel) *workers.Config {
	return &workers.Config{
		Channels: map[string]channel.Channel{"telegram": c},
		Delivery: workers.DeliveryConfig{
			Lease: 2 * time.Second, StepTime: 30 * time.Second, MaxWorkers: 20,
			Backoff: workers.Backoff{First: 20 * time.Millisecond, Max: 100 * time.Millisecond},
		},
		ReaperInterval: 200 * time.Millisecond, DoorbellGrace: time.Second, ShutdownGrace: time.Second,
		FetchPollInterval: 100 * time.Millisecond, Logger: slog.New(slog.DiscardHandler),
	}
}

// world is a database with a fleet on it.
type world struct {
	t      *testing.T
	pool   *pgxpool.Pool
	client *jobs.Client
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, pool: pgtest.Pool(t)}
	var err error
	w.client, err = jobs.NewClient(w.pool, nil)
	require.NoError(t, err)
	return w
}

// run starts a fleet in this process.
func (w *world) run(c channel.Channel, change func(*workers.Config)) *world {
	w.t.Helper()
	cfg := fleetConfig(c)
	if change != nil {
		change(cfg)
	}
	fleet, err := workers.New(w.pool, cfg)
	require.NoError(w.t, err)
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- fleet.Run(ctx) }()
	w.t.Cleanup(func() { stop(); <-done })
	return w
}

// paragraph fills most of a message, so that each paragraph becomes a part.
func paragraph(name string) string { return name + " " + strings.Repeat("🌊", 1500) }

// notify sends a message of as many parts as it has names.
func (w *world) notify(chat string, names ...string) jobs.RunID {
	w.t.Helper()
	paragraphs := make([]string, len(names))
	for i, name := range names {
		paragraphs[i] = paragraph(name)
	}
	res, err := w.client.Notify(w.t.Context(), jobs.Notification{To: []jobs.Recipient{jobs.Telegram(chat)}, Text: strings.Join(paragraphs, "\n\n")}, nil)
	require.NoError(w.t, err)
	return res.Runs[0].ID
}

func (w *world) wait(id jobs.RunID) *jobs.Run {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
	defer cancel()
	run, err := w.client.Wait(ctx, id)
	require.NoError(w.t, err, "last seen: %+v", run)
	return run
}

// receipts is "part_1 ok 5/1" for each.
func (w *world) receipts(id jobs.RunID) (lines []string) {
	w.t.Helper()
	list, err := w.client.Receipts(w.t.Context(), id)
	require.NoError(w.t, err)
	for _, r := range list {
		lines = append(lines, strings.TrimSpace(r.StepName+" "+r.Outcome+" "+r.ExternalRef))
		require.Equal(w.t, "at_least_once", r.Effect)
	}
	return lines
}

// names are the first words of what the fake took, in order.
func (f *fake) names() (names []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, m := range f.messages {
		name, _, _ := strings.Cut(m.Text, " ")
		names = append(names, name)
	}
	return names
}

func isPart(m taken, name string) bool { return strings.HasPrefix(m.Text, name+" ") }

func TestFleet_EachPartIsAStepWithItsReceipt(t *testing.T) { // TG-05
	t.Parallel()
	f := newFake(t)
	w := newWorld(t).run(f.open(t), nil)
	id := w.notify("5", "one", "two", "three")
	run := w.wait(id)
	require.Equal(t, jobs.StatusSent, run.Status)
	require.EqualValues(t, 1, run.Attempt, "one claim")
	require.Equal(t, []string{"one", "two", "three"}, f.names())
	require.Equal(t, []string{"part_1 ok 5/1", "part_2 ok 5/2", "part_3 ok 5/3"}, w.receipts(id))

	short := w.notify("6", "whole")
	require.Equal(t, jobs.StatusSent, w.wait(short).Status)
	require.Equal(t, []string{"send ok 6/4"}, w.receipts(short))
}

func TestFleet_ARetryGoesOnAtTheFirstPartThatWasNotSent(t *testing.T) { // TG-01: HTML 502
	t.Parallel()
	var failed atomic.Bool
	f := startFake(t, func(_ int, m taken) answer {
		if isPart(m, "three") && failed.CompareAndSwap(false, true) {
			return answer{status: 502, body: "<html>Bad Gateway</html>"}
		}
		return answer{}
	})
	w := newWorld(t).run(f.open(t), nil)
	id := w.notify("5", "one", "two", "three", "four")
	run := w.wait(id)
	require.Equal(t, jobs.StatusSent, run.Status)
	require.Equal(t, 1, run.Failures)
	require.Equal(t, []string{"one", "two", "three", "four"}, f.names(), "nothing is sent twice")
	require.Equal(t, []string{"part_1 ok 5/1", "part_2 ok 5/2", "part_3 ok 5/4", "part_4 ok 5/5"}, w.receipts(id))
	tries, err := w.client.Tries(t.Context(), id)
	require.NoError(t, err)
	require.Len(t, tries, 1)
	require.Equal(t, "unknown_outcome", tries[0].ErrorCode)
}

func TestFleet_ALostAnswerRepeatsItsPartAlone(t *testing.T) { // TG-06, NO-02
	t.Parallel()
	var lost atomic.Bool
	f := startFake(t, func(_ int, m taken) answer {
		return answer{take: true, reset: isPart(m, "two") && lost.CompareAndSwap(false, true)}
	})
	w := newWorld(t).run(f.open(t), nil)
	id := w.notify("5", "one", "two", "three")
	require.Equal(t, jobs.StatusSent, w.wait(id).Status)
	require.Equal(t, []string{"one", "two", "two", "three"}, f.names(), "one repetition for one lost answer")
}

func TestFleet_ARefusedPartEndsTheRunAndKeepsWhatIsSent(t *testing.T) { // TG-04
	t.Parallel()
	f := startFake(t, func(_ int, m taken) answer {
		if isPart(m, "two") {
			return refusal(403, "Forbidden: bot was blocked by the user", "")
		}
		return answer{}
	})
	w := newWorld(t).run(f.open(t), nil)
	id := w.notify("5", "one", "two", "three")
	run := w.wait(id)
	require.Equal(t, jobs.StatusFailed, run.Status)
	require.Equal(t, "telegram_403", run.ErrorCode)
	require.Equal(t, []string{"part_1 ok 5/1", "part_2 failed"}, w.receipts(id))

	f.mu.Lock()
	f.answer = func(int, taken) answer { return answer{} }
	f.mu.Unlock()
	require.NoError(t, w.client.Redrive(t.Context(), id))
	require.Equal(t, jobs.StatusSent, w.wait(id).Status)
	require.Equal(t, []string{"one", "two", "three"}, f.names(), "a redrive goes on, too")
}

func TestFleet_AKilledProcessIsSucceededAtThePartItWasIn(t *testing.T) { // NO-02, TG-06
	t.Parallel()
	begun := make(chan struct{})
	release := make(chan struct{})
	var first atomic.Bool
	f := startFake(t, func(_ int, m taken) answer {
		if isPart(m, "two") && first.CompareAndSwap(false, true) {
			return answer{take: true, reset: true, before: func() { close(begun); <-release }}
		}
		return answer{}
	})
	w := newWorld(t)
	process := exec.Command(os.Args[0])
	process.Env = append(os.Environ(), asWorker+"="+w.pool.Config().ConnString(), asServer+"="+f.URL)
	process.Stderr = os.Stderr
	require.NoError(t, process.Start())
	t.Cleanup(func() { _ = process.Process.Kill() })
	id := w.notify("5", "one", "two", "three")
	select {
	case <-begun:
	case <-time.After(time.Minute):
		t.Fatal("nobody began part two")
	}
	require.Equal(t, []string{"part_1 ok 5/1", "part_2 started"}, w.receipts(id))
	require.NoError(t, process.Process.Kill())
	_ = process.Wait()
	close(release)

	w.run(f.open(t), nil)
	run := w.wait(id)
	require.Equal(t, jobs.StatusSent, run.Status)
	require.Zero(t, run.Failures)
	require.Equal(t, []string{"one", "two", "two", "three"}, f.names(), "only what nobody knew about is sent again")
	require.Equal(t, []string{"part_1 ok 5/1", "part_2 ok 5/3", "part_3 ok 5/4"}, w.receipts(id))
}

func TestFleet_AThrottledChatDelaysNoOther(t *testing.T) { // TG-01, NO-10
	t.Parallel()
	f := startFake(t, func(_ int, m taken) answer {
		if m.Chat == "1" {
			return refusal(429, "Too Many Requests", `{"retry_after":35}`)
		}
		return answer{}
	})
	w := newWorld(t).run(f.open(t), nil)
	var flood []jobs.RunID
	for range 40 {
		flood = append(flood, w.notify("1", "flood"))
	}
	began := time.Now()
	other := w.notify("2", "one", "two")
	require.Equal(t, jobs.StatusSent, w.wait(other).Status)
	require.Less(t, time.Since(began), 10*time.Second)
	require.Eventually(t, func() bool {
		run, err := w.client.Get(t.Context(), flood[0])
		return err == nil && run.Status == jobs.StatusPending && run.ErrorCode != ""
	}, 30*time.Second, 20*time.Millisecond)
	var failures int
	var soonest time.Duration
	require.Eventually(t, func() bool {
		var waiting int
		require.NoError(t, w.pool.QueryRow(t.Context(), `select count(*) filter (where error_code in ('telegram_429', 'telegram_paced')), sum(failures),
			min(next_attempt_at - claimed_at) from weir.run where status = 'pending'`).Scan(&waiting, &failures, &soonest))
		// One may have been told to wait for its turn, before the chat was known to be throttled.
		return waiting == len(flood) && soonest > 20*time.Second
	}, 30*time.Second, 50*time.Millisecond, "nobody comes back before the time, and no claim is held meanwhile")
	require.Zero(t, failures, "NO-06: being told to wait is no failure")
	asked := 0
	for _, chat := range f.chats() {
		if chat == "1" {
			asked++
		}
	}
	require.Less(t, asked, 20, "once it is known, nobody asks again")
}

func TestFleet_ACancelIsHonouredBetweenParts(t *testing.T) { // NO-02
	t.Parallel()
	w := newWorld(t)
	var id atomic.Value
	f := startFake(t, func(_ int, m taken) answer {
		if !isPart(m, "two") {
			return answer{}
		}
		return answer{before: func() { _ = w.client.Cancel(context.WithoutCancel(t.Context()), id.Load().(jobs.RunID)) }}
	})
	id.Store(w.notify("5", "one", "two", "three"))
	w.run(f.open(t), nil)
	run := w.wait(id.Load().(jobs.RunID))
	require.Equal(t, jobs.StatusFailed, run.Status)
	require.Equal(t, "canceled", run.ErrorCode)
	require.Equal(t, []string{"one", "two"}, f.names())
	require.Equal(t, []string{"part_1 ok 5/1", "part_2 ok 5/2"}, w.receipts(id.Load().(jobs.RunID)))
}
