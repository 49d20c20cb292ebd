package email

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/internal/smtpsink"
)

func TestSend_ReusesAConnection(t *testing.T) {
	t.Parallel()
	fake := startFake(t, func(_ int, c *fakeConn) {
		c.greet()
		for c.takeMail() {
			c.say("250 taken")
		}
	})
	c := newChannel(t, fake.addr(), nil)
	for range 5 {
		require.NoError(t, send(t, c, message()))
	}
	require.EqualValues(t, 1, fake.accepted.Load())
}

func TestSend_KeepsNoMoreConnectionsThanWanted(t *testing.T) {
	t.Parallel()
	sink := startSink(t, smtpsink.Config{})
	c := newChannel(t, sink.Addr(), func(c *Config) { c.MaxIdle = -1 })
	require.NoError(t, send(t, c, message()))
	eventually(t, "the connection is left", func() bool { return sink.Conns() == 0 })
}

func TestSend_EndedContextCostsNoConnection(t *testing.T) {
	t.Parallel()
	sink := startSink(t, smtpsink.Config{})
	c := newChannel(t, sink.Addr(), nil)
	count := countConns(c)
	require.NoError(t, send(t, c, message()))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for range 20 {
		_, err := c.Send(ended, message())
		requireClass(t, err, temporary, "smtp_canceled")
	}
	require.EqualValues(t, 1, count.open.Load())
}

// What a server may say is bounded for each mail, not for the connection.
func TestSend_ReusesAConnectionOfATalkativeServer(t *testing.T) {
	t.Parallel()
	fake := startFake(t, func(_ int, c *fakeConn) {
		c.greet()
		for c.takeMail() {
			c.say(strings.Repeat("250-so much to say\r\n", maxReplyBytes/2/20) + "250 taken")
		}
	})
	c := newChannel(t, fake.addr(), nil)
	for range 4 {
		require.NoError(t, send(t, c, message()))
	}
	require.EqualValues(t, 1, fake.accepted.Load())
}

func TestSend_ReplacesAConnectionAfterManyMails(t *testing.T) {
	t.Parallel()
	sink := startSink(t, smtpsink.Config{})
	fresh := newChannel(t, sink.Addr(), nil)
	require.NoError(t, send(t, fresh, message()))
	fresh.pool.mu.Lock()
	fresh.pool.idle[0].mails = maxMailsPerLink - 1
	fresh.pool.mu.Unlock()
	require.NoError(t, send(t, fresh, message()))
	eventually(t, "the connection is left", func() bool { return sink.Conns() == 0 })
}

func TestSend_ReplacesAnIdleConnectionThatNoLongerWorks(t *testing.T) {
	t.Parallel()
	for name, idle := range map[string]func(*fakeConn){
		"closed":        func(c *fakeConn) { c.Close() },
		"says 421":      func(c *fakeConn) { c.say("421 4.4.2 you were silent for too long"); c.Close() },
		"stuck":         func(c *fakeConn) { c.untilGone() },
		"refuses NOOP":  func(c *fakeConn) { c.hear(); c.say("421 no more"); c.untilGone() },
		"answers twice": func(c *fakeConn) { c.hear(); c.say("250 ok", "250 ok"); c.takeMail(); c.say("250 never") },
		"had more to say about the last mail": func(c *fakeConn) {
			c.say("550 5.7.1 or maybe not")
			c.takeMail()
			c.say("250 never")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var takenBySecond atomic.Int64
			fake := startFake(t, func(n int, c *fakeConn) {
				c.greet()
				for c.takeMail() {
					if n == 1 {
						c.say("250 taken")
						idle(c)
						return
					}
					takenBySecond.Add(1)
					c.say("250 taken")
				}
			})
			c := newChannel(t, fake.addr(), func(c *Config) { c.DialTimeout = 500 * time.Millisecond })
			count := countConns(c)
			require.NoError(t, send(t, c, message()))
			require.NoError(t, send(t, c, message()))
			require.EqualValues(t, 1, count.open.Load(), "the dead one is closed")
			require.EqualValues(t, 2, fake.accepted.Load())
			require.EqualValues(t, 1, takenBySecond.Load(), "the second mail was said once, to the new connection")
		})
	}
}

// A new connection is opened once: if that fails too, it is for the worker to come back.
func TestSend_ReplacesAConnectionOnlyOnce(t *testing.T) {
	t.Parallel()
	fake := startFake(t, func(n int, c *fakeConn) {
		if n > 1 {
			return
		}
		c.greet()
		if c.takeMail() {
			c.say("250 taken")
		}
	})
	c := newChannel(t, fake.addr(), nil)
	require.NoError(t, send(t, c, message()))
	requireClass(t, send(t, c, message()), temporary, "smtp_connection_lost")
	require.EqualValues(t, 2, fake.accepted.Load())
}

func TestSend_AConnectionIsNotUsedAfterAnError(t *testing.T) { // EM-10
	t.Parallel()
	fake := startFake(t, func(_ int, c *fakeConn) {
		c.greet()
		c.hear()
		c.say("250 ok")
		c.hear()
		c.say("550 5.1.1 no such user")
		c.takeMail()
	})
	c := newChannel(t, fake.addr(), nil)
	for range 3 {
		requireClass(t, send(t, c, message()), refused, "smtp_550_5.1.1")
	}
	require.EqualValues(t, 3, fake.accepted.Load())
}

