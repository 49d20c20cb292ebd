package email

import (
	"fmt"
	"net/textproto"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/internal/smtpsink"
	"github.com/weirqueue/weir/workers/channel"
)

const (
	temporary     = channel.ClassTemporary
	refused       = channel.ClassRefused
	throttled     = channel.ClassThrottled
	misconfigured = channel.ClassMisconfigured
)

func TestClassify(t *testing.T) { // EM-04
	t.Parallel()
	for _, tc := range []struct {
		at    stage
		reply string
		class channel.Class
	}{
		// 421 anywhere.
		{stageGreeting, "421 too many connections", throttled},
		{stageHello, "421 4.3.2 shutting down", throttled},
		{stageTLS, "421 no", throttled},
		{stageAuth, "421 4.7.0 slow down", throttled},
		{stageMail, "421 4.7.0 slow down", throttled},
		{stageRcpt, "421 4.4.2 timeout", throttled},
		{stageAnswer, "421 4.3.0 going down", throttled},
		// Greylisting, rate limits and a server that takes nothing.
		{stageRcpt, "450 4.7.1 greylisted", throttled},
		{stageRcpt, "451 4.7.500 server busy", throttled},
		{stageAnswer, "452 4.7.28 rate limit", throttled},
		{stageAnswer, "454 4.7.0 later", throttled},
		{stageMail, "451 4.3.2 not accepting", throttled},
		{stageAnswer, "451 4.4.5 congestion", throttled},
		{stageAuth, "454 4.7.0 temporary authentication failure", throttled},
		{stageAuth, "454 temporary authentication failure", throttled},
		// Everything else for now.
		{stageGreeting, "450 not now", temporary},
		{stageTLS, "454 TLS not available", temporary},
		{stageRcpt, "450 mailbox busy", temporary},
		{stageRcpt, "450 4.2.0 greylisted", temporary},
		{stageRcpt, "450 5.7.1 a code of another class", temporary},
		{stageRcpt, "452 4.2.2 mailbox full", temporary},
		{stageAnswer, "451 4.3.0 local error", temporary},
		{stageData, "452 4.3.1 no space", temporary},
		// Credentials and commands.
		{stageMail, "530 5.7.0 authenticate", misconfigured},
		{stageRcpt, "530 authenticate", misconfigured},
		{stageAuth, "534 5.7.9 stronger", misconfigured},
		{stageAuth, "535 5.7.8 wrong", misconfigured},
		{stageAuth, "538 encrypt", misconfigured},
		{stageAnswer, "535 late", misconfigured},
		{stageData, "500 what", misconfigured},
		{stageRcpt, "502 what", misconfigured},
		{stageRcpt, "503 5.5.1 sequence", misconfigured},
		// Before the recipient is named, it is about us.
		{stageGreeting, "554 5.7.1 your address is listed", misconfigured},
		{stageGreeting, "521 no mail here", misconfigured},
		{stageHello, "550 bad name", misconfigured},
		{stageTLS, "554 no", misconfigured},
		{stageAuth, "504 mechanism", misconfigured},
		{stageMail, "550 5.7.1 you may not send as this", misconfigured},
		{stageMail, "553 5.1.8 sender domain", misconfigured},
		{stageMail, "501 5.1.7 sender syntax", misconfigured},
		{stageMail, "555 parameters", misconfigured},
		{stageMail, "552 5.3.4 too big", refused},
		// The enhanced code says that it is about us.
		{stageRcpt, "550 5.1.8 sender domain", misconfigured},
		{stageRcpt, "550 5.7.25 no reverse DNS", misconfigured},
		{stageAnswer, "550 5.7.26 unauthenticated mail", misconfigured},
		{stageAnswer, "554 5.7.20 no DKIM", misconfigured},
		// A full mailbox.
		{stageRcpt, "552 5.2.2 mailbox full", temporary},
		{stageAnswer, "552 5.2.2 mailbox full", temporary},
		{stageAnswer, "554 5.2.2 mailbox full", temporary},
		// The recipient or the mail.
		{stageRcpt, "550 5.1.1 no such user", refused},
		{stageRcpt, "550 no such user", refused},
		{stageRcpt, "551 not local", refused},
		{stageRcpt, "553 5.1.3 bad address", refused},
		{stageRcpt, "554 5.7.1 relay access denied", refused},
		{stageRcpt, "504 5.5.2 need a complete name", refused},
		{stageRcpt, "501 5.1.3 syntax", refused},
		{stageRcpt, "550 4.7.1 a code of another class", refused},
		{stageRcpt, "556 5.1.10 null MX", refused},
		{stageData, "554 5.5.1 no valid recipients", refused},
		{stageAnswer, "550 5.7.1 spam", refused},
		{stageAnswer, "552 5.3.4 too big", refused},
		{stageAnswer, "552 too big or too full", refused},
		{stageAnswer, "554 5.6.0 content", refused},
	} {
		f := &failure{stage: tc.at, err: protocolError(tc.reply)}
		r, ok := f.reply()
		require.True(t, ok)
		assert.Equal(t, tc.class, classify(tc.at, r), "%s: %s", tc.at, tc.reply)
	}
}

