package workers_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/internal/postgres/pgtest"
	"github.com/weirqueue/weir/jobs"
	"github.com/weirqueue/weir/workers"
	"github.com/weirqueue/weir/workers/channel"
)

// chat is a channel for parts: f decides about each send, by its number.
type chat struct {
	f  func(ctx context.Context, n int, m channel.Message) (channel.Sent, error)
	mu sync.Mutex
	m  []channel.Message
}

func (c *chat) Effect() channel.Effect { return channel.Idempotent }

func (c *chat) Send(ctx context.Context, m channel.Message) (channel.Sent, error) {
	c.mu.Lock()
	c.m = append(c.m, m)
	n := len(c.m)
	c.mu.Unlock()
	if c.f == nil {
		return channel.Sent{ExternalRef: fmt.Sprint(n)}, nil
	}
	return c.f(ctx, n, m)
}

func (c *chat) parts() (out []int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range c.m {
		out = append(out, m.Part)
	}
	return out
}

func sailWithParts(t *testing.T, c *chat, change func(*workers.Config)) *sea {
	t.Helper()
	return sail(t, pgtest.Pool(t), nil, func(cfg *workers.Config) {
		cfg.Channels = map[string]channel.Channel{"telegram": c}
		if change != nil {
			change(cfg)
		}
	})
}

func (s *sea) notifyInParts(n int) jobs.RunID {
	s.t.Helper()
	text := strings.TrimSuffix(strings.Repeat(strings.Repeat("a", 4000)+"\n\n", n), "\n\n")
	res, err := s.client.Notify(s.t.Context(), jobs.Notification{To: []jobs.Recipient{jobs.Telegram("5")}, Subject: "Hi", Text: text}, nil)
	require.NoError(s.t, err)
	return res.Runs[0].ID
}

func TestParts_EachHasTheSameKeyOnEveryTry(t *testing.T) {
	t.Parallel()
	c := &chat{f: func(_ context.Context, n int, _ channel.Message) (channel.Sent, error) {
		if n == 2 {
			return channel.Sent{}, errors.New("nobody knows")
		}
		return channel.Sent{ExternalRef: "x\x00"}, nil // PG-01
	}}
	s := sailWithParts(t, c, nil)
	id := s.notifyInParts(3)
	require.Equal(t, jobs.StatusSent, s.wait(id).Status)
	require.Equal(t, []int{1, 2, 2, 3}, c.parts())
	for _, m := range c.m {
		require.Equal(t, fmt.Sprintf("%s:%d", id, m.Part-1), m.IdempotencyKey)
		require.Equal(t, 3, m.Parts)
		require.Empty(t, m.Subject+m.HTML)
	}
	require.Equal(t, c.m[1], c.m[2], "the same message again")
	require.True(t, strings.HasPrefix(c.m[0].Text, "Hi\n\naaa"))
	list, err := s.client.Receipts(t.Context(), id)
	require.NoError(t, err)
	for i, r := range list {
		require.Equal(t, []any{i, fmt.Sprintf("part_%d", i+1), "ok", "idempotent"}, []any{r.StepIndex, r.StepName, r.Outcome, r.Effect})
	}
}

// receiptStatements counts what a try writes and reads of receipts; the cleaner and the reaper settle sets of runs.
type receiptStatements struct{ n atomic.Int32 }

func (r *receiptStatements) TraceQueryStart(ctx context.Context, _ *pgx.Conn, q pgx.TraceQueryStartData) context.Context {
	if strings.Contains(q.SQL, "insert into weir.receipt") || strings.Contains(q.SQL, "from weir.receipts where run_id") {
		r.n.Add(1)
	}
	return ctx
}

