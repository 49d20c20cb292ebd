package workers_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/internal/postgres/pgtest"
	"github.com/weirqueue/weir/jobs"
	"github.com/weirqueue/weir/workers"
	"github.com/weirqueue/weir/workers/channel"
)

// notifyMany enqueues deliveries that share jobs, to addresses that begin with their names.
func notifyMany(t testing.TB, client *jobs.Client, opts *jobs.Opts, names ...string) []jobs.RunID {
	t.Helper()
	params := make([]jobs.NotifyParams, len(names))
	for i, name := range names {
		params[i] = jobs.NotifyParams{Notification: jobs.Notification{To: []jobs.Recipient{jobs.Email(name + "@example.com")}, Text: "x"}, Opts: opts}
	}
	res, err := client.NotifyMany(context.Background(), params)
	require.NoError(t, err)
	ids := make([]jobs.RunID, len(res))
	for i, r := range res {
		require.NoError(t, r.Err)
		ids[i] = r.Runs[0].ID
	}
	return ids
}

func numbered(name string, n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("%s-%d", name, i)
	}
	return out
}

func untilAll(t testing.TB, pool *pgxpool.Pool, what, where string, n int) {
	t.Helper()
	got := 0
	err := eventually(func() bool {
		return pool.QueryRow(context.Background(), "select count(*)::int from weir.run where "+where).Scan(&got) == nil && got == n
	})
	require.NoError(t, err, "%s: %d of %d", what, got, n)
}

const chunkJobs = "select count(*)::int from river_job where kind = 'weir_delivery_chunk'"

// A chunk's job sends its runs, and shows how many were sent, go on and have ended; each that goes on has a job of its own,
// due when the run is.
func TestChunk_SendsAndShowsCounts(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	client := newClient(t, pool)
	ch := &fake{do: func(_ context.Context, m channel.Message, n int) (channel.Sent, error) {
		switch {
		case strings.HasPrefix(m.Address, "refused"):
			return channel.Sent{}, channel.Refused("smtp_550", errors.New("no such user"))
		case strings.HasPrefix(m.Address, "dead"), strings.HasPrefix(m.Address, "retried") && n < 3:
			return channel.Sent{}, channel.Temporary("smtp_451", errors.New("later"))
		case strings.HasPrefix(m.Address, "throttled") && n < 2:
			return channel.Sent{}, channel.Throttled(50*time.Millisecond, "smtp_421", errors.New("later"))
		}
		return taken()
	}}
	once := notifyMany(t, client, &jobs.Opts{MaxAttempts: 1}, "dead-0", "dead-1")
	names := append(numbered("good", 130), "refused-0", "retried-0", "retried-1", "throttled-0")
	ids := notifyMany(t, client, nil, names...)
	start(t, pool, quickConfig(ch, func(c *workers.Config) { c.DoorbellGrace = time.Minute })) // no sweep comes to help
	untilAll(t, pool, "sent", "status = 'sent'", 133)
	require.Equal(t, jobs.StatusFailed, get(t, client, ids[130]).Status)
	for _, id := range once {
		require.Equal(t, jobs.StatusDead, untilStatus(t, client, id, jobs.StatusDead).Status)
	}
	for i, id := range ids {
		run, want := get(t, client, id), 1
		switch {
		case strings.HasPrefix(names[i], "retried"):
			want = 3
		case strings.HasPrefix(names[i], "throttled"):
			want = 2
		}
		require.Equal(t, want, ch.sent(id), names[i])
		require.Equal(t, []string{fmt.Sprintf("%s %d", map[bool]string{true: "ok", false: "failed"}[run.Status == jobs.StatusSent], 2*want-1)}, outcomes(t, client, id), names[i])
	}
	require.Equal(t, 3, value[int](t, pool, chunkJobs))
	require.NoError(t, eventually(func() bool {
		return value[int](t, pool, chunkJobs+" and state = 'completed'") == 3
	}))
	var sum workers.ChunkCounts
	rows, err := pool.Query(t.Context(), "select (metadata -> 'output')::text from river_job where kind = 'weir_delivery_chunk'")
	require.NoError(t, err)
	for rows.Next() {
		var text string
		require.NoError(t, rows.Scan(&text))
		var c workers.ChunkCounts
		require.NoError(t, json.Unmarshal([]byte(text), &c))
		sum = workers.ChunkCounts{Sent: sum.Sent + c.Sent, Retried: sum.Retried + c.Retried, Failed: sum.Failed + c.Failed, Dead: sum.Dead + c.Dead, Other: sum.Other + c.Other}
	}
	require.NoError(t, rows.Err())
	require.Equal(t, workers.ChunkCounts{Sent: 130, Retried: 3, Failed: 1, Dead: 2}, sum)
	require.Equal(t, 3, value[int](t, pool, "select count(*)::int from river_job where kind = 'weir_delivery'"), "a job for each that goes on")
}

