package neon

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirqueue/weir/workers/branch"
)

const (
	maxAnswer  = 8 << 20
	maxMessage = 500
	maxHold    = 10 * time.Minute
)

// wire sends requests, each once.
type wire struct {
	cfg    Config
	client *http.Client

	mu   sync.Mutex
	hold time.Time // after a 429 nobody of this process asks until then
}

// newWire makes a client that follows no redirect. net/http repeats a POST by itself only while nothing of it was
// written.
func newWire(cfg Config) *wire {
	return &wire{cfg: cfg, client: &http.Client{
		Timeout:       cfg.Timeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			Proxy:               cfg.Proxy,
			DialContext:         (&net.Dialer{Timeout: min(cfg.Timeout, 10*time.Second)}).DialContext,
			TLSHandshakeTimeout: min(cfg.Timeout, 10*time.Second),
			TLSClientConfig:     &tls.Config{MinVersion: tls.VersionTLS12},
			MaxIdleConnsPerHost: 16,
			IdleConnTimeout:     30 * time.Second,
			ForceAttemptHTTP2:   true,
		},
	}}
}

// answerError is an answer that is no success and that means nothing by itself.
type answerError struct {
	status int
	code   string
	text   string
}

func (e *answerError) Error() string {
	return strings.TrimSpace(fmt.Sprintf("Neon answered %d %s %s", e.status, e.code, e.text))
}

// do sends one request and decodes its answer into out. 423, 429, 503, 401, 403 and a connection that could not be made
// are classified: the call was surely not taken. Other answers are an *answerError; any other error means that nobody
// knows whether the call was taken.
func (w *wire) do(ctx context.Context, method, path string, body, out any) error {
	if left := w.held(); left > 0 {
		return branch.Later(left, "neon_429", errors.New("Neon has asked this process to wait"))
	}
	var payload io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return branch.Refused("neon_request", err)
		}
		payload = bytes.NewReader(b)
	}
	var connected atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected.Store(true) }})
	req, err := http.NewRequestWithContext(ctx, method, w.cfg.BaseURL+path, payload)
	if err != nil {
		return branch.Refused("neon_request", err)
	}
	req.Header.Set("Authorization", "Bearer "+w.cfg.APIKey)
	req.Header.Set("Accept", "application/json")
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := w.client.Do(req)
	if err != nil {
		if !connected.Load() {
			return branch.Later(0, "neon_unreachable", err)
		}
		return fmt.Errorf("no answer from Neon: %w", err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("answer of Neon: %w", err)
	}
	if resp.StatusCode/100 == 2 {
		if err := json.Unmarshal(answer, out); err != nil {
			return fmt.Errorf("answer of Neon: %w", err)
		}
		return nil
	}
	return w.refusal(resp, answer)
}

func (w *wire) refusal(resp *http.Response, answer []byte) error {
	var said struct {
		Code    string `json:"code"`
		Message string `json:"message"`
	}
	_ = json.Unmarshal(answer, &said) // a gateway's page says nothing that we need
	if len(said.Message) > maxMessage {
		said.Message = strings.ToValidUTF8(said.Message[:maxMessage], "")
	}
	err := &answerError{status: resp.StatusCode, code: w.masked(said.Code), text: w.masked(said.Message)}
	code := "neon_" + strconv.Itoa(resp.StatusCode)
	switch resp.StatusCode {
	case http.StatusTooManyRequests:
		after := retryAfter(resp.Header.Get("Retry-After"))
		w.holdFor(after)
		return branch.Later(after, code, err)
	case http.StatusLocked, http.StatusServiceUnavailable:
		return branch.Later(retryAfter(resp.Header.Get("Retry-After")), code, err)
	case http.StatusUnauthorized, http.StatusForbidden:
		return branch.Misconfigured(code, err)
	}
	return err
}

// masked keeps our key out of what a server repeats of it.
func (w *wire) masked(s string) string { return strings.ReplaceAll(s, w.cfg.APIKey, "***") }

// retryAfter reads seconds or a date. 0 means that there is none.
func retryAfter(header string) time.Duration {
	if n, err := strconv.Atoi(strings.TrimSpace(header)); err == nil {
		return min(max(time.Duration(n)*time.Second, 0), maxHold)
	}
	if at, err := http.ParseTime(header); err == nil {
		return min(max(time.Until(at), 0), maxHold)
	}
	return 0
}

// defaultHold is for a 429 that does not say for how long.
const defaultHold = 2 * time.Second

func (w *wire) holdFor(after time.Duration) {
	if after <= 0 {
		after = defaultHold
	}
	until := time.Now().Add(after)
	w.mu.Lock()
	defer w.mu.Unlock()
	if until.After(w.hold) {
		w.hold = until
	}
}

// held is what is left of the wait, with a jitter, so that not all come back at once.
func (w *wire) held() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	left := time.Until(w.hold)
	if left <= 0 {
		return 0
	}
	return left + rand.N(left/2+time.Second)
}
