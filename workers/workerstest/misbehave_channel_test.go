package workerstest_test

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/jobs"
	"github.com/weirqueue/weir/workers/channel"
	"github.com/weirqueue/weir/workers/workerstest"
)

type sending func(ctx context.Context, m channel.Message) (channel.Sent, error)

// Each channel misbehaves in one way, and the scenario that is there for it says so. The same scenarios pass for the
// channel that behaves.
func TestRunChannel_AChannelThatMisbehavesFails(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		bend     func(o *office, p *post, send sending)
		change   func(cfg *workerstest.ChannelConfig)
		scenario string
		want     string
	}{
		"it waits on when its context has ended": {bend: func(_ *office, p *post, send sending) {
			p.send = func(ctx context.Context, m channel.Message) (channel.Sent, error) {
				return send(context.WithoutCancel(ctx), m)
			}
		}, scenario: "part_1/provider silent", want: "Send had not returned"},
		"it sends when its context has ended": {bend: func(_ *office, p *post, send sending) {
			p.send = func(ctx context.Context, m channel.Message) (channel.Sent, error) {
				return send(context.WithoutCancel(ctx), m)
			}
		}, scenario: "part_2/context ended before", want: "sent all the same"},
		"it sends when its context has ended, and says that it ended": {bend: func(o *office, p *post, _ sending) {
			p.effect = channel.AtLeastOnce
			p.send = func(ctx context.Context, m channel.Message) (channel.Sent, error) {
				sent, err := o.take(context.WithoutCancel(ctx), m, rand.Text())
				return sent, errors.Join(err, ctx.Err())
			}
		}, scenario: "part_2/context ended before", want: "although it returned"},
		"it needs what another part left in memory": {bend: func(_ *office, p *post, send sending) {
			var mu sync.Mutex
			threads := map[string]string{}
			p.send = func(ctx context.Context, m channel.Message) (channel.Sent, error) {
				mu.Lock()
				defer mu.Unlock()
				if m.Part > 1 && threads[m.RunID] == "" {
					return channel.Sent{}, channel.Refused("no_thread", errors.New("nothing to reply to"))
				}
				sent, err := send(ctx, m)
				threads[m.RunID] = sent.ExternalRef
				return sent, err
			}
		}, scenario: "part_1/takeover after", want: "no_thread"},
		"it repeats a part that has a receipt": {bend: func(o *office, p *post, send sending) {
			p.effect = channel.AtLeastOnce
			var mu sync.Mutex
			var before []channel.Message
			p.send = func(ctx context.Context, m channel.Message) (channel.Sent, error) {
				mu.Lock()
				defer mu.Unlock()
				for _, earlier := range before {
					if _, err := o.take(ctx, earlier, rand.Text()); err != nil {
						return channel.Sent{}, err
					}
				}
				before = append(before, m)
				return send(ctx, m)
			}
		}, scenario: "nothing happens", want: "part_1 (at_least_once) was taken by the provider 2 times"},
		"it tries again by itself": {bend: func(o *office, p *post, _ sending) {
			p.effect = channel.AtLeastOnce
			p.send = func(ctx context.Context, m channel.Message) (channel.Sent, error) {
				_, _ = o.take(ctx, m, rand.Text())
				return o.take(ctx, m, rand.Text())
			}
		}, scenario: "nothing happens", want: "was taken by the provider 2 times"},
		"it says not sent of what was sent": {bend: func(o *office, p *post, _ sending) {
			p.effect = channel.AtLeastOnce
			first := sync.Once{}
			p.send = func(ctx context.Context, m channel.Message) (sent channel.Sent, err error) {
				sent, err = o.take(ctx, m, rand.Text())
				first.Do(func() { err = channel.NotSent("reset", errors.New("connection reset")) })
				return sent, err
			}
		}, scenario: "nothing happens", want: "2 times: must be from 1 to 1, after 2 calls"},
		"it says sent of what was not": {bend: func(_ *office, p *post, _ sending) {
			p.send = func(context.Context, channel.Message) (channel.Sent, error) { return channel.Sent{}, nil }
		}, scenario: "nothing happens", want: "was taken by the provider 0 times"},
		"its provider does not get the key": {bend: func(o *office, p *post, _ sending) {
			p.send = func(ctx context.Context, m channel.Message) (channel.Sent, error) { return o.take(ctx, m, rand.Text()) }
		}, scenario: "part_2/crash before", want: "part_2 (idempotent) was taken by the provider 2 times"},
		"its provider does not get the key, and cannot be asked": {bend: func(o *office, p *post, _ sending) {
			p.send = func(ctx context.Context, m channel.Message) (channel.Sent, error) { return o.take(ctx, m, rand.Text()) }
		}, change: func(cfg *workerstest.ChannelConfig) { cfg.Taken = nil }, scenario: "part_2/takeover inside", want: "for the same key"},
		"its references do not fit": {bend: func(_ *office, p *post, send sending) {
			p.send = func(ctx context.Context, m channel.Message) (channel.Sent, error) {
				sent, err := send(ctx, m)
				sent.ExternalRef += strings.Repeat("x", 500)
				return sent, err
			}
		}, scenario: "nothing happens", want: "at most 500 bytes"},
		"its effect is not constant": {bend: func(o *office, p *post, _ sending) {
			o.mu.Lock()
			defer o.mu.Unlock()
			if o.opened > 1 {
				p.effect = channel.AtLeastOnce
			}
		}, scenario: "nothing happens", want: "must be constant"},
		"its outcome is unknown although nothing happens": {bend: func(_ *office, p *post, send sending) {
			first := sync.Once{}
			p.send = func(ctx context.Context, m channel.Message) (sent channel.Sent, err error) {
				sent, err = send(ctx, m)
				first.Do(func() { err = errors.New("nobody knows") })
				return sent, err
			}
		}, scenario: "nothing happens", want: "executed 2 times"},
		"it reports what nobody confirmed": {bend: func(_ *office, p *post, send sending) {
			p.send = func(ctx context.Context, m channel.Message) (channel.Sent, error) {
				sent, _ := send(ctx, m)
				return sent, nil
			}
		}, scenario: "part_1/provider silent", want: "while the provider was silent"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newOffice()
			cfg := o.config(t)
			o.bend = func(p *post) { c.bend(o, p, p.send) }
			if c.change != nil {
				c.change(&cfg)
			}
			errs, err := workerstest.PlayChannel(t.Context(), cfg, c.scenario)
			require.NoError(t, err)
			require.Len(t, errs, 1)
			for _, err := range errs {
				require.ErrorContains(t, err, c.want)
			}
		})
	}
}

