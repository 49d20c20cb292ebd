package smtpsink_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"net"
	"net/smtp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/internal/smtpsink"
)

func TestMail_ArrivesAsItWasSent(t *testing.T) {
	t.Parallel()
	heard := make(chan int, 1)
	var s *smtpsink.Sink
	s = start(t, smtpsink.Config{OnMail: func(smtpsink.Mail) { heard <- s.Count() }})
	body := "Message-ID: <1@example.com>\r\n\r\n.\r\n..\r\nend\r\n"
	require.NoError(t, dial(t, s).send(body, ada, bob))
	assert.Equal(t, 1, <-heard, "OnMail hears of a mail that is counted")

	mails := s.Mails()
	require.Len(t, mails, 1)
	assert.Equal(t, "weir@example.com", mails[0].From)
	assert.Equal(t, []string{ada, bob}, mails[0].To)
	assert.Equal(t, "<1@example.com>", mails[0].MessageID)
	assert.Equal(t, body, string(mails[0].Raw))
	assert.WithinDuration(t, time.Now(), mails[0].At, time.Minute)
}

func TestMail_WithoutFinalDotIsNotReceived(t *testing.T) {
	t.Parallel()
	s := start(t, smtpsink.Config{})
	c := dial(t, s)
	require.NoError(t, c.Mail("weir@example.com"))
	require.NoError(t, c.Rcpt(ada))
	w, err := c.Data()
	require.NoError(t, err)
	_, err = w.Write([]byte(strings.Repeat(hello, 1000)))
	require.NoError(t, err)
	require.NoError(t, c.conn.Close())
	eventually(t, func() bool { return s.Conns() == 0 })
	assert.Zero(t, s.Count())
}

func TestKeep_BoundsTheMailsAndNotTheCount(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]smtpsink.Config{
		"by number": {Keep: 2},
		"by bytes":  {KeepBytes: int64(2*len(hello) + 1)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t, cfg)
			c := dial(t, s)
			for _, id := range []string{"1", "2", "3", "4", "5"} {
				require.NoError(t, c.send(strings.Replace(hello, "1", id, 1), ada))
			}
			assert.Equal(t, 5, s.Count())
			mails := s.Mails()
			require.Len(t, mails, 2)
			assert.Equal(t, "<4@example.com>", mails[0].MessageID)
			assert.Equal(t, "<5@example.com>", mails[1].MessageID)
		})
	}
}

func TestMaxMessageBytes_LongerMailIsRefused(t *testing.T) {
	t.Parallel()
	s := start(t, smtpsink.Config{MaxMessageBytes: 1000})
	c := dial(t, s)
	requireReply(t, c.send(strings.Repeat(hello, 100), ada), 552, "5.3.4 Maximum message size exceeded")
	require.NoError(t, c.send(hello, ada), "the connection goes on")
	assert.Equal(t, 1, s.Count())
}

func TestWait_EndsWithItsContext(t *testing.T) {
	t.Parallel()
	s := start(t, smtpsink.Config{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, s.Wait(ctx, 0))
	require.ErrorIs(t, s.Wait(ctx, 1), context.Canceled)
}

func TestClose_EndsEveryConnectionAndKeepsTheMails(t *testing.T) {
	t.Parallel()
	held := make(chan struct{}, 1)
	s := start(t, smtpsink.Config{Behaviour: func(a smtpsink.Attempt) smtpsink.Action {
		if a.To == bob {
			held <- struct{}{}
			return smtpsink.Hold(nil)
		}
		return smtpsink.Accept()
	}})
	idle := dial(t, s)
	require.NoError(t, idle.send(hello, ada))
	busy := dial(t, s)
	answer := make(chan error, 1)
	go func() { answer <- busy.send(hello, bob) }()
	<-held

	require.NoError(t, s.Close())
	require.Error(t, <-answer)
	require.Error(t, idle.Noop())
	assert.Zero(t, s.Conns())
	assert.Equal(t, 1, s.Count())
	assert.Len(t, s.Mails(), 1)
	_, err := net.Dial("tcp", s.Addr())
	require.Error(t, err)
	require.NoError(t, s.Close(), "closing twice does nothing")
}

func TestStart_ReportsAllFaultsAtOnce(t *testing.T) {
	t.Parallel()
	_, err := smtpsink.Start(smtpsink.Config{
		Addr: "192.0.2.1:25", ImplicitTLS: true, Keep: -1, KeepBytes: -1, MaxMessageBytes: -1,
	})
	for _, want := range []string{"Addr", "loopback", "ImplicitTLS", "Keep -1", "KeepBytes -1", "MaxMessageBytes -1"} {
		require.ErrorContains(t, err, want)
	}
	s := start(t, smtpsink.Config{})
	_, err = smtpsink.Start(smtpsink.Config{Addr: s.Addr()})
	require.Error(t, err, "the port is taken")
}

func TestTLS_AndPasswordAreRequired(t *testing.T) {
	t.Parallel()
	server, trusting := certificate(t)
	auth := smtp.PlainAuth("", "weir", "secret", "127.0.0.1")
	for name, implicit := range map[string]bool{"STARTTLS": false, "implicit": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t, smtpsink.Config{TLSConfig: server, ImplicitTLS: implicit, Username: "weir", Password: "secret"})
			connect := func() client {
				if !implicit {
					c := dial(t, s)
					require.NoError(t, c.StartTLS(trusting))
					return c
				}
				conn, err := tls.Dial("tcp", s.Addr(), trusting)
				require.NoError(t, err)
				t.Cleanup(func() { _ = conn.Close() })
				c, err := smtp.NewClient(conn, "127.0.0.1")
				require.NoError(t, err)
				return client{Client: c, conn: conn}
			}
			c := connect()
			requireReply(t, c.send(hello, ada), 530, "5.7.0 Authentication required")
			require.NoError(t, c.Auth(auth))
			require.NoError(t, c.send(hello, ada))
			require.Error(t, connect().Auth(smtp.PlainAuth("", "weir", "wrong", "127.0.0.1")))
			assert.Equal(t, 1, s.Count())
		})
	}
}

// certificate makes one for 127.0.0.1 that signs itself.
func certificate(t *testing.T) (server, trusting *tls.Config) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	parsed, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	roots := x509.NewCertPool()
	roots.AddCert(parsed)
	server = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
	return server, &tls.Config{RootCAs: roots, ServerName: "127.0.0.1"}
}
