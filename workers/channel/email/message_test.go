package email

import (
	"bytes"
	"io"
	"mime"
	"mime/multipart"
	"mime/quotedprintable"
	netmail "net/mail"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weirqueue/weir/internal/smtpsink"
	"github.com/weirqueue/weir/workers/channel"
)

var sender = &netmail.Address{Name: "Weir", Address: "weir@sender.example"}

// received is a mail as its reader sees it.
type received struct {
	header              netmail.Header
	subject, text, html string
}

func read(t require.TestingT, raw []byte) received {
	m, err := netmail.ReadMessage(bytes.NewReader(raw))
	require.NoError(t, err)
	subject, err := (&mime.WordDecoder{}).DecodeHeader(m.Header.Get("Subject"))
	require.NoError(t, err)
	r := received{header: m.Header, subject: subject}
	kind, params, err := mime.ParseMediaType(m.Header.Get("Content-Type"))
	require.NoError(t, err)
	if kind != "multipart/alternative" {
		r.put(t, kind, params, m.Header.Get("Content-Transfer-Encoding"), m.Body)
		return r
	}
	parts := multipart.NewReader(m.Body, params["boundary"])
	for {
		p, err := parts.NextRawPart()
		if err == io.EOF { //nolint:errorlint // as NextRawPart documents
			return r
		}
		require.NoError(t, err)
		kind, params, err := mime.ParseMediaType(p.Header.Get("Content-Type"))
		require.NoError(t, err)
		r.put(t, kind, params, p.Header.Get("Content-Transfer-Encoding"), p)
	}
}

func (r *received) put(t require.TestingT, kind string, params map[string]string, encoding string, body io.Reader) {
	require.Equal(t, "quoted-printable", encoding)
	require.Equal(t, "UTF-8", params["charset"])
	b, err := io.ReadAll(quotedprintable.NewReader(body))
	require.NoError(t, err)
	if kind == "text/html" {
		r.html = string(b)
		return
	}
	require.Equal(t, "text/plain", kind)
	r.text = string(b)
}

// lines makes all line breaks the same, and ends the last line.
func lines(s string) string {
	s = strings.ReplaceAll(strings.ReplaceAll(s, "\r\n", "\n"), "\r", "\n")
	if !strings.HasSuffix(s, "\n") {
		s += "\n"
	}
	return s
}

// requireWireFormat checks what strict servers refuse.
func requireWireFormat(t require.TestingT, raw []byte) {
	s := string(raw)
	require.True(t, strings.HasSuffix(s, "\r\n"))
	for line := range strings.SplitSeq(strings.TrimSuffix(s, "\r\n"), "\r\n") {
		require.LessOrEqual(t, len(line), 998)
		require.False(t, strings.ContainsAny(line, "\r\n\x00"), "%q", line)
		require.True(t, isPrintableASCII(strings.ReplaceAll(line, "\t", " ")), "%q", line)
	}
}

func TestSend_ReceivedEqualsSent(t *testing.T) { // EM-07
	t.Parallel()
	sink := startSink(t, smtpsink.Config{})
	c := newChannel(t, sink.Addr(), nil)
	long := `{"key":"` + strings.Repeat("x", 5000) + `"}`
	for _, m := range []channel.Message{
		{Subject: "", Text: ""},
		{Subject: "plain", Text: "no final newline"},
		{Subject: "LF only", Text: "a\nb\n\nc\n"},
		{Subject: "CR only", Text: "a\rb\r\rc\r"},
		{Subject: "CR, an encoded byte, LF", Text: "\r=\n\ré\n", HTML: "\r=\n"},
		{Subject: "mixed", Text: "a\r\nb\r\r\nc\n\rd"},
		{Subject: "dots", Text: ".\n..\n.x\n\n."},
		{Subject: "a long line", Text: long},
		{Subject: "spaces at the end", Text: "a \nb\t\n  \n"},
		{Subject: "equals", Text: "=\n=3D\n=?UTF-8?B?YQ==?=\n"},
		{Subject: "looks like mail", Text: "From me\nMAIL FROM:<x@y>\nSubject: z\n\n--boundary\n"},
		{Subject: "control", Text: "\x01\x1b[31m\x7f\t\v\f"},
		{Subject: strings.Repeat("Ünïcödé 🦦 ", 30)[:300], Text: "grüße, 世界 🦦\n"},
		{Subject: strings.Repeat("é", 300), Text: "x"},
		{Subject: strings.Repeat("x", 5000), Text: "x"},
		{Subject: strings.Repeat("many words ", 400) + "end", Text: "x"},
		{Subject: "  outer and  inner   spaces ", Text: "x"},
		{Subject: "=?UTF-8?B?ZmFrZQ==?=", Text: "x"},
		{Subject: "tab\tand\x01control", Text: "x"},
		{Subject: "HTML only", HTML: "<p>grüße</p>"},
		{Subject: "both", Text: "text", HTML: "<p>\n.\n" + long + "</p>"},
		{Subject: "both empty-ish", Text: "\n", HTML: "\n"},
	} {
		id := message()
		id.Subject, id.Text, id.HTML = m.Subject, m.Text, m.HTML
		if !isValid(m.Subject) {
			id.Subject = strings.ToValidUTF8(m.Subject, "")
		}
		before := sink.Count()
		require.NoError(t, send(t, c, id), m.Subject)
		mails := sink.Mails()
		require.Equal(t, before+1, sink.Count())
		requireReceived(t, mails[len(mails)-1].Raw, id)
	}
}

