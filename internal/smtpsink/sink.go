// Package smtpsink is a real SMTP server inside the process: it takes mail over TCP on a loopback address and keeps it
// in memory. The demo sends to it, and tests script what it answers to each recipient.
//
// # When a mail counts as received
//
// A mail is received at the moment when the server takes responsibility for it: after the final dot was read, and
// before the answer to it is written. So it counts when the answer is then lost (DropAnswer) or withheld
// (HoldAnswer), as it does at a real server, and a client that sends it again makes a second mail. It does not count
// when the server refused the recipient or the data, when the connection broke before the final dot, or when the
// client went away while the server had not made up its mind (Hold).
package smtpsink

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"sync"
	"time"

	"github.com/emersion/go-smtp"
)

// Config says how a sink behaves. The zero value is a sink on a free port that takes everything.
type Config struct {
	// Addr is a loopback address with a port; other addresses are refused, since the sink relays for nobody.
	// Defaults to 127.0.0.1:0, a free port.
	Addr string
	// Behaviour answers each recipient. It is called by many goroutines at once. Nil accepts everything.
	Behaviour Behaviour
	// OnMail is called with every received mail before it is answered, by many goroutines at once. Optional.
	OnMail func(Mail)

	// TLSConfig turns STARTTLS on. Nil means that the sink speaks in the clear.
	TLSConfig *tls.Config
	// ImplicitTLS starts with the handshake instead of STARTTLS. It needs a TLSConfig.
	ImplicitTLS bool
	// Username and Password, when set, are required by AUTH PLAIN before MAIL.
	Username, Password string

	// Keep is how many mails are kept; older ones are forgotten but stay counted. Defaults to 1000.
	Keep int
	// KeepBytes is how many bytes of mail are kept. Defaults to 64 MiB.
	KeepBytes int64
	// MaxMessageBytes is the longest mail that is taken; longer ones are answered with 552 5.3.4. Defaults to 8 MiB.
	MaxMessageBytes int64
}

func (c Config) withDefaults() Config {
	c.Addr = cmp.Or(c.Addr, "127.0.0.1:0")
	if c.Behaviour == nil {
		c.Behaviour = Always(Accept())
	}
	c.Keep = cmp.Or(c.Keep, 1000)
	c.KeepBytes = cmp.Or(c.KeepBytes, 64<<20)
	c.MaxMessageBytes = cmp.Or(c.MaxMessageBytes, 8<<20)
	return c
}

func (c Config) validate() error {
	var faults []error
	if host, _, err := net.SplitHostPort(c.Addr); err != nil {
		faults = append(faults, fmt.Errorf("Addr %q: must be host:port: %w", c.Addr, err))
	} else if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		faults = append(faults, fmt.Errorf("Addr %q: must be a loopback address", c.Addr))
	}
	if c.ImplicitTLS && c.TLSConfig == nil {
		faults = append(faults, errors.New("ImplicitTLS true: needs a TLSConfig"))
	}
	if c.Keep < 0 {
		faults = append(faults, fmt.Errorf("Keep %d: must be at least 0", c.Keep))
	}
	if c.KeepBytes < 0 {
		faults = append(faults, fmt.Errorf("KeepBytes %d: must be at least 0", c.KeepBytes))
	}
	if c.MaxMessageBytes < 0 {
		faults = append(faults, fmt.Errorf("MaxMessageBytes %d: must be at least 0", c.MaxMessageBytes))
	}
	return errors.Join(faults...)
}

// Sink is a running server. Its methods are safe for concurrent use.
type Sink struct {
	cfg      Config
	mailbox  *mailbox
	tries    *tries
	listener *trackingListener
	server   *smtp.Server

	closing   chan struct{}
	closeOnce sync.Once
	serving   sync.WaitGroup
}

// Start listens and serves. The caller closes the sink.
func Start(cfg Config) (*Sink, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("smtpsink: %w", err)
	}
	inner, err := net.Listen("tcp", cfg.Addr) //nolint:noctx // a loopback address is there at once
	if err != nil {
		return nil, fmt.Errorf("smtpsink: %w", err)
	}
	s := &Sink{
		cfg: cfg, mailbox: newMailbox(cfg.Keep, cfg.KeepBytes), tries: newTries(),
		listener: trackConns(inner), closing: make(chan struct{}),
	}
	s.server = smtp.NewServer(smtp.BackendFunc(s.newSession))
	s.server.Domain = "smtpsink.localhost"
	s.server.MaxMessageBytes = cfg.MaxMessageBytes
	s.server.ErrorLog = log.New(io.Discard, "", 0)

	var listener net.Listener = s.listener
	switch {
	case cfg.TLSConfig == nil:
		s.server.AllowInsecureAuth = true
	case cfg.ImplicitTLS:
		listener = tls.NewListener(listener, cfg.TLSConfig)
	default:
		s.server.TLSConfig = cfg.TLSConfig
	}
	s.serving.Go(func() { _ = s.server.Serve(listener) })
	return s, nil
}

// Addr is where the sink listens, as host:port.
func (s *Sink) Addr() string { return s.listener.Addr().String() }

// Count is how many mails were received since the start, forgotten ones included.
func (s *Sink) Count() int { return s.mailbox.count() }

// Mails returns the mails that are still kept, oldest first. The Raw bytes are shared: do not change them.
func (s *Sink) Mails() []Mail { return s.mailbox.list() }

// Wait returns when n mails have been received, or with ctx's error.
func (s *Sink) Wait(ctx context.Context, n int) error { return s.mailbox.wait(ctx, n) }

// Conns is how many connections are open now.
func (s *Sink) Conns() int { return s.listener.open() }

// Close cuts every connection, waits until the server's goroutines are gone, and keeps the mails. Mails that are held
// are not received. Closing twice does nothing.
func (s *Sink) Close() error {
	var err error
	s.closeOnce.Do(func() {
		close(s.closing)
		// In this order, since go-smtp's own Close waits for nobody: no new connection, no accept loop, no open
		// connection, no handler.
		err = s.listener.Close()
		s.serving.Wait()
		s.listener.cutAll()
		_ = s.server.Shutdown(context.Background())
	})
	return err
}

// Mail is a mail that the sink has taken.
type Mail struct {
	// From is the envelope's sender, To its recipients.
	From string
	To   []string
	// MessageID is the header's value with its angle brackets; empty if there was none.
	MessageID string
	// Raw is the mail as it came, dot-stuffing undone.
	Raw []byte
	// At is when it was taken.
	At time.Time
}
