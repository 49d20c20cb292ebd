package email

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"io"
	"log/slog"
	"math/big"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weirqueue/weir/internal/smtpsink"
	"github.com/weirqueue/weir/workers/channel"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const runID = "0198c0de-0000-7000-8000-000000000001"

func message() channel.Message {
	return channel.Message{
		RunID: runID, IdempotencyKey: runID + ":0", Address: "ada@example.com",
		Subject: "Order 42 has shipped", Text: "It is on its way.\n",
		CreatedAt: time.Date(2026, 3, 1, 12, 30, 15, 987654321, time.FixedZone("CET", 3600)),
	}
}

func messageTo(address string) channel.Message {
	m := message()
	m.Address = address
	return m
}

// newChannel talks to addr in the clear, with a short bound, unless change says otherwise.
func newChannel(t *testing.T, addr string, change func(*Config)) *Channel {
	t.Helper()
	host, port, err := net.SplitHostPort(addr)
	require.NoError(t, err)
	number, err := strconv.Atoi(port)
	require.NoError(t, err)
	cfg := Config{
		Host: host, Port: number, From: "Weir <weir@sender.example>", TLS: TLSNone, HELO: "client.example",
		SendTimeout: 10 * time.Second, Logger: slog.New(slog.DiscardHandler),
	}
	if change != nil {
		change(&cfg)
	}
	c, err := New(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

func startSink(t *testing.T, cfg smtpsink.Config) *smtpsink.Sink {
	t.Helper()
	sink, err := smtpsink.Start(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, sink.Close()) })
	return sink
}

func within(d time.Duration) func(*Config) { return func(c *Config) { c.SendTimeout = d } }

// requireClass checks a definite failure.
func requireClass(t *testing.T, err error, class channel.Class, code string) {
	t.Helper()
	var classified *channel.Error
	require.ErrorAs(t, err, &classified)
	assert.Equal(t, class, classified.Class, "class of %v", err)
	assert.Equal(t, code, classified.Code, "code of %v", err)
	require.ErrorIs(t, err, channel.ErrNotSent)
}

// requireUnknown checks that nobody claims to know the outcome.
func requireUnknown(t *testing.T, err error, code string) {
	t.Helper()
	var unknown *UnknownOutcome
	require.ErrorAs(t, err, &unknown)
	assert.Equal(t, code, unknown.Code, "code of %v", err)
	require.NotErrorIs(t, err, channel.ErrNotSent)
	require.NotErrorAs(t, err, new(*channel.Error), "an unknown outcome has no class")
}

func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	require.Eventually(t, cond, 5*time.Second, 5*time.Millisecond, what)
}

// fakeServer runs script on each connection that it accepts, the first one with n = 1.
type fakeServer struct {
	net.Listener
	accepted atomic.Int64
	wg       sync.WaitGroup
	mu       sync.Mutex
	conns    []net.Conn
}

func startFake(t *testing.T, script func(n int, c *fakeConn)) *fakeServer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := &fakeServer{Listener: l}
	s.wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			n := int(s.accepted.Add(1))
			s.mu.Lock()
			s.conns = append(s.conns, conn)
			s.mu.Unlock()
			s.wg.Go(func() {
				defer conn.Close()
				script(n, newFakeConn(conn))
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		s.mu.Lock()
		for _, c := range s.conns {
			c.Close()
		}
		s.mu.Unlock()
		s.wg.Wait()
	})
	return s
}

func (s *fakeServer) addr() string { return s.Listener.Addr().String() }

// fakeConn is the server's end. Its methods ignore errors: a client that goes away ends the script by itself.
type fakeConn struct {
	net.Conn
	r *bufio.Reader
	// heard is every line so far.
	heard []string
}

func newFakeConn(c net.Conn) *fakeConn { return &fakeConn{Conn: c, r: bufio.NewReader(c)} }

func (c *fakeConn) say(lines ...string) {
	_, _ = io.WriteString(c.Conn, strings.Join(lines, "\r\n")+"\r\n")
}

func (c *fakeConn) hear() string {
	line, err := c.r.ReadString('\n')
	if err != nil {
		return ""
	}
	line = strings.TrimRight(line, "\r\n")
	c.heard = append(c.heard, line)
	return line
}

// greet goes through greeting and EHLO.
func (c *fakeConn) greet(extensions ...string) {
	c.say("220 fake ESMTP")
	c.hear()
	lines := append([]string{"fake"}, extensions...)
	for i, l := range lines {
		sep := "-"
		if i == len(lines)-1 {
			sep = " "
		}
		c.say("250" + sep + l)
	}
}

// takeMail answers MAIL, RCPT and DATA, and reads the mail with its dot. The caller answers.
func (c *fakeConn) takeMail() bool {
	for {
		line := c.hear()
		switch {
		case line == "":
			return false
		case line == "DATA":
			c.say("354 go ahead")
			return c.readMail()
		case line == "QUIT":
			c.say("221 bye")
			return false
		default:
			c.say("250 ok")
		}
	}
}

func (c *fakeConn) readMail() bool {
	for {
		switch c.hear() {
		case ".":
			return true
		case "":
			if _, err := c.r.Peek(1); err != nil {
				return false
			}
		}
	}
}

// untilGone blocks until the client hangs up, and returns what it still said.
func (c *fakeConn) untilGone() string {
	rest, _ := io.ReadAll(c.r)
	c.heard = append(c.heard, string(rest))
	return string(rest)
}

// authority is a certificate authority of the test's own.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pool *x509.CertPool
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test CA"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	cert, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	pool := x509.NewCertPool()
	pool.AddCert(cert)
	return &authority{cert: cert, key: key, pool: pool}
}

// server makes the configuration of a server with a certificate for an IP address or a name.
func (a *authority) server(t *testing.T, name string) *tls.Config {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	if ip := net.ParseIP(name); ip != nil {
		template.IPAddresses = []net.IP{ip}
	} else {
		template.DNSNames = []string{name}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	require.NoError(t, err)
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
}

func (a *authority) client() *tls.Config { return &tls.Config{RootCAs: a.pool} }

func send(t *testing.T, c *Channel, m channel.Message) error {
	t.Helper()
	_, err := c.Send(context.Background(), m)
	return err
}
