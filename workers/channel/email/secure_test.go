package email

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/internal/smtpsink"
)

const password = "correct horse battery staple"

func TestSend_OverTLSWithAPassword(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	for _, policy := range []TLSPolicy{TLSStartTLS, TLSImplicit} {
		t.Run(policy.String(), func(t *testing.T) {
			t.Parallel()
			sink := startSink(t, smtpsink.Config{
				TLSConfig: ca.server(t, "127.0.0.1"), ImplicitTLS: policy == TLSImplicit, Username: "weir", Password: password,
			})
			c := newChannel(t, sink.Addr(), func(c *Config) {
				c.TLS, c.TLSConfig, c.Username, c.Password = policy, ca.client(), "weir", password
			})
			require.NoError(t, send(t, c, message()))
			require.NoError(t, send(t, c, message()), "on the same connection")
			require.Equal(t, 2, sink.Count())

			wrong := newChannel(t, sink.Addr(), func(c *Config) {
				c.TLS, c.TLSConfig, c.Username, c.Password = policy, ca.client(), "weir", "wrong password"
			})
			err := send(t, wrong, message())
			requireClass(t, err, misconfigured, "smtp_535_5.7.8")
			require.NotContains(t, err.Error(), "wrong password")

			without := newChannel(t, sink.Addr(), func(c *Config) { c.TLS, c.TLSConfig = policy, ca.client() })
			requireClass(t, send(t, without, message()), misconfigured, "smtp_530_5.7.0")
		})
	}
}

func TestSend_SettingsOfTLSThatDoNotFit(t *testing.T) { // EM-02, EM-04
	t.Parallel()
	ca, other := newAuthority(t), newAuthority(t)
	clientCert := ca.server(t, "127.0.0.1")
	clientCert.ClientAuth = tls.RequireAnyClientCert
	for _, tc := range []struct {
		name   string
		sink   smtpsink.Config
		policy TLSPolicy
		roots  *authority
		code   string
	}{
		{"no STARTTLS", smtpsink.Config{}, TLSStartTLS, ca, "smtp_starttls_missing"},
		{"plain on the TLS port", smtpsink.Config{}, TLSImplicit, ca, "smtp_tls"},
		{"another name", smtpsink.Config{TLSConfig: ca.server(t, "other.example")}, TLSStartTLS, ca, "smtp_tls_certificate"},
		{"another name, implicit", smtpsink.Config{TLSConfig: ca.server(t, "other.example"), ImplicitTLS: true}, TLSImplicit, ca, "smtp_tls_certificate"},
		{"unknown authority", smtpsink.Config{TLSConfig: ca.server(t, "127.0.0.1")}, TLSStartTLS, other, "smtp_tls_certificate"},
		{"wants our certificate", smtpsink.Config{TLSConfig: clientCert, ImplicitTLS: true}, TLSImplicit, ca, "smtp_tls"},
		{"wants our certificate after STARTTLS", smtpsink.Config{TLSConfig: clientCert}, TLSStartTLS, ca, "smtp_tls"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			sink := startSink(t, tc.sink)
			c := newChannel(t, sink.Addr(), func(c *Config) { c.TLS, c.TLSConfig = tc.policy, tc.roots.client() })
			requireClass(t, send(t, c, message()), misconfigured, tc.code)
			require.Zero(t, sink.Count())
		})
	}
}

// Whoever can read along must not be able to take STARTTLS away and read the mail.
func TestSend_NothingInTheClearWithoutSTARTTLS(t *testing.T) {
	t.Parallel()
	heard := make(chan string, 1)
	fake := startFake(t, func(_ int, c *fakeConn) {
		c.greet("AUTH PLAIN")
		heard <- c.untilGone()
	})
	c := newChannel(t, fake.addr(), func(c *Config) { c.TLS, c.Username, c.Password = TLSStartTLS, "weir", password })
	requireClass(t, send(t, c, message()), misconfigured, "smtp_starttls_missing")
	require.Empty(t, <-heard)
}

