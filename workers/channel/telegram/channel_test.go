package telegram_test

import (
	"context"
	"crypto/tls"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/workers/channel"
	"github.com/weirqueue/weir/workers/channel/telegram"
)

func TestSend_IsOneRequestAndReturnsChatAndMessage(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	c := f.open(t)
	require.Equal(t, channel.AtLeastOnce, c.Effect())
	sent, err := send(t, c, "-1001234567890123")
	require.NoError(t, err)
	require.Equal(t, "-1001234567890123/1", sent.ExternalRef)
	sent, err = send(t, c, "@weir_news")
	require.NoError(t, err)
	require.Equal(t, "4711/2", sent.ExternalRef)
	require.Equal(t, []taken{{"-1001234567890123", "Hello\n\nworld"}, {"@weir_news", "Hello\n\nworld"}}, f.messages)
	part := message("5")
	part.Subject, part.Text, part.Part, part.Parts = "", "the second <b>&_*[", 2, 3
	_, err = c.Send(t.Context(), part)
	require.NoError(t, err)
	require.Equal(t, taken{"5", "the second <b>&_*["}, f.messages[2], "plain text: nothing is escaped, nothing is markup")
}

func TestSend_WhatCannotBeAMessageIsRefusedWithoutAsking(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	c := f.open(t)
	for _, address := range []string{"", "0", "x", "@abc", "12 34", "9223372036854775808", "@" + strings.Repeat("x", 33)} {
		_, err := send(t, c, address)
		requireClass(t, err, channel.ClassRefused, "telegram_address_invalid")
	}
	for _, text := range []string{" \n", "a\xff"} { // TG-05, PG-01
		m := message("5")
		m.Subject, m.Text = "", text
		_, err := c.Send(t.Context(), m)
		requireClass(t, err, channel.ClassRefused, "telegram_text_invalid")
	}
	asked, _ := f.count()
	require.Zero(t, asked)
}

func TestSend_RetryAfterIsPassedOn(t *testing.T) { // TG-01, NO-06
	t.Parallel()
	for _, c := range []struct {
		name  string
		a     answer
		after time.Duration
		code  string
	}{
		{"35 s", refusal(429, "Too Many Requests: retry after 35", `{"retry_after":35}`), 35 * time.Second, "telegram_429"},
		{"10072 s", refusal(429, "Too Many Requests", `{"retry_after":10072}`), 10072 * time.Second, "telegram_429"},
		{"no parameters", refusal(429, "Too Many Requests: retry after 35", ""), 0, "telegram_429"},
		{"negative", refusal(429, "x", `{"retry_after":-5}`), 0, "telegram_429"},
		{"beyond all clocks", refusal(429, "x", `{"retry_after":9223372036854775807}`), math.MaxInt64 / time.Second * time.Second, "telegram_429"},
		{"as text", refusal(429, "x", `{"retry_after":"35"}`), 0, "telegram_429"},
		{"a gateway's, with a header", answer{status: 429, body: "<html>", header: map[string]string{"Retry-After": "7"}}, 7 * time.Second, "telegram_http_429"},
		{"a gateway's, without", answer{status: 429, body: ""}, 0, "telegram_http_429"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f := startFake(t, func(int, taken) answer { return c.a })
			_, err := send(t, f.open(t), "5")
			require.Equal(t, c.after, requireClass(t, err, channel.ClassThrottled, c.code).After)
		})
	}
}

func TestSend_GatewaysPagesAreNoAnswersOfTelegram(t *testing.T) { // TG-01: HTML 502
	t.Parallel()
	for status, class := range map[int]channel.Class{
		500: channel.ClassUnknown, 502: channel.ClassUnknown, 503: channel.ClassUnknown,
		302: channel.ClassMisconfigured, 307: channel.ClassMisconfigured, 403: channel.ClassMisconfigured, 404: channel.ClassMisconfigured,
		200: channel.ClassUnknown, 408: channel.ClassUnknown, 504: channel.ClassUnknown,
	} {
		t.Run(strconv.Itoa(status), func(t *testing.T) {
			t.Parallel()
			f := startFake(t, func(int, taken) answer {
				return answer{status: status, body: "<html>\x00\xff " + token + strings.Repeat("x", 5000), header: map[string]string{"Location": "/elsewhere"}}
			})
			_, err := send(t, f.open(t), "5")
			if class == channel.ClassUnknown {
				requireUnknown(t, err)
			} else {
				requireClass(t, err, class, "telegram_http_"+strconv.Itoa(status))
			}
			require.Less(t, len(err.Error()), 700)
			require.NotContains(t, err.Error(), "\x00")
			asked, _ := f.count()
			require.Equal(t, 1, asked, "no redirect is followed, nothing is asked twice")
		})
	}
}

