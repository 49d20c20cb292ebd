package email

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/mail"
	"os"
	"strings"
	"time"
)

// TLSPolicy says how the connection to the server is encrypted.
type TLSPolicy int

const (
	// TLSStartTLS begins in the clear and upgrades before anything is said about a mail or a password. A server that
	// does not offer it is a misconfiguration, and gets nothing. It is the default.
	TLSStartTLS TLSPolicy = iota
	// TLSImplicit begins with the TLS handshake.
	TLSImplicit
	// TLSNone sends mail in the clear. A password is then only given to a server on this machine, or by a mechanism
	// that does not reveal it.
	TLSNone
)

func (p TLSPolicy) String() string {
	switch p {
	case TLSStartTLS:
		return "starttls"
	case TLSImplicit:
		return "implicit"
	case TLSNone:
		return "none"
	}
	return fmt.Sprintf("TLSPolicy(%d)", int(p))
}

func (p TLSPolicy) port() int {
	switch p {
	case TLSImplicit:
		return 465
	case TLSNone:
		return 25
	case TLSStartTLS:
	}
	return 587
}

// StepTime is how long a delivery may take in its step, by default. The longest possible Send stays below it, so that
// a slow server cannot outlive the lease of the worker that talks to it.
const StepTime = 4 * time.Minute

const (
	maxMaxConns    = 1000
	maxIdleTimeout = 5 * time.Minute
)

// Config says which server takes the mail. Zero values mean the defaults.
type Config struct {
	// Host is the server's name or IP address, without a port. Certificates are checked against it. Required.
	Host string
	// Port defaults to 587, to 465 with TLSImplicit and to 25 with TLSNone.
	Port int
	// From is the sender of every mail, in its envelope and its header: "ops@example.com" or "Ops <ops@example.com>".
	// ASCII only. Required. Its domain is also the one of the Message-IDs: another domain gives mails that are being
	// tried again another Message-ID.
	From string
	// Username and Password turn authentication on, by PLAIN, LOGIN or CRAM-MD5. Both or none.
	Username, Password string

	// TLS defaults to TLSStartTLS.
	TLS TLSPolicy
	// TLSConfig adds to the defaults, which are Host as ServerName and TLS 1.2 at least. It is cloned.
	TLSConfig *tls.Config
	// HELO is the name by which the client introduces itself. Defaults to the machine's host name.
	HELO string

	// DialTimeout is for the TCP connection, name lookup included, and for asking an idle connection whether it still
	// works. Defaults to 10 s, or SendTimeout if that is less; at most SendTimeout.
	DialTimeout time.Duration
	// SendTimeout is for the whole dialog: connection, greeting, TLS, authentication and the mail. Bytes that trickle
	// in do not extend it. Defaults to 60 s.
	SendTimeout time.Duration
	// WaitTimeout is how long a Send waits for one of the MaxConns connections before it gives up as throttled.
	// Defaults to 10 s, or less where SendTimeout leaves less. Together with SendTimeout it is below StepTime.
	WaitTimeout time.Duration

	// MaxConns is how many connections this Channel opens to Host, idle ones included. Defaults to 10; from 1 to 1000.
	// Each process of a fleet has its own.
	MaxConns int
	// MaxIdle is how many connections are kept for the next mail; -1 means none. Defaults to 2, or MaxConns if that is
	// less.
	MaxIdle int
	// IdleTimeout is how long an unused connection is kept. Defaults to 30 s; at most 5 min, after which servers hang
	// up.
	IdleTimeout time.Duration

	// Logger hears at debug level about connections that could not be closed in good order. Defaults to slog.Default().
	Logger *slog.Logger
}

func (c Config) withDefaults() Config {
	c.Port = cmp.Or(c.Port, c.TLS.port())
	c.HELO = cmp.Or(c.HELO, defaultHELO())
	c.SendTimeout = cmp.Or(c.SendTimeout, time.Minute)
	c.DialTimeout = cmp.Or(c.DialTimeout, min(10*time.Second, c.SendTimeout))
	c.WaitTimeout = cmp.Or(c.WaitTimeout, min(10*time.Second, (StepTime-c.SendTimeout)/2))
	c.MaxConns = cmp.Or(c.MaxConns, 10)
	c.MaxIdle = cmp.Or(c.MaxIdle, min(2, c.MaxConns))
	c.IdleTimeout = cmp.Or(c.IdleTimeout, 30*time.Second)
	c.Logger = cmp.Or(c.Logger, slog.Default())
	return c
}

