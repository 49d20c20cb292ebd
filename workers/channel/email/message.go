package email

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	netmail "net/mail"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/wneessen/go-mail"

	"github.com/weirqueue/weir/workers/channel"
)

// maxAddressBytes is what RFC 5321 leaves for an address between its angle brackets.
const maxAddressBytes = 254

// envelope is a message that is ready to be sent: nothing about its content can fail any more.
type envelope struct {
	// from and to are in the form of SMTP, with angle brackets.
	from, to  string
	messageID string
	data      []byte
}

// render makes the mail. The same message always gives the same bytes, so that a mail sent twice is one mail to every
// program that looks at the Message-ID, the date or the whole. What it cannot carry unchanged, it refuses.
func render(from *netmail.Address, m channel.Message) (envelope, error) {
	to, err := recipient(m.Address)
	if err != nil {
		return envelope{}, err
	}
	if err := checkText(m); err != nil {
		return envelope{}, err
	}
	id, err := messageID(m, from)
	if err != nil {
		return envelope{}, err
	}
	if m.CreatedAt.IsZero() {
		return envelope{}, channel.Refused("smtp_message_invalid", errors.New("email: the message has no CreatedAt"))
	}

	msg := mail.NewMsg(mail.WithNoDefaultUserAgent(), mail.WithBoundary(boundary(m)))
	msg.FromMailAddress(from)
	msg.ToMailAddress(to)
	msg.SetMessageIDWithValue(strings.Trim(id, "<>"))
	msg.SetDateWithValue(m.CreatedAt.UTC())
	msg.SetGenHeader(mail.HeaderSubject, encodeSubject(m.Subject))
	// RFC 3834: no vacation notes in return.
	msg.SetGenHeader("Auto-Submitted", "auto-generated")
	// Quoted-printable, go-mail's default, keeps lines short and free of bare CR and LF.
	switch {
	case m.HTML == "":
		msg.SetBodyString(mail.TypeTextPlain, breakLines(m.Text))
	case m.Text == "":
		msg.SetBodyString(mail.TypeTextHTML, breakLines(m.HTML))
	default:
		msg.SetBodyString(mail.TypeTextPlain, breakLines(m.Text))
		msg.AddAlternativeString(mail.TypeTextHTML, breakLines(m.HTML))
	}
	var data bytes.Buffer
	if _, err := msg.WriteTo(&data); err != nil {
		return envelope{}, channel.Refused("smtp_message_invalid", fmt.Errorf("email: encode the message: %w", err))
	}
	bare := netmail.Address{Address: from.Address}
	return envelope{from: bare.String(), to: to.String(), messageID: id, data: data.Bytes()}, nil
}

var lineBreaks = strings.NewReplacer("\r\n", "\n", "\r", "\n")

// breakLines writes every line break as LF, which the encoder makes CRLF. Given a bare CR, mime/quotedprintable drops
// the next LF on certain conditions, as in "\r=\n".
func breakLines(s string) string { return lineBreaks.Replace(s) }

// recipient takes a plain ASCII address and nothing else: no display name, no list, no line break.
func recipient(address string) (*netmail.Address, error) {
	if strings.ContainsAny(address, "\r\n\x00") {
		return nil, channel.Refused("smtp_header_injection", errors.New("email: the address holds a line break or NUL"))
	}
	to, err := netmail.ParseAddress(address)
	switch {
	case err != nil:
		err = errors.New("email: the address cannot be read") // net/mail's own error quotes it
	case to.Name != "" || to.Address != address:
		err = errors.New("email: the address must be a plain one such as ada@example.com")
	case !isPrintableASCII(address):
		err = errors.New("email: the address must be ASCII")
	case len(address) > maxAddressBytes:
		err = fmt.Errorf("email: the address is longer than %d bytes", maxAddressBytes)
	default:
		return to, nil
	}
	return nil, channel.Refused("smtp_address_invalid", err)
}

func checkText(m channel.Message) error {
	if strings.ContainsAny(m.Subject, "\r\n\x00") {
		return channel.Refused("smtp_header_injection", errors.New("email: the subject holds a line break or NUL"))
	}
	for _, field := range []struct{ name, value string }{{"subject", m.Subject}, {"text", m.Text}, {"HTML", m.HTML}} {
		if !utf8.ValidString(field.value) || strings.Contains(field.value, "\x00") {
			return channel.Refused("smtp_text_invalid", fmt.Errorf("email: the %s holds NUL or invalid UTF-8", field.name))
		}
	}
	return nil
}

// messageID is <run id.step@domain of From>: the same on every try and in every process.
func messageID(m channel.Message, from *netmail.Address) (string, error) {
	step, ok := strings.CutPrefix(m.IdempotencyKey, m.RunID+":")
	if _, err := strconv.ParseUint(step, 10, 31); !ok || err != nil || !isRunID(m.RunID) {
		return "", channel.Refused("smtp_message_invalid", fmt.Errorf(
			"email: RunID %q and IdempotencyKey %q must be a UUID and <run id>:<step>", m.RunID, m.IdempotencyKey))
	}
	domain := from.Address[strings.LastIndexByte(from.Address, '@')+1:]
	return "<" + m.RunID + "." + step + "@" + domain + ">", nil
}

func isRunID(s string) bool {
	for _, b := range []byte(s) {
		if (b < '0' || b > '9') && (b < 'a' || b > 'z') && (b < 'A' || b > 'Z') && b != '-' {
			return false
		}
	}
	return s != "" && len(s) <= 64
}

// boundary separates the parts of a mail. It depends on all of the text, so no text can contain it on purpose.
func boundary(m channel.Message) string {
	h := sha256.New()
	for _, s := range []string{m.IdempotencyKey, m.Subject, m.Text, m.HTML} {
		fmt.Fprintf(h, "%d:%s", len(s), s)
	}
	return hex.EncodeToString(h.Sum(nil)[:20])
}