// What a channel may do: say that it did not send, and send later; call the same message by another name, where the suite
// was told so.
func TestRunChannel_WhatAChannelMayDo(t *testing.T) {
	t.Parallel()
	o := newOffice()
	var mu sync.Mutex
	n := 0
	o.bend = func(p *post) {
		send := p.send
		p.send = func(ctx context.Context, m channel.Message) (channel.Sent, error) {
			mu.Lock()
			n++
			later := n == 1
			mu.Unlock()
			if later {
				return channel.Sent{}, channel.Throttled(0, "full", errors.New("no pigeon is free"))
			}
			_, err := send(ctx, m)
			return channel.Sent{ExternalRef: rand.Text()}, err
		}
	}
	cfg := o.config(t)
	cfg.RefsVary = true
	errs, err := workerstest.PlayChannel(t.Context(), cfg, "nothing happens", "part_1/takeover inside")
	require.NoError(t, err)
	require.Len(t, errs, 2)
	for scenario, err := range errs {
		require.NoError(t, err, scenario)
	}
	require.GreaterOrEqual(t, n, 6, "a try that was put off, two parts, and two parts of which one was taken over")
}

func TestRunChannel_WrongConfigurationNamesWhatIsWrong(t *testing.T) {
	t.Parallel()
	_, err := workerstest.PlayChannel(t.Context(), workerstest.ChannelConfig{Lease: 1}, "")
	for _, field := range []string{"Pool", "Channel", "Notification", "Lease"} {
		require.ErrorContains(t, err, "ChannelConfig."+field)
	}

	cfg := newOffice().config(t)
	several := cfg
	several.Notification = func(int) jobs.Notification {
		return jobs.Notification{To: []jobs.Recipient{jobs.Telegram("1"), jobs.Telegram("2")}, Text: "a"}
	}
	_, err = workerstest.PlayChannel(t.Context(), several, "nothing happens")
	require.ErrorContains(t, err, "2 recipients")
	var runs int
	require.NoError(t, cfg.Pool.QueryRow(t.Context(), "select count(*) from weir.run").Scan(&runs))
	require.Zero(t, runs, "the notification that is asked for its parts is taken back")

	first := true
	cfg.Notification = func(int) jobs.Notification {
		parts := 2
		if !first {
			parts = 3
		}
		first = false
		return jobs.Notification{To: []jobs.Recipient{jobs.Telegram("1")}, Text: strings.Repeat("a", parts*4096)}
	}
	errs, err := workerstest.PlayChannel(t.Context(), cfg, "nothing happens")
	require.NoError(t, err)
	require.ErrorContains(t, errs["nothing happens"], "must be the same")
}