func defaultHELO() string {
	if name, err := os.Hostname(); err == nil && isToken(name) {
		return name
	}
	return "localhost"
}

// validate reports every fault of a configuration that has its defaults. It never shows the password.
func (c Config) validate() error {
	var faults []error
	fault := func(field string, value any, bound string) {
		faults = append(faults, fmt.Errorf("%s %v: must be %s", field, value, bound))
	}
	upTo := func(field string, value, high time.Duration, bound string) {
		if value <= 0 || value > high {
			fault(field, value, "above 0 and "+bound)
		}
	}
	if !isToken(c.Host) || strings.ContainsAny(c.Host, "/[]@") || strings.Contains(c.Host, ":") && net.ParseIP(c.Host) == nil {
		fault("Host", fmt.Sprintf("%q", c.Host), "a host name or an IP address, without a port")
	}
	if c.Port < 1 || c.Port > 65535 {
		fault("Port", c.Port, "from 1 to 65535")
	}
	if _, err := parseFrom(c.From); err != nil {
		fault("From", fmt.Sprintf("%q", c.From), "one ASCII address such as ops@example.com: "+err.Error())
	}
	if (c.Username == "") != (c.Password == "") {
		fault("Username and Password", "(one of them is empty)", "both set or both empty")
	}
	if strings.ContainsAny(c.Username+c.Password, "\x00\r\n") {
		fault("Username and Password", "(not shown)", "free of NUL and line breaks")
	}
	if c.TLS < TLSStartTLS || c.TLS > TLSNone {
		fault("TLS", c.TLS, "TLSStartTLS, TLSImplicit or TLSNone")
	}
	if c.TLSConfig != nil && c.TLS == TLSNone {
		fault("TLSConfig", "(set)", "nil with TLSNone")
	}
	if !isToken(c.HELO) {
		fault("HELO", fmt.Sprintf("%q", c.HELO), "a host name")
	}
	upTo("SendTimeout", c.SendTimeout, StepTime-1, "below "+StepTime.String())
	upTo("DialTimeout", c.DialTimeout, max(c.SendTimeout, 1), "at most SendTimeout")
	if c.SendTimeout > 0 && c.SendTimeout < StepTime {
		upTo("WaitTimeout", c.WaitTimeout, StepTime-c.SendTimeout-1, "together with SendTimeout below "+StepTime.String())
	}
	if c.MaxConns < 1 || c.MaxConns > maxMaxConns {
		fault("MaxConns", c.MaxConns, fmt.Sprintf("from 1 to %d", maxMaxConns))
	}
	if c.MaxIdle < -1 || c.MaxIdle > c.MaxConns {
		fault("MaxIdle", c.MaxIdle, "from -1 to MaxConns")
	}
	upTo("IdleTimeout", c.IdleTimeout, maxIdleTimeout, "at most "+maxIdleTimeout.String())
	return errors.Join(faults...)
}

// parseFrom reads the sender, whose domain becomes part of every Message-ID.
func parseFrom(from string) (*mail.Address, error) {
	if !isPrintableASCII(from) {
		return nil, errors.New("it is not ASCII, or holds control characters")
	}
	parsed, err := mail.ParseAddress(from)
	if err != nil {
		return nil, err
	}
	if len(parsed.Address) > maxAddressBytes {
		return nil, fmt.Errorf("it is longer than %d bytes", maxAddressBytes)
	}
	return parsed, nil
}

// isToken is for what goes into a command as one word.
func isToken(s string) bool {
	return s != "" && len(s) <= 255 && isPrintableASCII(s) && !strings.ContainsAny(s, " <>")
}

func isPrintableASCII(s string) bool {
	for _, b := range []byte(s) {
		if b < ' ' || b > '~' {
			return false
		}
	}
	return true
}
