package email

import (
	"context"
	"crypto/tls"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/workers/channel"
)

func tlsServer(c net.Conn, cfg *tls.Config) *tls.Conn { return tls.Server(c, cfg) }

// shrinkBuffers makes the client's kernel take little of a mail that nobody reads.
func shrinkBuffers(c *Channel) {
	plain := c.dialer.connect
	c.dialer.connect = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := plain(ctx, network, address)
		if tcp, ok := conn.(*net.TCPConn); ok {
			_ = tcp.SetWriteBuffer(4096)
		}
		return conn, err
	}
}

// trickle says text one byte at a time, so that no pause is longer than every.
func (c *fakeConn) trickle(text string, every time.Duration) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for i := range len(text) {
		<-ticker.C
		if _, err := c.Write([]byte{text[i]}); err != nil {
			return
		}
	}
}

func TestSend_TheBoundIsOnTheWholeDialog(t *testing.T) { // EM-02
	t.Parallel()
	ca := newAuthority(t)
	const bound = time.Second
	slow := strings.Repeat("0123456789", 60)
	for _, tc := range []struct {
		name   string
		policy TLSPolicy
		script func(*fakeConn)
		// unknown says that the dot was sent before the time was up.
		unknown bool
	}{
		{"silent before the greeting", TLSNone, func(*fakeConn) {}, false},
		{"trickling greeting", TLSNone, func(c *fakeConn) { c.trickle("220 "+slow, 20*time.Millisecond) }, false},
		{"endless greeting", TLSNone, func(c *fakeConn) { c.trickle(strings.Repeat("220-x\r\n", 600), 5*time.Millisecond) }, false},
		{"silent in the TLS handshake", TLSImplicit, func(*fakeConn) {}, false},
		{"silent after STARTTLS", TLSStartTLS, func(c *fakeConn) {
			c.greet("STARTTLS")
			c.hear()
			c.say("220 go on")
		}, false},
		{"silent after EHLO", TLSNone, func(c *fakeConn) { c.say("220 fake"); c.hear() }, false},
		{"silent after MAIL", TLSNone, func(c *fakeConn) { c.greet(); c.hear() }, false},
		{"silent after DATA", TLSNone, func(c *fakeConn) {
			c.greet()
			for range 2 {
				c.hear()
				c.say("250 ok")
			}
			c.hear()
		}, false},
		{"reads nothing of a long mail", TLSNone, func(c *fakeConn) {
			c.greet()
			for range 2 {
				c.hear()
				c.say("250 ok")
			}
			c.hear()
			_ = c.Conn.(*net.TCPConn).SetReadBuffer(4096)
			c.say("354 go on")
			<-time.After(bound + bound/2)
		}, false},
		{"stalls after the dot", TLSNone, func(c *fakeConn) { c.greet(); c.takeMail() }, true},
		{"trickles after the dot", TLSNone, func(c *fakeConn) {
			c.greet()
			c.takeMail()
			c.trickle("250 "+slow, 20*time.Millisecond)
		}, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			rest := make(chan string, 1)
			fake := startFake(t, func(_ int, c *fakeConn) {
				tc.script(c)
				rest <- c.untilGone()
			})
			c := newChannel(t, fake.addr(), func(cfg *Config) {
				cfg.SendTimeout, cfg.TLS = bound, tc.policy
				if tc.policy != TLSNone {
					cfg.TLSConfig = ca.client()
				}
			})
			m := message()
			if strings.Contains(tc.name, "long mail") {
				m.Text = strings.Repeat("x", 1<<20)
				shrinkBuffers(c)
			}

			started := time.Now()
			err := send(t, c, m)
			took := time.Since(started)
			if tc.unknown {
				requireUnknown(t, err, "smtp_timeout_after_data")
			} else {
				requireClass(t, err, channel.ClassTemporary, "smtp_timeout")
			}
			require.ErrorIs(t, err, context.DeadlineExceeded)
			assert.Greater(t, took, bound-50*time.Millisecond)
			assert.Less(t, took, bound+5*time.Second)
			assert.NotContains(t, <-rest, "QUIT", "a stuck link is dropped without a word")
		})
	}
}

// A reset tells the server at once that nobody waits, and takes back what the kernel has not sent yet.
func TestSend_StuckLinkIsReset(t *testing.T) { // EM-02
	t.Parallel()
	ended := make(chan error, 1)
	fake := startFake(t, func(_ int, c *fakeConn) {
		c.greet()
		c.takeMail()
		_, err := c.r.ReadByte()
		ended <- err
	})
	requireUnknown(t, send(t, newChannel(t, fake.addr(), within(time.Second)), message()), "smtp_timeout_after_data")
	require.ErrorIs(t, <-ended, syscall.ECONNRESET)
}

func TestSend_ReturnsSoonAfterItsContextEnds(t *testing.T) {
	t.Parallel()
	dialed := make(chan struct{})
	fake := startFake(t, func(_ int, c *fakeConn) {
		close(dialed)
		c.untilGone()
	})
	c := newChannel(t, fake.addr(), nil)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-dialed
		cancel()
	}()

	started := time.Now()
	_, err := c.Send(ctx, message())
	requireClass(t, err, channel.ClassTemporary, "smtp_canceled")
	require.ErrorIs(t, err, context.Canceled)
	require.Less(t, time.Since(started), 5*time.Second)
}

func TestSend_FloodOfReplyEnds(t *testing.T) {
	t.Parallel()
	fake := startFake(t, func(_ int, c *fakeConn) {
		block := make([]byte, 64<<10)
		for i := range block {
			block[i] = 'x'
		}
		for {
			if _, err := c.Write(block); err != nil {
				return
			}
		}
	})
	err := send(t, newChannel(t, fake.addr(), nil), message())
	requireClass(t, err, channel.ClassTemporary, "smtp_protocol")
	require.Less(t, len(err.Error()), 2*maxReplyText)
}

func TestSend_NobodyListens(t *testing.T) { // NO-10
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	addr := l.Addr().String()
	require.NoError(t, l.Close())

	requireClass(t, send(t, newChannel(t, addr, nil), message()), channel.ClassTemporary, "smtp_connect")
}

func TestSend_UnknownHost(t *testing.T) {
	t.Parallel()
	c := newChannel(t, "127.0.0.1:1", func(c *Config) { c.Host = "no-such-host.invalid" })
	requireClass(t, send(t, c, message()), channel.ClassTemporary, "smtp_dns")
}

func TestSend_DialHasABoundOfItsOwn(t *testing.T) {
	t.Parallel()
	c := newChannel(t, "127.0.0.1:1", func(c *Config) { c.DialTimeout = 50 * time.Millisecond })
	c.dialer.connect = func(ctx context.Context, _, _ string) (net.Conn, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	requireClass(t, send(t, c, message()), channel.ClassTemporary, "smtp_connect")
}
