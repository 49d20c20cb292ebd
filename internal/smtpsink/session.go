package smtpsink

import (
	"bytes"
	"crypto/subtle"
	"crypto/tls"
	"errors"
	"io"
	"net/mail"
	"time"

	"github.com/emersion/go-sasl"
	"github.com/emersion/go-smtp"
)

var (
	errAuthFirst = &smtp.SMTPError{
		Code: 530, EnhancedCode: smtp.EnhancedCode{5, 7, 0}, Message: "Authentication required",
	}
	errAborted = &smtp.SMTPError{Code: 451, EnhancedCode: smtp.EnhancedCode{4, 3, 0}, Message: "Not taken"}
)

// session is one connection's conversation. go-smtp calls it from one goroutine.
type session struct {
	sink   *Sink
	conn   *watchedConn
	authed bool

	from   string
	to     []string
	action Action
}

func (s *Sink) newSession(c *smtp.Conn) (smtp.Session, error) {
	conn := c.Conn()
	if tlsConn, ok := conn.(*tls.Conn); ok {
		conn = tlsConn.NetConn()
	}
	watched, ok := conn.(*watchedConn)
	if !ok {
		return nil, errors.New("smtpsink: a connection of a foreign listener")
	}
	return &session{sink: s, conn: watched}, nil
}

func (s *session) AuthMechanisms() []string {
	if s.sink.cfg.Username == "" {
		return nil
	}
	return []string{sasl.Plain}
}

func (s *session) Auth(mech string) (sasl.Server, error) {
	if mech != sasl.Plain || s.sink.cfg.Username == "" {
		return nil, smtp.ErrAuthUnknownMechanism
	}
	return sasl.NewPlainServer(func(_, username, password string) error {
		user := subtle.ConstantTimeCompare([]byte(username), []byte(s.sink.cfg.Username))
		pass := subtle.ConstantTimeCompare([]byte(password), []byte(s.sink.cfg.Password))
		if user&pass != 1 {
			return smtp.ErrAuthFailed
		}
		s.authed = true
		return nil
	}), nil
}

func (s *session) Mail(from string, _ *smtp.MailOptions) error {
	if s.sink.cfg.Username != "" && !s.authed {
		return errAuthFirst
	}
	s.from = from
	return nil
}

func (s *session) Rcpt(to string, _ *smtp.RcptOptions) error {
	a := s.sink.cfg.Behaviour(Attempt{From: s.from, To: to, N: s.sink.tries.next(to)})
	if a.kind == refuseRecipient {
		return a.reply
	}
	s.to = append(s.to, to)
	if s.action.kind == accept {
		s.action = a
	}
	return nil
}

// Data is called while the mail comes in. What it returns is the answer to the final dot.
func (s *session) Data(r io.Reader) error {
	raw, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	switch s.action.kind {
	case refuseRecipient, refuseData:
		return s.action.reply
	case drop:
		s.conn.reset()
		return errAborted
	case dropAnswer:
		s.take(raw)
		s.conn.reset()
	case hold:
		if err := s.conn.wait(s.action.release, s.sink.closing); err != nil {
			return errAborted
		}
		s.take(raw)
	case holdAnswer:
		s.take(raw)
		_ = s.conn.wait(s.action.release, s.sink.closing)
	case accept:
		s.take(raw)
	}
	return nil
}

func (s *session) take(raw []byte) {
	m := Mail{From: s.from, To: s.to, Raw: raw, At: time.Now()}
	if parsed, err := mail.ReadMessage(bytes.NewReader(raw)); err == nil {
		m.MessageID = parsed.Header.Get("Message-Id")
	}
	s.sink.mailbox.add(m)
	if s.sink.cfg.OnMail != nil {
		s.sink.cfg.OnMail(m)
	}
}

func (s *session) Reset() { s.from, s.to, s.action = "", nil, Action{} }

func (s *session) Logout() error { return nil }