func TestSend_RefusalsAreReadByCodeNotByText(t *testing.T) { // TG-04, TG-05: too long is never retried unchanged
	t.Parallel()
	for _, c := range []struct {
		code        int
		description string
		class       channel.Class
	}{
		{403, "Forbidden: bot was blocked by the user", channel.ClassRefused},
		{403, "Forbidden: bot was kicked from the supergroup chat", channel.ClassRefused},
		{400, "Bad Request: chat not found", channel.ClassRefused},
		{400, "Bad Request: message is too long", channel.ClassRefused},
		{400, "what nobody has said before " + token + " \x00", channel.ClassRefused},
		{413, "Request Entity Too Large", channel.ClassRefused},
		{401, "Unauthorized", channel.ClassMisconfigured},
		{404, "Not Found", channel.ClassMisconfigured},
		{409, "Conflict", channel.ClassTemporary},
		{500, "Internal Server Error", channel.ClassTemporary},
		{502, "Bad Gateway", channel.ClassTemporary},
		{420, "FLOOD_WAIT", channel.ClassThrottled},
	} {
		t.Run(strconv.Itoa(c.code)+" "+c.description[:8], func(t *testing.T) {
			t.Parallel()
			f := startFake(t, func(int, taken) answer { return refusal(c.code, c.description, "") })
			_, err := send(t, f.open(t), "5")
			requireClass(t, err, c.class, "telegram_"+strconv.Itoa(c.code))
			require.NotContains(t, err.Error(), "\x00")
			asked, _ := f.count()
			require.Equal(t, 1, asked)
		})
	}
}

func TestNew_RefusesAnEmptyTokenAsOurOwnMistake(t *testing.T) { // TG-04
	t.Parallel()
	for _, bad := range []string{"", " ", "null", "123456", "123456:se/cret_token", "123:x\n"} {
		_, err := telegram.New(telegram.Config{Token: bad})
		requireClass(t, err, channel.ClassMisconfigured, "telegram_config")
	}
	_, err := telegram.New(telegram.Config{
		Token: token, ServerURL: "ftp://" + token + "@x", Timeout: telegram.StepTime, DialTimeout: time.Hour, MaxPerSecond: -1, ChatInterval: time.Hour,
	})
	for _, field := range []string{"ServerURL", "Timeout", "DialTimeout", "MaxPerSecond", "ChatInterval"} {
		require.ErrorContains(t, err, field)
	}
	require.NotContains(t, err.Error(), "secret_token")
}

func TestSend_FollowsAMovedGroupOnceAndRemembersIt(t *testing.T) { // TG-03
	t.Parallel()
	const was, is = "-4711", "-1001234567890123"
	f := startFake(t, func(_ int, m taken) answer {
		if m.Chat == was {
			return refusal(400, "a text that nobody has seen before", `{"migrate_to_chat_id":`+is+`}`)
		}
		return answer{}
	})
	c := f.open(t)
	sent, err := send(t, c, was)
	require.NoError(t, err)
	require.Equal(t, is+"/2", sent.ExternalRef, "the number is beyond 32 bits")
	_, err = send(t, c, was)
	require.NoError(t, err)
	require.Equal(t, []string{was, is, is}, f.chats(), "it is not asked for the old number again")
	_, took := f.count()
	require.Equal(t, 2, took, "one for each Send")
}

func TestSend_AMigrationLoopIsRefused(t *testing.T) { // TG-03
	t.Parallel()
	moved := func(to string) answer { return refusal(400, "moved", `{"migrate_to_chat_id":`+to+`}`) }
	for name, where := range map[string]map[string]string{
		"back":          {"-1": "-2", "-2": "-1"},
		"to itself":     {"-1": "-1"},
		"on and on":     {"-1": "-2", "-2": "-3", "-3": "-4"},
		"round a third": {"-1": "-2", "-2": "-3", "-3": "-1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := startFake(t, func(_ int, m taken) answer { return moved(where[m.Chat]) })
			c := f.open(t)
			for range 2 {
				_, err := send(t, c, "-1")
				requireClass(t, err, channel.ClassRefused, "telegram_migration_loop")
			}
			asked, took := f.count()
			require.LessOrEqual(t, asked, 4, "two for each Send at most")
			if name == "to itself" {
				require.Equal(t, 2, asked, "the same number is not asked twice in a Send")
			}
			require.Zero(t, took)
		})
	}
}

