package telegram

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/go-telegram/bot"

	"github.com/weirqueue/weir/workers/channel"
)

// judge turns what became of a request that did not succeed into what a worker must know. The table in the package's
// documentation says the same in words. It decides by codes and parameters, never by Telegram's prose, which changes.
func judge(ctx context.Context, token string, x *exchange, err error) error {
	text := errors.New("telegram: " + redact(token, err))
	switch {
	case x.answered:
		return judgeAnswer(token, x, err, text)
	case x.status != 0:
		return judgePage(x, text)
	case errors.As(x.cause, new(*tls.CertificateVerificationError)):
		return channel.Misconfigured("telegram_tls_certificate", text)
	}
	if ctx.Err() != nil {
		text = fmt.Errorf("%w: %w", text, context.Cause(ctx))
	}
	switch {
	case x.connected.Load():
		return text // nobody knows
	case ctx.Err() != nil:
		return channel.NotSent(codeOfEnd(ctx), text)
	}
	return channel.NotSent("telegram_connect", text)
}

func codeOfEnd(ctx context.Context) string {
	if errors.Is(ctx.Err(), context.Canceled) {
		return "telegram_canceled"
	}
	return "telegram_timeout"
}

// judgeAnswer reads a refusal by Telegram itself: nothing was sent.
func judgeAnswer(token string, x *exchange, err, text error) error {
	code := fmt.Sprintf("telegram_%d", x.code)
	var (
		tooMany *bot.TooManyRequestsError
		moved   *bot.MigrateError
	)
	switch {
	case errors.As(err, &tooMany):
		return channel.Throttled(after(tooMany.RetryAfter), code, text)
	case errors.As(err, &moved):
		return &movedError{to: chatNumber(int64(moved.MigrateToChatID)), text: "telegram: " + redact(token, err)}
	}
	switch x.code {
	case http.StatusBadRequest, http.StatusForbidden, http.StatusRequestEntityTooLarge:
		return channel.Refused(code, text)
	case http.StatusUnauthorized, http.StatusNotFound:
		return channel.Misconfigured(code, text)
	case http.StatusTooManyRequests, 420:
		return channel.Throttled(0, code, text)
	}
	return channel.Temporary(code, text)
}

// judgePage reads what somebody else answered in Telegram's place.
func judgePage(x *exchange, text error) error {
	code := fmt.Sprintf("telegram_http_%d", x.status)
	switch {
	case x.status == http.StatusTooManyRequests:
		seconds, _ := strconv.Atoi(x.retryAfter) // a date, or nothing: the back-off decides
		return channel.Throttled(after(seconds), code, text)
	case x.status < 300, x.status == http.StatusRequestTimeout, x.status >= 500:
		// A gateway that got no answer, or a broken one, may have passed the message on.
		return fmt.Errorf("%s: %w", code, text)
	}
	return channel.Misconfigured(code, text)
}
