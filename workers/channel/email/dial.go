package email

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"strconv"

	"github.com/wneessen/go-mail/smtp"
)

var errNoStartTLS = errors.New("the server does not offer STARTTLS")

// dialer opens connections on which a mail can be sent at once.
type dialer struct {
	cfg     Config
	tls     *tls.Config
	connect func(ctx context.Context, network, address string) (net.Conn, error)
}

func newDialer(cfg Config) dialer {
	t := &tls.Config{MinVersion: tls.VersionTLS12}
	if cfg.TLSConfig != nil {
		t = cfg.TLSConfig.Clone()
		t.MinVersion = max(t.MinVersion, tls.VersionTLS12)
	}
	if t.ServerName == "" {
		t.ServerName = cfg.Host
	}
	return dialer{cfg: cfg, tls: t, connect: (&net.Dialer{}).DialContext}
}

// dial connects and goes through greeting, TLS and authentication. A connection that fails is dropped.
func (d dialer) dial(ctx context.Context) (*link, *failure) {
	tcpCtx, cancel := context.WithTimeout(ctx, d.cfg.DialTimeout)
	defer cancel()
	conn, err := d.connect(tcpCtx, "tcp", net.JoinHostPort(d.cfg.Host, strconv.Itoa(d.cfg.Port)))
	if err != nil {
		return nil, &failure{stage: stageConnect, err: err}
	}
	w := &wire{Conn: conn, allowance: maxReplyBytes}
	stop := w.boundBy(ctx)
	defer stop()
	var l *link
	defer func() {
		if l == nil { // after a panic too
			w.drop()
		}
	}()
	client, f := d.open(ctx, w)
	if f == nil {
		l = &link{wire: w, client: client}
	}
	return l, f
}

func (d dialer) open(ctx context.Context, w *wire) (*smtp.Client, *failure) {
	var conn net.Conn = w
	if d.cfg.TLS == TLSImplicit {
		t := tls.Client(w, d.tls)
		if err := t.HandshakeContext(ctx); err != nil {
			return nil, &failure{stage: stageTLS, err: err}
		}
		conn = t
	}
	client, err := smtp.NewClient(conn, d.cfg.Host)
	if err != nil {
		return nil, &failure{stage: stageGreeting, err: err}
	}
	// Addresses are ASCII, so the mail needs no SMTPUTF8; asking for it would make other servers bounce it.
	client.SkipSMTPUTF8(true)
	if err := client.Hello(d.cfg.HELO); err != nil {
		return nil, &failure{stage: stageHello, err: err}
	}
	if d.cfg.TLS == TLSStartTLS {
		if ok, _ := client.Extension("STARTTLS"); !ok {
			return nil, &failure{stage: stageTLS, err: errNoStartTLS}
		}
		// This also forgets what came in the clear after the answer to STARTTLS.
		if err := client.StartTLS(d.tls); err != nil {
			return nil, &failure{stage: stageTLS, err: err}
		}
	}
	if d.cfg.Username == "" {
		return client, nil
	}
	_, mechanisms := client.Extension("AUTH")
	chosen, err := d.chooseAuth(mechanisms)
	if err != nil {
		return nil, &failure{stage: stageAuth, err: err}
	}
	if err := d.authenticate(client.Text, chosen); err != nil {
		return nil, &failure{stage: stageAuth, err: err}
	}
	return client, nil
}