func TestErrorCode_HoldsNothingThatTheServerChoseFreely(t *testing.T) {
	t.Parallel()
	for answer, code := range map[string]string{
		"550 5.1.1 no such user":       "smtp_550_5.1.1",
		"550 5.1.1":                    "smtp_550_5.1.1",
		"550 no such user":             "smtp_550",
		"550 ada@example.com unknown":  "smtp_550",
		"550 4.1.1 of another class":   "smtp_550",
		"550 5.1.1.1 not enhanced":     "smtp_550",
		"550 5.1000.1 too long":        "smtp_550",
		"550 5.a.1 no number":          "smtp_550",
		"550 5..1 empty":               "smtp_550",
		"421 4.7.28 gsmtp":             "smtp_421_4.7.28",
		"450 <ada@example.com>: wait":  "smtp_450",
		"550 5.1.1 two lines\n5.2.2 x": "smtp_550_5.1.1",
		"550 5.1.1\nx":                 "smtp_550",
	} {
		r, ok := (&failure{stage: stageRcpt, err: protocolError(answer)}).reply()
		require.True(t, ok)
		assert.Equal(t, code, r.errorCode(), answer)
	}
}

func TestSend_Refusals(t *testing.T) { // EM-04
	t.Parallel()
	for _, tc := range []struct {
		name   string
		action smtpsink.Action
		class  channel.Class
		code   string
	}{
		{"450 to RCPT", smtpsink.Refuse(450, "4.2.1", "x"), temporary, "smtp_450_4.2.1"},
		{"450 greylisting", smtpsink.Refuse(450, "4.7.1", "x"), throttled, "smtp_450_4.7.1"},
		{"451 to the mail", smtpsink.RefuseData(451, "4.3.0", "x"), temporary, "smtp_451_4.3.0"},
		{"452 to RCPT", smtpsink.Refuse(452, "", "x"), temporary, "smtp_452"},
		{"421 to the mail", smtpsink.RefuseData(421, "4.3.0", "x"), throttled, "smtp_421_4.3.0"},
		{"550 5.1.1", smtpsink.Refuse(550, "5.1.1", "x"), refused, "smtp_550_5.1.1"},
		{"552 5.2.2", smtpsink.Refuse(552, "5.2.2", "x"), temporary, "smtp_552_5.2.2"},
		{"354 then 554", smtpsink.RefuseData(554, "5.7.1", "x"), refused, "smtp_554_5.7.1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			sink := startSink(t, smtpsink.Config{Behaviour: smtpsink.Times(1, tc.action)})
			c := newChannel(t, sink.Addr(), nil)
			requireClass(t, send(t, c, message()), tc.class, tc.code)
			require.Zero(t, sink.Count())
			require.NoError(t, send(t, c, message()), "the channel works on")
			require.Equal(t, 1, sink.Count())
		})
	}
}