func TestSend_BeforeAConnectionNothingWasSent(t *testing.T) { // TG-06
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	nobody := "http://" + l.Addr().String()
	require.NoError(t, l.Close())
	_, err = send(t, open(t, func(c *telegram.Config) { c.ServerURL = nobody }), "5")
	requireClass(t, err, channel.ClassTemporary, "telegram_connect")

	_, err = send(t, open(t, func(c *telegram.Config) { c.ServerURL = "http://nobody.invalid" }), "5")
	requireClass(t, err, channel.ClassTemporary, "telegram_connect")

	f := newFake(t)
	_, err = send(t, open(t, func(c *telegram.Config) { c.ServerURL = strings.Replace(f.URL, "http:", "https:", 1) }), "5")
	requireClass(t, err, channel.ClassTemporary, "telegram_connect")

	_, err = send(t, f.open(t, func(c *telegram.Config) {
		c.Proxy = func(*http.Request) (*url.URL, error) { return url.Parse(nobody) }
	}), "5")
	requireClass(t, err, channel.ClassTemporary, "telegram_connect")

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = f.open(t).Send(ctx, message("5"))
	requireClass(t, err, channel.ClassTemporary, "telegram_canceled")
	asked, _ := f.count()
	require.Zero(t, asked)
}

func TestSend_ACertificateForAnotherNameIsOurSettings(t *testing.T) {
	t.Parallel()
	s := httptest.NewUnstartedServer(http.NotFoundHandler())
	s.Config.ErrorLog = nil
	s.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	s.StartTLS()
	t.Cleanup(s.Close)
	_, err := send(t, open(t, func(c *telegram.Config) { c.ServerURL = s.URL }), "5")
	requireClass(t, err, channel.ClassMisconfigured, "telegram_tls_certificate")
}

func TestSend_OnceConnectedALostAnswerIsUnknownAndNothingIsRepeated(t *testing.T) { // TG-06, NO-02
	t.Parallel()
	t.Run("taken, then reset", func(t *testing.T) {
		t.Parallel()
		f := startFake(t, func(n int, _ taken) answer { return answer{take: true, reset: n > 0} })
		c := f.open(t)
		_, err := send(t, c, "5") // so that the next one reuses a connection, where net/http likes to repeat
		require.NoError(t, err)
		_, err = send(t, c, "6")
		requireUnknown(t, err)
		asked, took := f.count()
		require.Equal(t, []int{2, 2}, []int{asked, took}, "one copy for each Send")
	})
	t.Run("answered after the timeout", func(t *testing.T) {
		t.Parallel()
		late := make(chan struct{})
		f := startFake(t, func(n int, _ taken) answer {
			if n == 0 {
				return answer{take: true, before: func() { <-late }}
			}
			return refusal(403, "Forbidden", "")
		})
		c := f.open(t, func(c *telegram.Config) { c.Timeout, c.DialTimeout = 300*time.Millisecond, 200*time.Millisecond })
		began := time.Now()
		_, err := send(t, c, "5")
		require.Less(t, time.Since(began), 5*time.Second)
		requireUnknown(t, err)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		close(late)
		_, err = send(t, c, "5")
		requireClass(t, err, channel.ClassRefused, "telegram_403")
		asked, took := f.count()
		require.Equal(t, []int{2, 1}, []int{asked, took}, "the late answer is not taken for the next one")
	})
	t.Run("the context ends", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithCancel(t.Context())
		release := make(chan struct{})
		f := startFake(t, func(int, taken) answer { return answer{take: true, before: func() { cancel(); <-release }} })
		_, err := f.open(t).Send(ctx, message("5"))
		close(release)
		requireUnknown(t, err)
		require.ErrorIs(t, err, context.Canceled)
	})
	t.Run("half an answer", func(t *testing.T) {
		t.Parallel()
		f := startFake(t, func(int, taken) answer {
			return answer{take: true, status: 200, body: `{"ok":true,"resu`, header: map[string]string{"Content-Length": "400"}}
		})
		_, err := send(t, f.open(t), "5")
		requireUnknown(t, err)
	})
}

func TestSend_TakenIsTakenEvenIfTheAnswerSaysItInAnotherWay(t *testing.T) { // TG-06: no copy for a field that changed its type
	t.Parallel()
	f := startFake(t, func(int, taken) answer {
		return answer{take: true, status: 200, body: `{"ok":true,"result":{"message_id":"x"}}`}
	})
	sent, err := send(t, f.open(t), "5")
	require.NoError(t, err)
	require.Equal(t, "5/?", sent.ExternalRef)
}
