package email

import (
	"context"
	"errors"
	"fmt"
	netmail "net/mail"

	"github.com/weirqueue/weir/workers/channel"
)

var errSendTimeout = fmt.Errorf("email: SendTimeout passed: %w", context.DeadlineExceeded)

// Channel sends mail through one SMTP server. It is safe for concurrent use. Close it after the last Send.
type Channel struct {
	cfg    Config
	from   *netmail.Address
	dialer dialer
	pool   *pool
}

var _ channel.Channel = (*Channel)(nil)

// New checks cfg and reports all of its faults at once. It does not connect.
func New(cfg Config) (*Channel, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("email: bad configuration: %w", err)
	}
	from, err := parseFrom(cfg.From)
	if err != nil {
		return nil, fmt.Errorf("email: %w", err)
	}
	return &Channel{cfg: cfg, from: from, dialer: newDialer(cfg), pool: newPool(cfg)}, nil
}

// Effect is AtLeastOnce: SMTP has no idempotency keys. A mail sent again has the same bytes, its Message-ID included.
func (c *Channel) Effect() channel.Effect { return channel.AtLeastOnce }

// Send sends one mail to one recipient in one SMTP dialog. It ends within WaitTimeout and SendTimeout, and at once
// when ctx ends. It tries once: the only thing that it does again is to open a connection, when an idle one turned out
// to be dead before anything of the mail was said.
//
// A nil error means that the server answered 250 to the final dot; nothing that happens afterwards changes that. The
// reference is the Message-ID. See the package's documentation for what each error means. An *UnknownOutcome means that
// the mail may have been taken.
func (c *Channel) Send(ctx context.Context, m channel.Message) (channel.Sent, error) {
	mail, err := render(c.from, m)
	if err != nil {
		return channel.Sent{}, err
	}
	if err := c.pool.acquire(ctx); err != nil {
		return channel.Sent{}, notAcquired(err)
	}
	giveBack := c.pool.release
	defer func() { giveBack() }() // after a panic too

	ctx, cancel := context.WithTimeoutCause(ctx, c.cfg.SendTimeout, errSendTimeout)
	defer cancel()
	l, f := c.connect(ctx)
	if f != nil {
		return channel.Sent{}, judge(ctx, f)
	}
	giveBack = func() { c.pool.discard(l) }
	stop := l.wire.boundBy(ctx)
	f = l.deliver(ctx, mail)
	unharmed := stop()
	if f != nil {
		if unharmed && f.orderly() {
			giveBack = func() { c.pool.leave(l) }
		}
		return channel.Sent{}, judge(ctx, f)
	}
	if unharmed {
		giveBack = func() { c.pool.keep(l) }
	}
	return channel.Sent{ExternalRef: mail.messageID}, nil
}

// Close says goodbye to the idle connections, which takes a few seconds at most, and makes every later Send fail as not
// sent. A Send that is running ends as it would have.
func (c *Channel) Close() error {
	c.pool.close()
	return nil
}

// connect takes an idle connection if it still works, else it opens one.
func (c *Channel) connect(ctx context.Context) (*link, *failure) {
	if l := c.pool.takeIdle(); l != nil {
		if l.probe(ctx, c.cfg.DialTimeout) {
			return l, nil
		}
		// The server hung up while nobody used it. Nothing was sent, so a new one is no repetition.
		l.wire.drop()
	}
	return c.dialer.dial(ctx)
}

func notAcquired(err error) error {
	switch {
	case errors.Is(err, errBusy):
		return channel.Throttled(0, "smtp_busy", err)
	case errors.Is(err, errClosed):
		return channel.NotSent("smtp_closed", err)
	case errors.Is(err, context.DeadlineExceeded):
		return channel.NotSent("smtp_timeout", err)
	}
	return channel.NotSent("smtp_canceled", err)
}

// UnknownOutcome says that the final dot was or may have been sent, and that no answer came: the server may have taken
// the mail. It is not a channel.Error, and does not match channel.ErrNotSent.
type UnknownOutcome struct {
	// Code is one of the codes that end in _after_data.
	Code string
	Err  error
}

func (e *UnknownOutcome) Error() string { return e.Code + ": " + e.Err.Error() }

func (e *UnknownOutcome) Unwrap() error { return e.Err }