// A process owns no more runs than it sends at once, however long the chunks are, and a delivery with its own doorbell does
// not wait behind them.
func TestChunk_NeverHoards(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	client := newClient(t, pool)
	var now, most atomic.Int32
	goOn := make(chan struct{})
	ch := &fake{do: func(_ context.Context, m channel.Message, _ int) (channel.Sent, error) {
		if strings.HasPrefix(m.Address, "urgent") {
			return taken()
		}
		n := now.Add(1)
		defer now.Add(-1)
		for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
		}
		<-goOn
		return taken()
	}}
	notifyMany(t, client, nil, numbered("bulk", 250)...)
	start(t, pool, quickConfig(ch))
	untilAll(t, pool, "owned", "status = 'processing'", 18)
	urgent := notify(t, client, "urgent", nil)
	untilStatus(t, client, urgent, jobs.StatusSent)
	require.Equal(t, 18, value[int](t, pool, "select count(*)::int from weir.run where status = 'processing'"), "20 slots, 2 kept for others")
	close(goOn)
	untilAll(t, pool, "sent", "status = 'sent'", 251)
	require.LessOrEqual(t, most.Load(), int32(18))
}

// A chunk that waits for its turn is not rung again (D3), though it has been running for longer than the grace.
func TestChunk_AtWorkIsNotRungAgain(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	client := newClient(t, pool)
	goOn := make(chan struct{})
	p := start(t, pool, quickConfig(&fake{do: func(context.Context, channel.Message, int) (channel.Sent, error) {
		<-goOn
		return taken()
	}}, func(c *workers.Config) { c.DoorbellGrace = 500 * time.Millisecond }))
	notifyMany(t, client, nil, numbered("bulk", 60)...)
	untilAll(t, pool, "owned", "status = 'processing'", 18)
	never(t, 2*time.Second, "rung again", func() bool { return len(of[workers.DoorbellsRung](p.events)) > 0 })
	close(goOn)
	untilAll(t, pool, "sent", "status = 'sent'", 60)
	require.Zero(t, value[int](t, pool, "select count(*)::int from river_job where kind = 'weir_delivery'"))
	require.NoError(t, eventually(func() bool { return value[int](t, pool, chunkJobs+" and state = 'completed'") == 1 }))
	require.Equal(t, 60, value[int](t, pool, "select (metadata -> 'output' -> 'sent')::int from river_job where kind = 'weir_delivery_chunk'"))
}

// Cancelling a chunk's job in River cancels nothing, and what waited under it is rung for.
func TestChunk_CancelledInRiverCancelsNoRun(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	client := newClient(t, pool)
	goOn := make(chan struct{})
	p := start(t, pool, quickConfig(&fake{do: func(ctx context.Context, _ channel.Message, _ int) (channel.Sent, error) {
		select {
		case <-goOn:
			return taken()
		case <-ctx.Done():
			return channel.Sent{}, context.Cause(ctx)
		}
	}}, func(c *workers.Config) { c.DoorbellGrace = 500 * time.Millisecond }))
	notifyMany(t, client, nil, numbered("bulk", 40)...)
	untilAll(t, pool, "owned", "status = 'processing'", 18)
	_, err := p.River().JobCancel(t.Context(), value[int64](t, pool, "select id from river_job"))
	require.NoError(t, err)
	never(t, time.Second, "a run ended", func() bool {
		return value[int](t, pool, "select count(*)::int from weir.run where finished_at is not null") > 0
	})
	close(goOn)
	untilAll(t, pool, "sent", "status = 'sent'", 40)
}

// What this process cannot claim gets a doorbell of its own, for those who can.
func TestChunk_WhatItCannotClaimIsRungForAlone(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	client := newClient(t, pool)
	ids := notifyMany(t, client, nil, numbered("bulk", 10)...)
	execSQL(t, pool, "update weir.run set needs = needs || '{tomorrow}' where id = any($1::text[]::uuid[])", []string{ids[0].String(), ids[1].String()})
	execSQL(t, pool, "update weir.run set reaps = 2 where id = $1::text::uuid", ids[2].String())
	require.NoError(t, client.Cancel(t.Context(), ids[3]))
	start(t, pool, quickConfig(&fake{}))
	untilAll(t, pool, "sent", "status = 'sent'", 7)
	untilAll(t, pool, "blocked", "blocked_reason like '%tomorrow%' and doorbell_id in (select id from river_job where kind = 'weir_delivery')", 2)
	require.NoError(t, eventually(func() bool { return value[int](t, pool, chunkJobs+" and state = 'completed'") == 1 }))
	require.JSONEq(t, `{"sent": 6, "retried": 3, "failed": 0, "dead": 0, "other": 1}`,
		value[string](t, pool, "select (metadata -> 'output')::text from river_job where kind = 'weir_delivery_chunk'"))
}

// A process that stops leaves the rest of a chunk, and what it hands over, to the others, without a failure.
func TestChunk_ShutdownHandsOver(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	client := newClient(t, pool)
	first := start(t, pool, quickConfig(&fake{do: func(ctx context.Context, _ channel.Message, _ int) (channel.Sent, error) {
		<-ctx.Done()
		return channel.Sent{}, fmt.Errorf("%w: stopped", channel.ErrNotSent)
	}}))
	notifyMany(t, client, nil, numbered("bulk", 70)...)
	untilAll(t, pool, "owned", "status = 'processing'", 18)
	require.NoError(t, first.stop())
	untilAll(t, pool, "given back", "status = 'pending' and failures = 0 and reaps = 0", 70)
	ch := &fake{}
	start(t, pool, quickConfig(ch))
	untilAll(t, pool, "sent", "status = 'sent' and failures = 0", 70)
}