func TestSend_ApplicationsOwnCheckOfTheServer(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	sink := startSink(t, smtpsink.Config{TLSConfig: ca.server(t, "127.0.0.1")})
	c := newChannel(t, sink.Addr(), func(c *Config) {
		c.TLS, c.TLSConfig = TLSStartTLS, ca.client()
		c.TLSConfig.VerifyConnection = func(tls.ConnectionState) error { return errors.New("not the pinned key") }
	})
	err := send(t, c, message())
	requireClass(t, err, misconfigured, "smtp_tls")
	require.ErrorContains(t, err, "not the pinned key")
}

func TestSend_ContextThatEndsInTheHandshakeIsNoMisconfiguration(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	fake := startFake(t, func(_ int, c *fakeConn) {
		_, _ = c.r.ReadByte()
		cancel()
		c.untilGone()
	})
	_, err := newChannel(t, fake.addr(), func(c *Config) { c.TLS = TLSImplicit }).Send(ctx, message())
	requireClass(t, err, temporary, "smtp_canceled")
}

func TestSend_PlainAnswerToSTARTTLS(t *testing.T) {
	t.Parallel()
	fake := startFake(t, func(_ int, c *fakeConn) {
		c.greet("STARTTLS")
		c.hear()
		c.say("220 go on")
		_, _ = c.r.ReadByte()
		c.say("this is not TLS at all")
		c.untilGone()
	})
	c := newChannel(t, fake.addr(), func(c *Config) { c.TLS = TLSStartTLS })
	requireClass(t, send(t, c, message()), misconfigured, "smtp_tls")
}

// What somebody in the middle adds in the clear is not heard as if it had been encrypted.
func TestSend_ForgetsWhatCameInTheClear(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	fake := startFake(t, func(_ int, c *fakeConn) {
		c.greet("STARTTLS")
		c.hear()
		c.say("220 go on", "250-fake", "250 AUTH PLAIN")
		encrypted := newFakeConn(tls.Server(c.Conn, ca.server(t, "127.0.0.1")))
		encrypted.hear()
		encrypted.say("250 fake")
		if encrypted.takeMail() {
			encrypted.say("250 taken")
			encrypted.takeMail()
		}
	})
	c := newChannel(t, fake.addr(), func(c *Config) { c.TLS, c.TLSConfig = TLSStartTLS, ca.client() })
	require.NoError(t, send(t, c, message()))
}

func TestSend_RefusedSTARTTLS(t *testing.T) {
	t.Parallel()
	fake := startFake(t, func(_ int, c *fakeConn) {
		c.greet("STARTTLS")
		c.hear()
		c.say("454 4.3.0 not now")
		c.untilGone()
	})
	c := newChannel(t, fake.addr(), func(c *Config) { c.TLS = TLSStartTLS })
	requireClass(t, send(t, c, message()), temporary, "smtp_454_4.3.0")
}

func TestSend_ErrorsNeverHoldThePassword(t *testing.T) {
	t.Parallel()
	encoded := base64.StdEncoding.EncodeToString([]byte("\x00weir\x00" + password))
	for name, answer := range map[string]string{
		"repeats it":              "535 5.7.8 wrong: " + password,
		"repeats the command":     "500 what is AUTH PLAIN " + encoded,
		"no SMTP":                 password,
		"challenge after PLAIN":   "334 " + encoded,
		"challenge is no base64":  "334 *" + password,
		"success is no 235":       "250 " + password,
		"throttles and repeats":   "421 4.7.0 slow down, " + encoded,
		"temporary and repeats":   "454 4.7.0 " + password,
		"cut in the middle of it": "535 5.7.8 " + password[:10],
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fake := startFake(t, func(_ int, c *fakeConn) {
				c.greet("AUTH PLAIN LOGIN")
				c.hear()
				c.say(answer)
				c.say(answer)
				c.say(answer)
			})
			c := newChannel(t, fake.addr(), func(c *Config) { c.Username, c.Password = "weir", password })
			err := send(t, c, message())
			require.Error(t, err)
			if strings.HasPrefix(name, "challenge") {
				requireClass(t, err, misconfigured, "smtp_auth")
			}
			assert.NotContains(t, err.Error(), password[:10])
			assert.NotContains(t, err.Error(), encoded)
		})
	}
}