func TestSend_NeverMoreConnectionsThanAllowed(t *testing.T) {
	t.Parallel()
	const conns, mails = 3, 60
	fake := startFake(t, func(_ int, c *fakeConn) {
		c.greet()
		for n := range 3 {
			if !c.takeMail() {
				return
			}
			if n == 1 {
				c.say("550 5.7.1 no")
			} else {
				c.say("250 taken")
			}
		}
	})
	c := newChannel(t, fake.addr(), func(c *Config) {
		c.MaxConns, c.MaxIdle, c.IdleTimeout = conns, 2, 2*time.Millisecond
	})
	count := countConns(c)
	var wg sync.WaitGroup
	var sent atomic.Int64
	for range mails {
		wg.Go(func() {
			if _, err := c.Send(t.Context(), message()); err == nil {
				sent.Add(1)
			}
		})
	}
	wg.Wait()
	require.NoError(t, c.Close())
	assert.Positive(t, sent.Load())
	assert.LessOrEqual(t, count.most.Load(), int64(conns))
	assert.Greater(t, count.most.Load(), int64(1), "the test has seen several at once")
	assert.Zero(t, count.open.Load(), "nothing is left open")
	assert.Empty(t, c.pool.slots)
}

// connCount is how many connections a channel has open, as it sees it itself.
type connCount struct{ open, most atomic.Int64 }

func countConns(c *Channel) *connCount {
	count := &connCount{}
	plain := c.dialer.connect
	c.dialer.connect = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := plain(ctx, network, address)
		if err != nil {
			return nil, err
		}
		now := count.open.Add(1)
		for seen := count.most.Load(); now > seen && !count.most.CompareAndSwap(seen, now); seen = count.most.Load() {
		}
		return &countedConn{Conn: conn, closed: sync.OnceFunc(func() { count.open.Add(-1) })}, nil
	}
	return count
}

type countedConn struct {
	net.Conn
	closed func()
}

func (c *countedConn) Close() error {
	err := c.Conn.Close()
	c.closed()
	return err
}

func TestSend_BusyIsThrottledAndBurnsNoFailure(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	sink := startSink(t, smtpsink.Config{Behaviour: smtpsink.Times(1, smtpsink.HoldAnswer(release))})
	c := newChannel(t, sink.Addr(), func(c *Config) { c.MaxConns, c.WaitTimeout = 1, 50*time.Millisecond })
	first := make(chan error, 1)
	go func() {
		_, err := c.Send(context.Background(), message())
		first <- err
	}()
	require.NoError(t, sink.Wait(t.Context(), 1))

	requireClass(t, send(t, c, messageTo("grace@example.com")), throttled, "smtp_busy")
	c.pool.wait = time.Minute
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	_, err := c.Send(ctx, messageTo("grace@example.com"))
	requireClass(t, err, temporary, "smtp_timeout")

	close(release)
	require.NoError(t, <-first)
	require.NoError(t, send(t, c, messageTo("grace@example.com")))
}

func TestSend_FailuresGiveTheirPlaceBack(t *testing.T) {
	t.Parallel()
	fake := startFake(t, func(n int, c *fakeConn) {
		switch n % 3 {
		case 0: // hangs up
		case 1:
			c.say("421 no")
		case 2:
			c.greet()
			c.takeMail()
		}
	})
	c := newChannel(t, fake.addr(), func(c *Config) { c.MaxConns, c.MaxIdle = 1, -1 })
	for range 9 {
		err := send(t, c, message())
		require.Error(t, err)
		require.NotContains(t, err.Error(), "no connection became free")
	}
	require.Empty(t, c.pool.slots)
}

func TestSend_PanicGivesItsPlaceBack(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	sink := startSink(t, smtpsink.Config{TLSConfig: ca.server(t, "127.0.0.1")})
	c := newChannel(t, sink.Addr(), func(c *Config) {
		c.TLS, c.TLSConfig = TLSStartTLS, ca.client()
		c.TLSConfig.VerifyConnection = func(tls.ConnectionState) error { panic("in the application's code") }
	})
	require.Panics(t, func() { _ = send(t, c, message()) })
	require.Empty(t, c.pool.slots)
	eventually(t, "the connection is dropped", func() bool { return sink.Conns() == 0 })
}

func TestChannel_IdleConnectionsExpire(t *testing.T) {
	t.Parallel()
	sink := startSink(t, smtpsink.Config{})
	c := newChannel(t, sink.Addr(), func(c *Config) { c.IdleTimeout = 30 * time.Millisecond })
	require.NoError(t, send(t, c, message()))
	eventually(t, "the idle connection is closed", func() bool { return sink.Conns() == 0 })
	require.NoError(t, send(t, c, message()))
	require.Equal(t, 2, sink.Count())
}

func TestChannel_CloseEndsIdleConnectionsAndLaterSends(t *testing.T) {
	t.Parallel()
	sink := startSink(t, smtpsink.Config{})
	c := newChannel(t, sink.Addr(), nil)
	require.NoError(t, send(t, c, message()))
	require.Equal(t, 1, sink.Conns())
	require.NoError(t, c.Close())
	require.NoError(t, c.Close())
	eventually(t, "the idle connection is closed", func() bool { return sink.Conns() == 0 })
	err := send(t, c, message())
	requireClass(t, err, temporary, "smtp_closed")
	require.ErrorIs(t, err, errClosed)
}

func TestChannel_CloseLetsARunningSendEnd(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	sink := startSink(t, smtpsink.Config{Behaviour: smtpsink.Always(smtpsink.Hold(release))})
	c := newChannel(t, sink.Addr(), nil)
	done := make(chan error, 1)
	go func() {
		_, err := c.Send(context.Background(), message())
		done <- err
	}()
	eventually(t, "the mail is under way", func() bool { return sink.Conns() == 1 })
	require.NoError(t, c.Close())
	close(release)
	err := <-done
	require.True(t, err == nil || errors.Is(err, errClosed), "%v", err)
	eventually(t, "nothing is kept", func() bool { return sink.Conns() == 0 })
}