func isValid(s string) bool { return strings.ToValidUTF8(s, "") == s }

func requireReceived(t require.TestingT, raw []byte, sent channel.Message) {
	requireWireFormat(t, raw)
	got := read(t, raw)
	require.Equal(t, sent.Subject, got.subject)
	require.Equal(t, lines(sent.Text), lines(got.text))
	if sent.HTML != "" {
		require.Equal(t, lines(sent.HTML), lines(got.html))
	}
	for name := range got.header {
		require.Contains(t, []string{
			"From", "To", "Subject", "Date", "Message-Id", "Mime-Version", "Auto-Submitted", "Content-Type", "Content-Transfer-Encoding",
		}, name)
	}
}

func TestSend_ReceivedEqualsSentForAnyText(t *testing.T) { // EM-07
	t.Parallel()
	sink := startSink(t, smtpsink.Config{Keep: 1})
	c := newChannel(t, sink.Addr(), nil)
	piece := rapid.OneOf(
		rapid.SampledFrom([]string{"\r", "\n", "\r\n", ".", "..", "=", "=\r\n", " ", "\t", "\r\n.\r\n", "--", "é", "🦦", "\u2028", "\ufeff"}),
		rapid.StringMatching(`[a-zA-Z0-9 .=?_-]{0,90}`),
		rapid.Map(rapid.String(), func(s string) string { return strings.ReplaceAll(strings.ToValidUTF8(s, ""), "\x00", "") }),
		rapid.Map(rapid.IntRange(900, 1100), func(n int) string { return strings.Repeat("y", n) }),
	)
	text := rapid.Map(rapid.SliceOfN(piece, 0, 12), func(p []string) string { return strings.Join(p, "") })
	subject := rapid.Map(text, func(s string) string {
		return strings.NewReplacer("\r", "", "\n", "").Replace(s)
	})
	html := rapid.OneOf(rapid.Just(""), text)
	rapid.Check(t, func(t *rapid.T) {
		m := message()
		m.Subject, m.Text, m.HTML = subject.Draw(t, "subject"), text.Draw(t, "text"), html.Draw(t, "html")
		_, err := c.Send(t.Context(), m)
		require.NoError(t, err)
		requireReceived(t, sink.Mails()[0].Raw, m)
	})
}

// RFC 2047 wants whole characters in each word, and no word of more than 75.
func TestEncodeSubject_WordsAreWholeAndShort(t *testing.T) {
	t.Parallel()
	for _, s := range []string{strings.Repeat("é", 300), "x" + strings.Repeat("🦦", 100), strings.Repeat("世", 99)} {
		for word := range strings.SplitSeq(encodeSubject(s), " ") {
			require.LessOrEqual(t, len(word), 75)
			decoded, err := (&mime.WordDecoder{}).Decode(word)
			require.NoError(t, err)
			require.True(t, utf8.ValidString(decoded) && !strings.ContainsRune(decoded, utf8.RuneError), "%q", decoded)
		}
	}
}

