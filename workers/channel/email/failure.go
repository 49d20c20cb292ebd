package email

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/textproto"
	"strings"
	"unicode/utf8"

	"github.com/weirqueue/weir/workers/channel"
)

// stage is how far a dialog got.
type stage string

const (
	stageConnect  stage = "connect"
	stageGreeting stage = "greeting"
	stageHello    stage = "EHLO"
	stageTLS      stage = "TLS"
	stageAuth     stage = "AUTH"
	stageMail     stage = "MAIL FROM"
	stageRcpt     stage = "RCPT TO"
	stageData     stage = "DATA"
	stageBody     stage = "body"
	stageAnswer   stage = "answer to the mail"
)

// failure is where and why a dialog ended early.
type failure struct {
	stage stage
	// dotSent says that the final dot was or may have been sent. Only stageAnswer has it.
	dotSent bool
	err     error
}

// orderly says that the server refused in good order, so that a goodbye will be heard.
func (f *failure) orderly() bool {
	reply, ok := f.reply()
	return ok && reply.code != 421
}

// reply is what the server said, if that is why the dialog ended.
func (f *failure) reply() (reply, bool) {
	var err *textproto.Error
	if !errors.As(f.err, &err) || err.Code < 400 || err.Code > 599 {
		return reply{}, false
	}
	r := reply{code: err.Code, text: err.Msg}
	first, _, _ := strings.Cut(err.Msg, " ")
	if isEnhanced(first, err.Code) {
		r.enhanced = first
	}
	return r, true
}

// text is what may be stored about a failure that is no reply. Errors about what the server sent quote it, whatever it
// was; while a password is under way it might be that.
func (f *failure) text() error {
	switch {
	case f.stage == stageAuth && !isNetwork(f.err) && !errors.Is(f.err, errNoAuth):
		return fmt.Errorf("email: %s: no agreement with the server", f.stage)
	case isProtocol(f.err):
		return fmt.Errorf("email: %s: %s", f.stage, clean(f.err.Error()))
	}
	return fmt.Errorf("email: %s: %w", f.stage, f.err)
}

// judge turns a failure into what a worker must know.
func judge(ctx context.Context, f *failure) error {
	if r, ok := f.reply(); ok {
		err := fmt.Errorf("email: %s: the server answered %d %s", f.stage, r.code, clean(r.text))
		if f.stage == stageAuth {
			// Some servers repeat what they were sent, which is a password here.
			err = fmt.Errorf("email: %s: the server answered %d %s", f.stage, r.code, r.enhanced)
		}
		return &channel.Error{Class: classify(f.stage, r), Code: r.errorCode(), Err: err}
	}

	err := f.text()
	var code string
	switch {
	case ctx.Err() != nil:
		code, err = "smtp_timeout", fmt.Errorf("%w: %w", err, context.Cause(ctx))
		if errors.Is(ctx.Err(), context.Canceled) {
			code = "smtp_canceled"
		}
	case f.stage == stageConnect && errors.As(f.err, new(*net.DNSError)):
		code = "smtp_dns"
	case f.stage == stageConnect:
		code = "smtp_connect"
	case isProtocol(f.err):
		code = "smtp_protocol"
	default:
		code = "smtp_connection_lost"
	}
	if f.dotSent {
		return &UnknownOutcome{Code: code + "_after_data", Err: err}
	}
	if ctx.Err() == nil {
		if code, ok := wrongSettings(f); ok {
			return channel.Misconfigured(code, err)
		}
	}
	return channel.NotSent(code, err)
}

// wrongSettings recognizes failures that are no replies and that the same settings will meet again.
func wrongSettings(f *failure) (code string, ok bool) {
	switch {
	case errors.Is(f.err, errNoStartTLS):
		return "smtp_starttls_missing", true
	case errors.Is(f.err, errNoAuth):
		return "smtp_auth_unsupported", true
	case errors.As(f.err, new(*tls.CertificateVerificationError)):
		return "smtp_tls_certificate", true
	case isTLS(f.err), f.stage == stageTLS && !isNetwork(f.err) && !isProtocol(f.err):
		return "smtp_tls", true
	case f.stage == stageAuth && !isNetwork(f.err) && !isProtocol(f.err):
		return "smtp_auth", true
	}
	return "", false
}

// isTLS finds the peer that speaks no TLS, and alerts in both directions. In TLS 1.3 the server's refusal of our
// certificate comes after the handshake.
func isTLS(err error) bool {
	var op *net.OpError
	return errors.As(err, new(tls.RecordHeaderError)) ||
		errors.As(err, &op) && (op.Op == "remote error" || op.Op == "local error")
}

func isNetwork(err error) bool {
	return errors.As(err, new(net.Error)) || errors.Is(err, net.ErrClosed) || isEOF(err)
}

// isProtocol finds answers that are not SMTP, or not to the question.
func isProtocol(err error) bool {
	return errors.As(err, new(textproto.ProtocolError)) || errors.As(err, new(*textproto.Error)) ||
		errors.Is(err, errUnasked) || errors.Is(err, errTooMuchReply)
}

const maxReplyText = 500

// clean makes a reply fit to be stored: valid UTF-8 without control characters, and not too long.
func clean(text string) string {
	text = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, "\uFFFD"))
	if len(text) <= maxReplyText {
		return text
	}
	n := maxReplyText
	for !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n] + "…"
}