func TestSend_RefusalsBeforeTheMail(t *testing.T) { // EM-04, NO-09
	t.Parallel()
	for _, tc := range []struct {
		name   string
		script func(*fakeConn)
		class  channel.Class
		code   string
	}{
		{"421 greeting", func(c *fakeConn) { c.say("421 4.7.0 come back later") }, throttled, "smtp_421_4.7.0"},
		{"554 greeting", func(c *fakeConn) { c.say("554 no") }, misconfigured, "smtp_554"},
		{"garbage greeting", func(c *fakeConn) { c.say("hello there") }, temporary, "smtp_protocol"},
		{"hangs up before the greeting", func(*fakeConn) {}, temporary, "smtp_connection_lost"},
		{"half a greeting", func(c *fakeConn) { _, _ = c.Write([]byte("22")) }, temporary, "smtp_protocol"},
		{"421 to EHLO", func(c *fakeConn) { c.say("220 fake"); c.hear(); c.say("421 bye") }, throttled, "smtp_421"},
		{"550 to MAIL", func(c *fakeConn) { c.greet(); c.hear(); c.say("550 5.7.1 not you") }, misconfigured, "smtp_550_5.7.1"},
		{"250 to DATA", func(c *fakeConn) {
			c.greet()
			for range 3 {
				c.hear()
				c.say("250 ok")
			}
		}, temporary, "smtp_protocol"},
		{"hangs up at RCPT", func(c *fakeConn) { c.greet(); c.hear(); c.say("250 ok"); c.hear() }, temporary, "smtp_connection_lost"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			fake := startFake(t, func(_ int, c *fakeConn) {
				tc.script(c)
				_ = c.Conn.(interface{ CloseWrite() error }).CloseWrite()
				c.untilGone()
			})
			requireClass(t, send(t, newChannel(t, fake.addr(), nil), message()), tc.class, tc.code)
		})
	}
}

// 421 means that the server hangs up; any other refusal is answered with QUIT.
func TestSend_GoodbyeAfterARefusal(t *testing.T) {
	t.Parallel()
	for answer, goodbye := range map[string]bool{"421 4.7.0 enough": false, "550 5.1.1 no such user": true} {
		heard := make(chan []string, 1)
		fake := startFake(t, func(_ int, c *fakeConn) {
			c.greet()
			c.hear()
			c.say("250 ok")
			c.hear()
			c.say(answer)
			if c.hear() == "QUIT" {
				c.say("221 bye")
			}
			heard <- c.heard
		})
		require.Error(t, send(t, newChannel(t, fake.addr(), nil), message()))
		require.Equal(t, goodbye, slices.Contains(<-heard, "QUIT"), answer)
	}
}

// An answer that nobody asked for would shift all answers by one.
func TestSend_UnaskedAnswerEndsTheDialog(t *testing.T) { // EM-10
	t.Parallel()
	for name, script := range map[string]func(*fakeConn){
		"with the greeting": func(c *fakeConn) {
			c.say("220 fake", "250 early")
			c.hear()
			c.say("250 fake")
			c.takeMail()
		},
		"with the answer to MAIL": func(c *fakeConn) {
			c.greet()
			c.hear()
			c.say("250 ok", "250 ok")
			c.takeMail()
		},
		"with the 354": func(c *fakeConn) {
			c.greet()
			for range 2 {
				c.hear()
				c.say("250 ok")
			}
			c.hear()
			c.say("354 go ahead", "250 taken")
			c.readMail()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			heard := make(chan []string, 1)
			fake := startFake(t, func(_ int, c *fakeConn) {
				script(c)
				c.untilGone()
				heard <- c.heard
			})
			c := newChannel(t, fake.addr(), within(2*time.Second))
			requireClass(t, send(t, c, message()), temporary, "smtp_protocol")
			require.Empty(t, c.pool.idle)
			require.NotContains(t, <-heard, "QUIT", "there is no talking to it")
		})
	}
}