func TestRender_TheSameMessageIsTheSameMail(t *testing.T) { // EM-01
	t.Parallel()
	m := message()
	m.HTML = "<p>It is on its way.</p>"
	first, err := render(sender, m)
	require.NoError(t, err)
	m.CreatedAt = m.CreatedAt.UTC() // another process, another time zone
	second, err := render(sender, m)
	require.NoError(t, err)
	require.Equal(t, string(first.data), string(second.data))
	require.Equal(t, "<"+runID+".0@sender.example>", first.messageID)

	got := read(t, first.data)
	assert.Equal(t, first.messageID, got.header.Get("Message-ID"))
	assert.Equal(t, `"Weir" <weir@sender.example>`, got.header.Get("From"))
	assert.Equal(t, "<ada@example.com>", got.header.Get("To"))
	assert.Equal(t, "auto-generated", got.header.Get("Auto-Submitted"))
	date, err := got.header.Date()
	require.NoError(t, err)
	assert.True(t, date.Equal(m.CreatedAt.Truncate(time.Second)))

	m.IdempotencyKey = runID + ":7"
	third, err := render(sender, m)
	require.NoError(t, err)
	require.Equal(t, "<"+runID+".7@sender.example>", third.messageID)
}

func TestSend_RefusesWhatCannotBeAMailBeforeDialing(t *testing.T) { // PG-01
	t.Parallel()
	fake := startFake(t, func(_ int, c *fakeConn) { c.untilGone() })
	c := newChannel(t, fake.addr(), nil)
	for _, tc := range []struct {
		name   string
		change func(*channel.Message)
		code   string
	}{
		{"CR LF in the subject", func(m *channel.Message) { m.Subject = "x\r\nBcc: eve@example.com" }, "smtp_header_injection"},
		{"LF in the subject", func(m *channel.Message) { m.Subject = "x\n" }, "smtp_header_injection"},
		{"CR in the subject", func(m *channel.Message) { m.Subject = "x\ry" }, "smtp_header_injection"},
		{"NUL in the subject", func(m *channel.Message) { m.Subject = "x\x00y" }, "smtp_header_injection"},
		{"LF in the address", func(m *channel.Message) { m.Address = "ada@example.com\nBcc: eve@example.com" }, "smtp_header_injection"},
		{"CR LF in the address", func(m *channel.Message) { m.Address = "ada@example.com>\r\nRCPT TO:<eve@example.com" }, "smtp_header_injection"},
		{"NUL in the address", func(m *channel.Message) { m.Address = "ada\x00@example.com" }, "smtp_header_injection"},
		{"no address", func(m *channel.Message) { m.Address = "" }, "smtp_address_invalid"},
		{"no domain", func(m *channel.Message) { m.Address = "ada" }, "smtp_address_invalid"},
		{"two addresses", func(m *channel.Message) { m.Address = "ada@example.com, eve@example.com" }, "smtp_address_invalid"},
		{"a display name", func(m *channel.Message) { m.Address = "Ada <ada@example.com>" }, "smtp_address_invalid"},
		{"a comment", func(m *channel.Message) { m.Address = "ada@example.com (x)" }, "smtp_address_invalid"},
		{"a group", func(m *channel.Message) { m.Address = "g: ada@example.com;" }, "smtp_address_invalid"},
		{"parameters", func(m *channel.Message) { m.Address = "ada@example.com> NOTIFY=NEVER" }, "smtp_address_invalid"},
		{"not ASCII", func(m *channel.Message) { m.Address = "ädä@example.com" }, "smtp_address_invalid"},
		{"too long", func(m *channel.Message) { m.Address = strings.Repeat("a", 250) + "@example.com" }, "smtp_address_invalid"},
		{"invalid UTF-8 in the subject", func(m *channel.Message) { m.Subject = "\xff" }, "smtp_text_invalid"},
		{"half a surrogate in the text", func(m *channel.Message) { m.Text = "\xed\xa0\xbd" }, "smtp_text_invalid"},
		{"NUL in the text", func(m *channel.Message) { m.Text = "\x00" }, "smtp_text_invalid"},
		{"NUL in the HTML", func(m *channel.Message) { m.HTML = "\x00" }, "smtp_text_invalid"},
		{"no run id", func(m *channel.Message) { m.RunID = "" }, "smtp_message_invalid"},
		{"a run id that breaks out", func(m *channel.Message) { m.RunID, m.IdempotencyKey = "a>b", "a>b:0" }, "smtp_message_invalid"},
		{"another run's key", func(m *channel.Message) { m.IdempotencyKey = "other:0" }, "smtp_message_invalid"},
		{"no step", func(m *channel.Message) { m.IdempotencyKey = runID + ":" }, "smtp_message_invalid"},
		{"no time", func(m *channel.Message) { m.CreatedAt = time.Time{} }, "smtp_message_invalid"},
	} {
		m := message()
		tc.change(&m)
		t.Run(tc.name, func(t *testing.T) {
			err := send(t, c, m)
			requireClass(t, err, refused, tc.code)
			require.NotContains(t, err.Error(), "eve@example.com")
		})
	}
	require.Zero(t, fake.accepted.Load())
}
