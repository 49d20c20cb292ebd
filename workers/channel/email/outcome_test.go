package email

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/internal/smtpsink"
	"github.com/weirqueue/weir/workers/channel"
)

func TestSend_SilenceAfterTheDotIsUnknownAndTheNextTryIsTheSameMail(t *testing.T) { // EM-01 (a)
	t.Parallel()
	sink := startSink(t, smtpsink.Config{Behaviour: smtpsink.Times(1, smtpsink.HoldAnswer(nil))})
	c := newChannel(t, sink.Addr(), within(time.Second))

	requireUnknown(t, send(t, c, message()), "smtp_timeout_after_data")
	require.Equal(t, 1, sink.Count(), "one try, and no second one of the client's own")

	c.cfg.SendTimeout = 10 * time.Second
	require.NoError(t, send(t, c, message()))
	mails := sink.Mails()
	require.Len(t, mails, 2)
	assert.Equal(t, string(mails[0].Raw), string(mails[1].Raw))
	assert.Equal(t, "<"+runID+".0@sender.example>", mails[1].MessageID)
	assert.Contains(t, string(mails[0].Raw), "Date: Sun, 01 Mar 2026 11:30:15 +0000\r\n")
}

func TestSend_ResetAfterTheDotIsUnknown(t *testing.T) { // EM-01 (b)
	t.Parallel()
	sink := startSink(t, smtpsink.Config{Behaviour: smtpsink.Always(smtpsink.DropAnswer())})
	c := newChannel(t, sink.Addr(), nil)

	requireUnknown(t, send(t, c, message()), "smtp_connection_lost_after_data")
	require.Equal(t, 1, sink.Count())
}

func TestSend_LateAnswerIsNotReadAsTheNextOne(t *testing.T) { // EM-01 (c), EM-10
	t.Parallel()
	late := make(chan struct{})
	answer := sync.OnceFunc(func() { close(late) })
	defer answer()
	fake := startFake(t, func(n int, c *fakeConn) {
		c.greet()
		if !c.takeMail() {
			return
		}
		if n == 1 {
			<-late
			c.say("250 taken, at last")
			return
		}
		c.say("550 5.7.1 this one is refused")
		c.takeMail()
	})
	c := newChannel(t, fake.addr(), within(time.Second))

	requireUnknown(t, send(t, c, message()), "smtp_timeout_after_data")
	require.Empty(t, c.pool.idle)
	answer()
	c.cfg.SendTimeout = 10 * time.Second
	requireClass(t, send(t, c, message()), channel.ClassRefused, "smtp_550_5.7.1")
	require.EqualValues(t, 2, fake.accepted.Load(), "the first connection is not used again")
}

func TestSend_ContextThatEndsAfterTheDotIsUnknown(t *testing.T) { // EM-01
	t.Parallel()
	sink := startSink(t, smtpsink.Config{Behaviour: smtpsink.Always(smtpsink.HoldAnswer(nil))})
	c := newChannel(t, sink.Addr(), nil)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		_ = sink.Wait(t.Context(), 1)
		cancel()
	}()

	started := time.Now()
	_, err := c.Send(ctx, message())
	requireUnknown(t, err, "smtp_canceled_after_data")
	require.ErrorIs(t, err, context.Canceled)
	require.Less(t, time.Since(started), 5*time.Second)
}

func TestSend_GarbageAfterTheDotIsUnknown(t *testing.T) { // EM-01, EM-04
	t.Parallel()
	for _, answer := range []string{"what?", "354 go on", "2 fifty", ""} {
		fake := startFake(t, func(_ int, c *fakeConn) {
			c.greet()
			if c.takeMail() {
				c.say(answer)
			}
		})
		requireUnknown(t, send(t, newChannel(t, fake.addr(), nil), message()), "smtp_protocol_after_data")
	}
}

func TestSend_AnyTwoHundredAfterTheDotIsSuccess(t *testing.T) {
	t.Parallel()
	fake := startFake(t, func(_ int, c *fakeConn) {
		c.greet()
		if c.takeMail() {
			c.say("251 forwarded")
			c.takeMail()
		}
	})
	require.NoError(t, send(t, newChannel(t, fake.addr(), nil), message()))
}

// The dot has been sent as soon as the kernel took a byte of what holds it.
func TestSend_WhetherTheDotLeftDecides(t *testing.T) { // EM-01
	t.Parallel()
	sink := startSink(t, smtpsink.Config{})
	cut := errors.New("connection reset by peer")
	for _, tc := range []struct {
		name  string
		taken int
		check func(*testing.T, error)
	}{
		{"nothing", 0, func(t *testing.T, err error) {
			requireClass(t, err, channel.ClassTemporary, "smtp_connection_lost")
		}},
		{"a part", 5, func(t *testing.T, err error) { requireUnknown(t, err, "smtp_connection_lost_after_data") }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := newChannel(t, sink.Addr(), nil)
			plain := c.dialer.connect
			c.dialer.connect = func(ctx context.Context, network, address string) (net.Conn, error) {
				conn, err := plain(ctx, network, address)
				return &dotCutter{Conn: conn, taken: tc.taken, err: cut}, err
			}
			tc.check(t, send(t, c, message()))
		})
	}
	require.Zero(t, sink.Count())
}

