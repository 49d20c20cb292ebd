package workers_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/internal/postgres/pgtest"
	"github.com/weirqueue/weir/jobs"
	"github.com/weirqueue/weir/workers"
	"github.com/weirqueue/weir/workers/channel"
)

// NO-08: always positive, capped and jittered, however often it failed.
func TestBackoff_PositiveCappedJittered(t *testing.T) {
	t.Parallel()
	for _, b := range []workers.Backoff{
		{First: 30 * time.Second, Max: time.Hour},
		{First: time.Millisecond, Max: time.Millisecond},
		{First: time.Millisecond, Max: 30 * 24 * time.Hour},
		{First: 24 * time.Hour, Max: 30 * 24 * time.Hour},
		{},
		{First: 1<<63 - 1, Max: 1<<63 - 1},
	} {
		for failures := -1; failures <= 200; failures++ {
			seen := map[time.Duration]bool{}
			for range 20 {
				d := b.Delay(failures)
				require.GreaterOrEqual(t, d, min(time.Second, b.First), "%+v after %d", b, failures)
				require.LessOrEqual(t, d, max(b.Max, min(time.Second, b.First)), "%+v after %d", b, failures)
				seen[d] = true
			}
			if b.First >= 2*time.Second {
				require.Greater(t, len(seen), 10, "%+v after %d: not jittered", b, failures)
			}
		}
	}
}

// NO-07: the delay counts from the moment when the failure is written, not from the claim, by the database's clock.
func TestRetry_DelayCountsFromTheFailure(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	client := newClient(t, pool)
	start(t, pool, quickConfig(&fake{do: func(ctx context.Context, _ channel.Message, _ int) (channel.Sent, error) {
		<-time.After(1500 * time.Millisecond)
		return channel.Sent{}, channel.Temporary("smtp_451", errors.New("slow"))
	}}, func(c *workers.Config) {
		c.Delivery.Backoff = workers.Backoff{First: time.Second, Max: time.Second}
	}))
	id := notify(t, client, "x", nil)
	until(t, client, id, "failed once", func(r *jobs.Run) bool { return r.Failures == 1 })
	delay := value[float64](t, pool, `select extract(epoch from r.next_attempt_at - t.ended_at)::float8
		from weir.run r join weir.ended_try t on t.run_id = r.id where t.how = 'failed' order by t.attempt limit 1`)
	require.InDelta(t, 1, delay, 0.1)
}

// NO-06, EM-04: being asked to come back later is no failure, however often; wrong settings of our own neither.
func TestRetry_ComeBackLaterIsNoFailure(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	client := newClient(t, pool)
	ch := &fake{do: func(_ context.Context, m channel.Message, n int) (channel.Sent, error) {
		switch {
		case n > 40:
			return taken()
		case strings.HasPrefix(m.Address, "throttled"):
			return channel.Sent{}, channel.Throttled(time.Millisecond, "smtp_421", errors.New("later"))
		}
		return channel.Sent{}, channel.Misconfigured("smtp_535", errors.New("wrong password"))
	}}
	p := start(t, pool, quickConfig(ch, func(c *workers.Config) {
		c.Delivery.Backoff = workers.Backoff{First: time.Millisecond, Max: 2 * time.Millisecond}
	}))
	for _, name := range []string{"throttled", "misconfigured"} {
		id := notify(t, client, name, &jobs.Opts{MaxAttempts: 1})
		run := untilStatus(t, client, id, jobs.StatusSent)
		require.Equal(t, []int{0, 41}, []int{run.Failures, ch.sent(id)}, name)
		require.Empty(t, run.ErrorCode)
		tries, err := client.Tries(t.Context(), id)
		require.NoError(t, err)
		require.Len(t, tries, 40)
		require.Equal(t, "snoozed", tries[0].How)
	}
	require.Len(t, of[workers.Misconfigured](p.events), 40, "operators are told")
}

// NO-06: throttling has its own limit, after which it counts.
func TestRetry_ThrottleLimit(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	client := newClient(t, pool)
	start(t, pool, quickConfig(&fake{do: func(context.Context, channel.Message, int) (channel.Sent, error) {
		return channel.Sent{}, channel.Throttled(time.Millisecond, "smtp_421", errors.New("later"))
	}}, func(c *workers.Config) { c.Delivery.ThrottleLimit = time.Second }))
	id := notify(t, client, "x", &jobs.Opts{MaxAttempts: 2})
	run := untilStatus(t, client, id, jobs.StatusDead)
	require.Equal(t, []any{2, "smtp_421"}, []any{run.Failures, run.ErrorCode})
	require.Greater(t, run.FinishedAt.Sub(run.CreatedAt), time.Second)
	require.Contains(t, hows(t, client, id), "snoozed")
}

// NO-05: dead after the last failure; a redrive gives it a whole new budget, twice, and then it goes.
func TestRetry_DeadAndRedriven(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	client := newClient(t, pool)
	ch := &fake{do: func(_ context.Context, m channel.Message, n int) (channel.Sent, error) {
		if n <= 6 {
			return channel.Sent{}, channel.Temporary("smtp_451", errors.New("down"))
		}
		return taken()
	}}
	start(t, pool, quickConfig(ch))
	id := notify(t, client, "x", &jobs.Opts{MaxAttempts: 3})
	for i := 1; i <= 2; i++ {
		run := untilStatus(t, client, id, jobs.StatusDead)
		require.Equal(t, []int{3, 3 * i}, []int{run.Failures, ch.sent(id)})
		require.NoError(t, client.Redrive(t.Context(), id))
	}
	run := untilStatus(t, client, id, jobs.StatusSent)
	require.Zero(t, run.Failures)
	require.Len(t, hows(t, client, id), 6, "history stays")
	require.EqualValues(t, 6*2+2+1, run.Attempt, "each claim, failure and redrive raised it")
}

// NO-10: a dead host that holds every send does not keep a healthy channel waiting.
func TestRetry_DeadHostDoesNotBlockAHealthyChannel(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	client := newClient(t, pool)
	hangs := &fake{do: func(ctx context.Context, _ channel.Message, _ int) (channel.Sent, error) {
		<-ctx.Done()
		return channel.Sent{}, ctx.Err()
	}}
	healthy := &fake{}
	n := jobs.Notification{Text: "x"}
	for i := range 500 {
		n.To = append(n.To, jobs.Recipient{Channel: "chat", Address: string(rune('a'+i%26)) + time.Duration(i).String()})
	}
	_, err := client.Notify(t.Context(), n, nil)
	require.NoError(t, err)
	p := start(t, pool, quickConfig(healthy, func(c *workers.Config) { c.Channels["chat"] = hangs }))
	require.NoError(t, eventually(func() bool { return p.Held() == 10 }), "half of the 20 workers hang")
	began := time.Now()
	id := notify(t, client, "x", nil)
	untilStatus(t, client, id, jobs.StatusSent)
	require.Less(t, time.Since(began), 5*time.Second)
	require.Equal(t, 10, p.Held())
	require.Empty(t, of[workers.DoorbellsRung](p.events), "a backlog that waits for capacity is not rung again")
}