func (*receiptStatements) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// A message that is whole costs a claim with its `started`, and an end. Three parts cost a claim, three starts, two
// settles and an end.
func TestParts_AWholeMessageCostsTwoStatements(t *testing.T) {
	t.Parallel()
	for parts, statements := range map[int]int32{1: 2, 3: 7} {
		trace := &receiptStatements{}
		pool := pgtest.Pool(t, pgtest.Config(func(c *pgxpool.Config) { c.ConnConfig.Tracer = trace }))
		s := sail(t, pool, nil, func(cfg *workers.Config) { cfg.Channels = map[string]channel.Channel{"telegram": &chat{}} })
		id := s.notifyInParts(parts)
		require.Equal(t, jobs.StatusSent, s.wait(id).Status)
		require.Equal(t, statements, trace.n.Load())
	}
}

func TestParts_APanicIsAFailedTryOfItsPartAlone(t *testing.T) {
	t.Parallel()
	c := &chat{f: func(_ context.Context, n int, _ channel.Message) (channel.Sent, error) {
		if n == 2 {
			panic("boom")
		}
		return channel.Sent{}, nil
	}}
	s := sailWithParts(t, c, nil)
	n := jobs.Notification{To: []jobs.Recipient{jobs.Telegram("5")}, Text: strings.Repeat("a", 3*4096)}
	res, err := s.client.Notify(t.Context(), n, &jobs.Opts{MaxAttempts: 1})
	require.NoError(t, err)
	id := res.Runs[0].ID
	run := s.wait(id)
	require.Equal(t, jobs.StatusDead, run.Status)
	tries, err := s.client.Tries(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, "panic", tries[0].ErrorCode)
	require.Contains(t, tries[0].Error, "boom")
	list, err := s.client.Receipts(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, []string{"ok", "unknown"}, []string{list[0].Outcome, list[1].Outcome}, "nobody knows whether it was sent")
	require.NoError(t, s.client.Redrive(t.Context(), id))
	require.Equal(t, jobs.StatusSent, s.wait(id).Status)
	require.Equal(t, []int{1, 2, 2, 3}, c.parts())
}

// A try does not go on for as long as all of its parts may take, which would be hours: another one goes on.
func TestParts_ALongTryIsFollowedByAnother(t *testing.T) {
	t.Parallel()
	c := &chat{f: func(ctx context.Context, _ int, _ channel.Message) (channel.Sent, error) {
		select {
		case <-time.After(300 * time.Millisecond):
			return channel.Sent{}, nil
		case <-ctx.Done():
			return channel.Sent{}, ctx.Err()
		}
	}}
	s := sailWithParts(t, c, func(cfg *workers.Config) { cfg.Delivery.StepTime = time.Second })
	id := s.notifyInParts(8)
	run := s.wait(id)
	require.Equal(t, jobs.StatusSent, run.Status)
	require.Zero(t, run.Failures)
	require.Equal(t, []int{1, 2, 3, 4, 5, 6, 7, 8}, c.parts())
	tries, err := s.client.Tries(t.Context(), id)
	require.NoError(t, err)
	require.NotEmpty(t, tries)
	for _, try := range tries {
		require.Equal(t, []string{"snoozed", "parts_left"}, []string{try.How, try.ErrorCode})
	}
}

// What the run was made for and what its payload holds must agree: a message is never sent without its receipt.
func TestParts_APayloadOfAnotherShapeIsRefused(t *testing.T) {
	t.Parallel()
	c := &chat{}
	s := sailWithParts(t, c, nil)
	tx, err := s.pool.Begin(t.Context())
	require.NoError(t, err)
	n := jobs.Notification{To: []jobs.Recipient{jobs.Telegram("5")}, Text: strings.Repeat("a", 5000)}
	res, err := s.client.NotifyTx(t.Context(), tx, n, nil)
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), "update weir.run set needs = '{channel:telegram}' where id = $1", res.Runs[0].ID)
	require.NoError(t, err)
	require.NoError(t, tx.Commit(t.Context()))
	run := s.wait(res.Runs[0].ID)
	require.Equal(t, jobs.StatusFailed, run.Status)
	require.Equal(t, "payload_unreadable", run.ErrorCode)
	require.Empty(t, c.parts())
}