// The refusal is the last word: a server that hangs after it holds nobody up.
func TestSend_RefusedPasswordIsNotFollowedByAWord(t *testing.T) {
	t.Parallel()
	rest := make(chan string, 1)
	fake := startFake(t, func(_ int, c *fakeConn) {
		c.greet("AUTH PLAIN")
		c.hear()
		c.say("535-5.7.8 no", "535 5.7.8 and read this")
		rest <- c.untilGone()
	})
	c := newChannel(t, fake.addr(), func(c *Config) { c.Username, c.Password = "weir", password })
	requireClass(t, send(t, c, message()), misconfigured, "smtp_535_5.7.8")
	require.Empty(t, <-rest)
}

func TestSend_AuthenticatesByLOGINAndCRAM(t *testing.T) {
	t.Parallel()
	for mech, script := range map[string]func(c *fakeConn) bool{
		"LOGIN": func(c *fakeConn) bool {
			c.say("334 " + base64.StdEncoding.EncodeToString([]byte("Username:")))
			user := c.hear()
			c.say("334 " + base64.StdEncoding.EncodeToString([]byte("Password:")))
			return user == base64.StdEncoding.EncodeToString([]byte("weir")) &&
				c.hear() == base64.StdEncoding.EncodeToString([]byte(password))
		},
		"CRAM-MD5": func(c *fakeConn) bool {
			c.say("334 " + base64.StdEncoding.EncodeToString([]byte("<1@fake>")))
			answer, err := base64.StdEncoding.DecodeString(c.hear())
			return err == nil && strings.HasPrefix(string(answer), "weir ")
		},
	} {
		t.Run(mech, func(t *testing.T) {
			t.Parallel()
			fake := startFake(t, func(_ int, c *fakeConn) {
				c.greet("AUTH " + mech)
				if c.hear() != "AUTH "+mech || !script(c) {
					c.say("535 no")
					return
				}
				c.say("235 welcome")
				if c.takeMail() {
					c.say("250 taken")
					c.takeMail()
				}
			})
			c := newChannel(t, fake.addr(), func(c *Config) { c.Username, c.Password = "weir", password })
			require.NoError(t, send(t, c, message()))
		})
	}
}

func TestChooseAuth(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, host string
		policy     TLSPolicy
		offered    string
		want       string
	}{
		{"works with every password store first", "mx.example", TLSStartTLS, "CRAM-MD5 SCRAM-SHA-256 LOGIN PLAIN", "PLAIN"},
		{"LOGIN where there is no PLAIN", "mx.example", TLSImplicit, "LOGIN CRAM-MD5", "LOGIN"},
		{"in any case of letters", "mx.example", TLSStartTLS, "plain", "PLAIN"},
		{"nothing that we know", "mx.example", TLSStartTLS, "GSSAPI XOAUTH2 SCRAM-SHA-256", ""},
		{"nothing at all", "mx.example", TLSStartTLS, "", ""},
		{"no password in the clear", "mx.example", TLSNone, "PLAIN LOGIN", ""},
		{"only a proof in the clear", "mx.example", TLSNone, "PLAIN LOGIN CRAM-MD5", "CRAM-MD5"},
		{"in the clear to this machine", "127.0.0.1", TLSNone, "PLAIN", "PLAIN"},
		{"PLAIN before LOGIN there too", "localhost", TLSNone, "LOGIN PLAIN", "PLAIN"},
		{"a proof to this machine too", "::1", TLSNone, "PLAIN CRAM-MD5", "CRAM-MD5"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := newDialer(Config{Host: tc.host, TLS: tc.policy, Username: "u", Password: "p"})
			m, err := d.chooseAuth(tc.offered)
			if tc.want == "" {
				require.ErrorIs(t, err, errNoAuth)
				return
			}
			require.NoError(t, err)
			require.Equal(t, tc.want, m.name)
		})
	}
}

func TestSend_NoCommonWayToAuthenticate(t *testing.T) {
	t.Parallel()
	sink := startSink(t, smtpsink.Config{})
	c := newChannel(t, sink.Addr(), func(c *Config) { c.Username, c.Password = "weir", password })
	requireClass(t, send(t, c, message()), misconfigured, "smtp_auth_unsupported")
}