// Asking for SMTPUTF8 would make servers bounce what the next one could have taken.
func TestSend_AsksForNothingThatItDoesNotNeed(t *testing.T) {
	t.Parallel()
	heard := make(chan string, 2)
	fake := startFake(t, func(_ int, c *fakeConn) {
		c.greet("8BITMIME", "SMTPUTF8", "DSN", "SIZE 100000")
		for range 2 {
			heard <- c.hear()
			c.say("250 ok")
		}
		if c.takeMail() {
			c.say("250 taken")
			c.takeMail()
		}
	})
	require.NoError(t, send(t, newChannel(t, fake.addr(), nil), message()))
	require.Equal(t, "MAIL FROM:<weir@sender.example> BODY=8BITMIME", <-heard)
	require.Equal(t, "RCPT TO:<ada@example.com>", <-heard)
}

func TestSend_ThrottledForAsLongAsTheServerWants(t *testing.T) { // NO-06
	t.Parallel()
	sink := startSink(t, smtpsink.Config{Behaviour: smtpsink.Times(40, smtpsink.Refuse(421, "4.7.0", "later"))})
	c := newChannel(t, sink.Addr(), nil)
	for range 40 {
		requireClass(t, send(t, c, message()), throttled, "smtp_421_4.7.0")
	}
	require.NoError(t, send(t, c, message()))
	require.Equal(t, 1, sink.Count())
}

func TestSend_EachRecipientHasItsOwnOutcome(t *testing.T) { // EM-03, EM-09
	t.Parallel()
	sink := startSink(t, smtpsink.Config{Behaviour: smtpsink.ByRecipient(map[string]smtpsink.Behaviour{
		"gone@example.com":  smtpsink.Always(smtpsink.Refuse(550, "5.1.1", "no such user")),
		"later@example.com": smtpsink.Times(1, smtpsink.Refuse(451, "4.3.0", "later")),
		"spam@example.com":  smtpsink.Always(smtpsink.RefuseData(554, "5.7.1", "spam")),
	})})
	c := newChannel(t, sink.Addr(), nil)

	require.NoError(t, send(t, c, messageTo("good@example.com")))
	requireClass(t, send(t, c, messageTo("gone@example.com")), refused, "smtp_550_5.1.1")
	requireClass(t, send(t, c, messageTo("later@example.com")), temporary, "smtp_451_4.3.0")
	requireClass(t, send(t, c, messageTo("spam@example.com")), refused, "smtp_554_5.7.1")
	require.NoError(t, send(t, c, messageTo("also@example.com")))
	require.NoError(t, send(t, c, messageTo("later@example.com")))

	var got []string
	for _, m := range sink.Mails() {
		require.Len(t, m.To, 1)
		got = append(got, m.To[0])
	}
	require.Equal(t, []string{"good@example.com", "also@example.com", "later@example.com"}, got)
}

func TestSend_ReplyTextIsFitToBeStored(t *testing.T) { // PG-01
	t.Parallel()
	for _, answer := range []string{
		"550 5.1.1 nul\x00 half\xff rune\xed\xa0\xbd 🦦\x1b[2J",
		"550-5.1.1 " + strings.Repeat("é", 400) + "\r\n550 5.1.1 " + strings.Repeat("x", 9000),
		"55\x00\xff" + strings.Repeat("y", 9000),
	} {
		fake := startFake(t, func(_ int, c *fakeConn) {
			c.greet()
			c.hear()
			c.say("250 ok")
			c.hear()
			c.say(answer)
			c.takeMail()
		})
		err := send(t, newChannel(t, fake.addr(), nil), message())
		require.ErrorIs(t, err, channel.ErrNotSent)
		text := err.Error()
		require.True(t, utf8.ValidString(text))
		require.Less(t, len(text), maxReplyText+200)
		require.False(t, strings.ContainsFunc(text, func(r rune) bool { return r < ' ' }), "%q", text)
		require.Equal(t, strings.Contains(answer, "🦦"), strings.Contains(text, "🦦"))
	}
}

func protocolError(answer string) error {
	var code int
	text := answer[4:]
	if _, err := fmt.Sscanf(answer[:3], "%d", &code); err != nil {
		panic(err)
	}
	return &textproto.Error{Code: code, Msg: text}
}
