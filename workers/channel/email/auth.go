package email

import (
	"encoding/base64"
	"errors"
	"net/textproto"
	"slices"
	"strings"

	"github.com/wneessen/go-mail/smtp"
)

var errNoAuth = errors.New("the server offers no way to authenticate that is safe on this connection")

type mechanism struct {
	name string
	auth smtp.Auth
}

// chooseAuth prefers, on an encrypted connection, what works with every kind of password store. In the clear, only a
// server on this machine is shown the password.
//
// SCRAM is left out: it lets the server choose how long the client computes, which no deadline ends.
func (d dialer) chooseAuth(offered string) (mechanism, error) {
	user, pass := d.cfg.Username, d.cfg.Password
	plain := mechanism{"PLAIN", smtp.PlainAuth("", user, pass, d.cfg.Host, false)}
	login := mechanism{"LOGIN", smtp.LoginAuth(user, pass, d.cfg.Host, false)}
	cram := mechanism{"CRAM-MD5", smtp.CRAMMD5Auth(user, pass)}

	var order []mechanism
	switch {
	case d.cfg.TLS != TLSNone:
		order = []mechanism{plain, login, cram}
	case isLocalhost(d.cfg.Host):
		order = []mechanism{cram, plain, login}
	default:
		order = []mechanism{cram}
	}
	names := strings.Fields(strings.ToUpper(offered))
	for _, m := range order {
		if slices.Contains(names, m.name) {
			return m, nil
		}
	}
	return mechanism{}, errNoAuth
}

func isLocalhost(host string) bool {
	return host == "localhost" || host == "127.0.0.1" || host == "::1"
}

// authenticate is in place of go-mail's Client.Auth, which answers a refusal with "*" and QUIT and waits for both.
func (d dialer) authenticate(text *textproto.Conn, m mechanism) error {
	info := &smtp.ServerInfo{Name: d.cfg.Host, TLS: d.cfg.TLS != TLSNone, Auth: []string{m.name}}
	name, response, err := m.auth.Start(info)
	if err != nil {
		return err
	}
	line := "AUTH " + name
	if response != nil {
		line += " " + base64.StdEncoding.EncodeToString(response)
	}
	for {
		if err := text.PrintfLine("%s", line); err != nil {
			return err
		}
		code, answer, err := text.ReadResponse(0)
		if err != nil {
			return err
		}
		switch code {
		case 235:
			return nil
		case 334:
			challenge, err := base64.StdEncoding.DecodeString(answer)
			if err != nil {
				return err
			}
			if response, err = m.auth.Next(challenge, true); err != nil {
				return err
			}
			line = base64.StdEncoding.EncodeToString(response)
		default:
			return &textproto.Error{Code: code, Msg: answer}
		}
	}
}
