package workers_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/internal/faultproxy"
	"github.com/weirqueue/weir/internal/postgres/pgtest"
	"github.com/weirqueue/weir/jobs"
	"github.com/weirqueue/weir/workers"
	"github.com/weirqueue/weir/workers/channel"
)

func TestSteps_WhatAnEarlierTryMayHaveDoneStaysUnknown(t *testing.T) {
	t.Parallel()
	for name, second := range map[string]error{"refuse": workers.Refuse("no", errors.New("x")), "not sent": workers.NotSent(errors.New("down"))} {
		t.Run(name, func(t *testing.T) {
			pool := pgtest.Pool(t)
			var calls atomic.Int32
			kind := jobs.MustKind[order]("one", jobs.KindConfig{MaxAttempts: 2, Steps: []jobs.Step{{Name: "only", Effect: jobs.AtLeastOnce}}})
			client := runKinds(t, pool, workers.Bind(kind, workers.KindConfig{Lease: 2 * time.Second, Backoff: workers.Backoff{First: 10 * time.Millisecond, Max: 20 * time.Millisecond}},
				workers.AtLeastOnce("only", func(context.Context, *workers.In[order]) (any, error) {
					if calls.Add(1) == 1 {
						return nil, errors.New("the answer was lost after the effect")
					}
					return nil, second
				})))
			res, err := client.Enqueue(t.Context(), kind.Of(order{}), nil)
			require.NoError(t, err)
			run := waitFor(t, client, res.Run.ID)
			rs, err := client.Receipts(t.Context(), run.ID)
			require.NoError(t, err)
			require.Equal(t, "unknown", rs[0].Outcome)
		})
	}
}

// The same for a delivery of one message, whose claim has written its own `started` over the earlier outcome.
func TestDelivery_WhatAnEarlierTryMayHaveSentStaysUnknown(t *testing.T) {
	t.Parallel()
	for name, second := range map[string]error{
		"refused": channel.Refused("smtp_550", errors.New("x")), "not sent": fmt.Errorf("%w: down", channel.ErrNotSent),
		"throttled": channel.Throttled(time.Millisecond, "smtp_421", errors.New("later")),
	} {
		t.Run(name, func(t *testing.T) {
			pool := pgtest.Pool(t)
			client := newClient(t, pool)
			start(t, pool, quickConfig(&fake{do: func(_ context.Context, _ channel.Message, n int) (channel.Sent, error) {
				switch n {
				case 1:
					return channel.Sent{}, errors.New("the answer was lost")
				case 2:
					return channel.Sent{}, second
				}
				return channel.Sent{}, channel.Refused("smtp_550", errors.New("x"))
			}}))
			id := notify(t, client, "x", &jobs.Opts{MaxAttempts: 2})
			run := until(t, client, id, "ended", func(r *jobs.Run) bool { return r.FinishedAt != nil })
			require.Equal(t, []string{fmt.Sprintf("unknown %d", run.Attempt-attemptsAfter(run))}, outcomes(t, client, id))
		})
	}
}

// attemptsAfter is how often the attempt was raised since the last claim.
func attemptsAfter(run *jobs.Run) int64 {
	if run.Status == jobs.StatusDead {
		return 1
	}
	return 0
}

func TestBind_AFunctionThatIsNil(t *testing.T) {
	kind := jobs.MustKind[order]("one", jobs.KindConfig{MaxAttempts: 2, Steps: []jobs.Step{{Name: "only", Effect: jobs.AtLeastOnce}}})
	pool := pgtest.Pool(t)
	var f func(context.Context, *workers.In[order]) (any, error)
	_, err := workers.New(pool, &workers.Config{Kinds: []workers.Binding{workers.Bind(kind, workers.KindConfig{}, workers.AtLeastOnce("only", f))}})
	require.ErrorIs(t, err, workers.ErrInvalidConfig)
	require.ErrorContains(t, err, "is nil")
}

func TestSteps_AGoroutineThatIsLeftBehindReadsItsOwnOutputs(t *testing.T) {
	pool := pgtest.Pool(t)
	kind := jobs.MustKind[order]("one", jobs.KindConfig{Steps: []jobs.Step{{Name: "a", Effect: jobs.AtLeastOnce}, {Name: "b", Effect: jobs.AtLeastOnce}, {Name: "c", Effect: jobs.AtLeastOnce}}})
	done := make(chan struct{})
	f := func(_ context.Context, in *workers.In[order]) (any, error) { return in.Step, nil }
	client := runKinds(t, pool, workers.Bind(kind, workers.KindConfig{Lease: 2 * time.Second},
		workers.AtLeastOnce("a", func(_ context.Context, in *workers.In[order]) (any, error) {
			go func() {
				defer close(done)
				for range 3000 {
					var n int
					_ = in.Output("b", &n)
					time.Sleep(10 * time.Microsecond)
				}
			}()
			return 1, nil
		}),
		workers.AtLeastOnce("b", f), workers.AtLeastOnce("c", f)))
	res, err := client.Enqueue(t.Context(), kind.Of(order{}), nil)
	require.NoError(t, err)
	waitFor(t, client, res.Run.ID)
	<-done
}

// A cancellation that was asked for while a step was outside is honoured after it, also when the answer to its receipt
// was lost.
func TestSteps_CancelIsHonouredAfterALostAnswer(t *testing.T) {
	t.Parallel()
	direct := pgtest.Pool(t)
	proxy, err := faultproxy.New(direct.Config().ConnString())
	require.NoError(t, err)
	t.Cleanup(func() { _ = proxy.Close() })
	cfg := direct.Config()
	cfg.ConnConfig.Host, cfg.ConnConfig.Port, cfg.ConnConfig.Fallbacks = "127.0.0.1", uint16(proxy.Port()), nil
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	client, err := jobs.NewClient(direct, nil)
	require.NoError(t, err)
	var next atomic.Int32
	kind := jobs.MustKind[order]("one", jobs.KindConfig{Steps: []jobs.Step{{Name: "tell", Effect: jobs.AtLeastOnce}, {Name: "book", Effect: jobs.Transactional}}})
	runKinds(t, pool, workers.Bind(kind, workers.KindConfig{Lease: 4 * time.Second},
		workers.AtLeastOnce("tell", func(ctx context.Context, in *workers.In[order]) (any, error) {
			err := client.Cancel(ctx, in.Run)
			proxy.Set(faultproxy.AtWrite, func() faultproxy.Verdict { return faultproxy.CutAfter })
			return nil, err
		}),
		workers.Transactional("book", func(context.Context, pgx.Tx, *workers.In[order]) (any, error) { next.Add(1); return nil, nil })))
	res, err := client.Enqueue(t.Context(), kind.Of(order{}), nil)
	require.NoError(t, err)
	run := waitFor(t, client, res.Run.ID)
	require.False(t, proxy.Unset(faultproxy.AtWrite), "nothing was cut")
	require.Equal(t, jobs.StatusCanceled, run.Status)
	require.Zero(t, next.Load(), "the step after the cancellation was executed")
	rs, err := client.Receipts(t.Context(), run.ID)
	require.NoError(t, err)
	require.Len(t, rs, 1)
	require.Equal(t, "ok", rs[0].Outcome)
}