// dotCutter breaks the connection in the write that holds the final dot.
type dotCutter struct {
	net.Conn
	taken int
	err   error
}

func (c *dotCutter) Write(p []byte) (int, error) {
	if !strings.HasSuffix(string(p), "\r\n.\r\n") {
		return c.Conn.Write(p)
	}
	n, _ := c.Conn.Write(p[:c.taken])
	_ = c.Close()
	return n, c.err
}

func TestDeliver_SendsNoDotOnceTheContextHasEnded(t *testing.T) {
	t.Parallel()
	dotted := make(chan bool, 1)
	fake := startFake(t, func(_ int, c *fakeConn) {
		c.greet()
		dotted <- c.takeMail()
	})
	c := newChannel(t, fake.addr(), nil)
	mail, err := render(c.from, message())
	require.NoError(t, err)
	l, f := c.dialer.dial(t.Context())
	require.Nil(t, f)

	ended, cancel := context.WithCancel(t.Context())
	cancel()
	f = l.deliver(ended, mail)
	l.wire.drop()
	require.NotNil(t, f)
	require.False(t, f.dotSent)
	require.Equal(t, stageBody, f.stage)
	require.False(t, <-dotted)
}

func TestSend_EndedContextDialsNothing(t *testing.T) {
	t.Parallel()
	fake := startFake(t, func(_ int, c *fakeConn) { c.untilGone() })
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("the lease is lost"))

	_, err := newChannel(t, fake.addr(), nil).Send(ctx, message())
	requireClass(t, err, channel.ClassTemporary, "smtp_canceled")
	require.ErrorContains(t, err, "the lease is lost")
	require.Zero(t, fake.accepted.Load())
}

func TestSend_NothingAfterTheTwoFiftyMatters(t *testing.T) { // EM-08
	t.Parallel()
	ca := newAuthority(t)
	for _, tc := range []struct {
		name  string
		after func(*fakeConn)
		tls   bool
	}{
		{"close at once", func(c *fakeConn) { c.Close() }, false},
		{"reset", func(c *fakeConn) { _ = c.Conn.(*net.TCPConn).SetLinger(0) }, false},
		{"TLS closed without notify", func(*fakeConn) {}, true},
		{"hang on QUIT", func(c *fakeConn) { c.untilGone() }, false},
		{"garbage to QUIT", func(c *fakeConn) { c.hear(); c.say("five hundred") }, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			fake := startFake(t, func(_ int, c *fakeConn) {
				if tc.tls {
					c = newFakeConn(tlsServer(c.Conn, ca.server(t, "127.0.0.1")))
				}
				c.greet()
				for c.takeMail() {
					c.say("250 taken")
					tc.after(c)
					if tc.tls {
						return // the deferred Close is the TCP connection's
					}
				}
			})
			for _, maxIdle := range []int{-1, 1} {
				c := newChannel(t, fake.addr(), func(c *Config) {
					c.MaxIdle = maxIdle
					c.DialTimeout = 500 * time.Millisecond
					if tc.tls {
						c.TLS, c.TLSConfig = TLSImplicit, ca.client()
					}
				})
				started := time.Now()
				require.NoError(t, send(t, c, message()))
				require.Less(t, time.Since(started), 5*time.Second, "the goodbye is not waited for")
				require.NoError(t, send(t, c, message()), "the next mail has a connection of its own")
				started = time.Now()
				require.NoError(t, c.Close())
				require.Less(t, time.Since(started), quitTimeout+5*time.Second)
			}
		})
	}
}

// The server hangs up right after its answer, and its goodbye arrives in part: the answer was heard.
func TestSend_HalfATLSGoodbyeDoesNotTakeTheTwoFiftyBack(t *testing.T) { // EM-08
	t.Parallel()
	ca := newAuthority(t)
	server := ca.server(t, "127.0.0.1")
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		for part := range 30 {
			fake := startFake(t, func(_ int, c *fakeConn) {
				gathered := &gatheringConn{Conn: c.Conn}
				encrypted := tls.Server(gathered, server)
				s := newFakeConn(encrypted)
				s.greet()
				if !s.takeMail() {
					return
				}
				gathered.on = true
				s.say("250 taken")
				answer := len(gathered.bytes)
				_ = encrypted.CloseWrite()
				_ = c.SetWriteDeadline(time.Time{}) // CloseWrite let it pass
				_, _ = c.Write(gathered.bytes[:min(answer+part, len(gathered.bytes))])
			})
			c := newChannel(t, fake.addr(), func(c *Config) {
				c.TLS, c.TLSConfig = TLSImplicit, ca.client()
				c.TLSConfig.MaxVersion = version
			})
			require.NoError(t, send(t, c, message()), "TLS %x, %d bytes of the goodbye", version, part)
		}
	}
}

// gatheringConn keeps what is written, once it is on, for one write.
type gatheringConn struct {
	net.Conn
	on    bool
	bytes []byte
}

func (c *gatheringConn) Write(p []byte) (int, error) {
	if !c.on {
		return c.Conn.Write(p)
	}
	c.bytes = append(c.bytes, p...)
	return len(p), nil
}
