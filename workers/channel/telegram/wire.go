package telegram

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync/atomic"
	"time"
)

// maxAnswer is more than any answer to sendMessage.
const maxAnswer = 1 << 20

// newHTTPClient makes a client that sends a request once. It follows no redirect. net/http repeats a POST by itself only
// while nothing of it was written, or where it can get the body anew; a request of the library's has a pipe for a body,
// which cannot be had twice.
func newHTTPClient(cfg Config) *http.Client {
	return &http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			Proxy:               cfg.Proxy,
			DialContext:         (&net.Dialer{Timeout: cfg.DialTimeout}).DialContext,
			TLSHandshakeTimeout: cfg.DialTimeout,
			TLSClientConfig:     &tls.Config{MinVersion: tls.VersionTLS12},
			MaxIdleConnsPerHost: 16,
			IdleConnTimeout:     30 * time.Second, // the server hangs up later: no request meets that
		},
	}
}

// exchange is what is known about one request beside what the library says.
type exchange struct {
	// connected says that there was a connection: from then on the request may have left.
	connected atomic.Bool
	// status is that of HTTP; 0 means that no whole answer came.
	status     int
	retryAfter string
	// answered says that the answer was Telegram's, and not a gateway's page; code is its error code then.
	answered, ok bool
	code         int
	// cause is why there was no answer. It may hold the token.
	cause error
}

type exchangeKey struct{}

// begin makes a context for one request, with what will be known about it.
func begin(ctx context.Context) (context.Context, *exchange) {
	x := &exchange{}
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { x.connected.Store(true) },
	})
	return context.WithValue(ctx, exchangeKey{}, x), x
}

// wire is the library's HTTP client. It notes what the library does not tell, and keeps the URL, which holds the token,
// out of errors.
type wire struct {
	client *http.Client
	token  string
}

func (w wire) Do(req *http.Request) (*http.Response, error) {
	x, _ := req.Context().Value(exchangeKey{}).(*exchange)
	resp, err := w.client.Do(req)
	if err == nil {
		err = x.read(resp)
	}
	if err != nil {
		x.cause = err
		return nil, errors.New(redact(w.token, err))
	}
	return resp, nil
}

// read takes the whole answer, and puts a copy in its place.
func (x *exchange) read(resp *http.Response) error {
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	_ = resp.Body.Close()
	if err != nil && resp.StatusCode < 300 {
		return err
	}
	resp.Body = io.NopCloser(bytes.NewReader(body))
	x.status, x.retryAfter = resp.StatusCode, resp.Header.Get("Retry-After")
	var answer struct {
		OK   *bool `json:"ok"`
		Code int   `json:"error_code"`
	}
	if json.Unmarshal(body, &answer) == nil && answer.OK != nil {
		x.answered, x.ok, x.code = true, *answer.OK, answer.Code
		if !x.ok && x.code == 0 {
			x.code = x.status
		}
	}
	return nil
}

const maxText = 500

// redact is the text of an error without the token, fit to be stored: valid UTF-8 without control characters, and not
// too long.
func redact(token string, err error) string {
	text := err.Error()
	if token != "" {
		text = strings.ReplaceAll(text, token, "***")
		// As it looks where somebody escaped the URL.
		text = strings.ReplaceAll(text, strings.ReplaceAll(token, ":", "%3A"), "***")
	}
	text = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, "\uFFFD"))
	if len(text) > maxText {
		text = strings.ToValidUTF8(text[:maxText], "") + "…"
	}
	return text
}
