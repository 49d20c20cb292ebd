package workerstest_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weirqueue/weir/internal/postgres/pgtest"
	"github.com/weirqueue/weir/jobs"
	"github.com/weirqueue/weir/workers/channel"
	"github.com/weirqueue/weir/workers/workerstest"
)

// pigeons is a provider in memory that takes a key: it outlives every process.
type pigeons struct {
	mu    sync.Mutex
	taken []letter
	refs  map[string]string
	// silent is not nil while nobody is answered.
	silent chan struct{}
}

type letter struct{ address, text string }

// take takes the message, or knows its key, and answers when it is not silent. It does not answer whose context has
// ended.
func (p *pigeons) take(ctx context.Context, m channel.Message, key string) (channel.Sent, error) {
	if ctx.Err() != nil {
		return channel.Sent{}, channel.NotSent("pigeon_canceled", context.Cause(ctx))
	}
	p.mu.Lock()
	ref, known := p.refs[key]
	if !known {
		p.taken = append(p.taken, letter{m.Address, m.Text})
		ref = fmt.Sprintf("pigeon-%d", len(p.taken))
		p.refs[key] = ref
	}
	silent := p.silent
	p.mu.Unlock()
	if silent != nil {
		select {
		case <-silent:
		case <-ctx.Done():
			return channel.Sent{}, fmt.Errorf("no answer: %w", context.Cause(ctx))
		}
	}
	return channel.Sent{ExternalRef: ref}, nil
}

func (p *pigeons) count(_ context.Context, m channel.Message) (n int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.taken {
		if (l == letter{m.Address, m.Text}) {
			n++
		}
	}
	return n, nil
}

func (p *pigeons) silence() func() {
	end := make(chan struct{})
	p.mu.Lock()
	defer p.mu.Unlock()
	p.silent = end
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.silent = nil
		close(end)
	}
}

// post is a channel of an application's own. send is how it may misbehave.
type post struct {
	effect channel.Effect
	send   func(ctx context.Context, m channel.Message) (channel.Sent, error)
	closed func()
}

func (p *post) Effect() channel.Effect { return p.effect }

func (p *post) Send(ctx context.Context, m channel.Message) (channel.Sent, error) {
	return p.send(ctx, m)
}

func (p *post) Close() error { p.closed(); return nil }

// office is the provider with its channels, which replace the built-in one of Telegram, whose messages have parts.
type office struct {
	*pigeons
	opened, closed int
	// bend changes the channel of one process.
	bend func(p *post)
}

func newOffice() *office { return &office{pigeons: &pigeons{refs: map[string]string{}}} }

func (o *office) open() (channel.Channel, error) {
	p := &post{effect: channel.Idempotent}
	p.send = func(ctx context.Context, m channel.Message) (channel.Sent, error) {
		return o.take(ctx, m, m.IdempotencyKey)
	}
	p.closed = func() { o.mu.Lock(); o.closed++; o.mu.Unlock() }
	o.mu.Lock()
	o.opened++
	o.mu.Unlock()
	if o.bend != nil {
		o.bend(p)
	}
	return p, nil
}

func (o *office) config(t *testing.T) workerstest.ChannelConfig {
	return workerstest.ChannelConfig{
		Pool: pgtest.Pool(t), Channel: o.open, Taken: o.count, Silence: o.silence,
		Notification: func(i int) jobs.Notification {
			text := strings.Repeat("a", 4000) + "\n\n" + strings.Repeat("b", 4000)
			return jobs.Notification{To: []jobs.Recipient{jobs.Telegram(fmt.Sprint(i + 1))}, Text: text}
		},
		Check: func(_ context.Context, _ *pgxpool.Pool, _ *jobs.Run, n jobs.Notification) error {
			o.mu.Lock()
			defer o.mu.Unlock()
			var got string
			for _, l := range o.taken {
				if l.address == n.To[0].Address {
					got += l.text[:1]
				}
			}
			if got != "ab" {
				return errors.New("the parts arrived as " + got)
			}
			return nil
		},
	}
}

// A channel of an application's own whose provider honours the key: each part arrives once, whatever happens, and each
// process's channel is closed.
func TestRunChannel_AnIdempotentChannelSendsEachPartOnce(t *testing.T) {
	t.Parallel()
	workerstest.RunChannelParts(t, func(t *testing.T) workerstest.ChannelConfig {
		o := newOffice()
		t.Cleanup(func() {
			o.mu.Lock()
			defer o.mu.Unlock()
			if o.closed != o.opened {
				t.Errorf("%d channels were opened, and %d closed", o.opened, o.closed)
			}
		})
		return o.config(t)
	})
}
