package telegram_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/workers/channel"
	"github.com/weirqueue/weir/workers/channel/telegram"
)

const token = "123456:AbC-secret_token"

// taken is a message that the fake took, or was asked to take.
type taken struct{ Chat, Text string }

// fake is a Bot API server over real HTTP. answer decides about the n-th request, from 0; nil takes every message.
type fake struct {
	*httptest.Server
	answer func(n int, m taken) answer

	mu       sync.Mutex
	asked    []taken
	messages []taken
	faults   []error
}

// answer is what the fake does. The zero value takes the message.
type answer struct {
	status int
	body   string
	header map[string]string
	// before runs first; take says that the message is taken whatever the client sees.
	before func()
	take   bool
	// reset hangs up instead of answering.
	reset bool
}

func refusal(code int, description string, parameters string) answer {
	text, _ := json.Marshal(description)
	body := fmt.Sprintf(`{"ok":false,"error_code":%d,"description":%s`, code, text)
	if parameters != "" {
		body += `,"parameters":` + parameters
	}
	return answer{status: code, body: body + "}"}
}

func startFake(t *testing.T, behave func(n int, m taken) answer) *fake {
	t.Helper()
	f := &fake{answer: behave}
	f.Server = httptest.NewServer(f)
	t.Cleanup(func() {
		f.CloseClientConnections()
		f.Close()
		require.NoError(t, errors.Join(f.faults...))
	})
	return f
}

// newFake takes every message.
func newFake(t *testing.T) *fake { return startFake(t, func(int, taken) answer { return answer{} }) }

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m := taken{Chat: r.FormValue("chat_id"), Text: r.FormValue("text")}
	f.mu.Lock()
	n := len(f.asked)
	f.asked = append(f.asked, m)
	if r.URL.Path != "/bot"+token+"/sendMessage" || r.Method != http.MethodPost || r.FormValue("parse_mode") != "" {
		f.faults = append(f.faults, fmt.Errorf("unexpected %s %s", r.Method, r.URL.Path))
	}
	behave := f.answer
	f.mu.Unlock()
	a := behave(n, m)
	if a.before != nil {
		a.before()
	}
	if a.take || a.status == 0 && !a.reset {
		f.take(m)
	}
	if a.reset {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err == nil {
			_ = conn.(*net.TCPConn).SetLinger(0)
			_ = conn.Close()
		}
		return
	}
	if a.status == 0 {
		a.status = 200
		if a.body == "" {
			body, _ := json.Marshal(map[string]any{"ok": true, "result": map[string]any{
				"message_id": n + 1, "date": 1, "text": m.Text, "chat": map[string]any{"id": json.RawMessage(jsonNumber(m.Chat)), "type": "group"},
			}})
			a.body = string(body)
		}
	}
	for k, v := range a.header {
		w.Header().Set(k, v)
	}
	w.WriteHeader(a.status)
	_, _ = io.WriteString(w, a.body)
}

func jsonNumber(chat string) string {
	if json.Valid([]byte(chat)) {
		return chat
	}
	return "4711"
}

func (f *fake) take(m taken) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.messages = append(f.messages, m)
}

// count is how often the fake was asked, and how many messages it took.
func (f *fake) count() (asked, took int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.asked), len(f.messages)
}

func (f *fake) chats() (chats []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, m := range f.asked {
		chats = append(chats, m.Chat)
	}
	return chats
}

// open makes a channel for the fake, without pauses.
func (f *fake) open(t *testing.T, change ...func(*telegram.Config)) *telegram.Channel {
	t.Helper()
	return open(t, append([]func(*telegram.Config){func(c *telegram.Config) { c.ServerURL = f.URL }}, change...)...)
}

func open(t *testing.T, change ...func(*telegram.Config)) *telegram.Channel {
	t.Helper()
	cfg := telegram.Config{Token: token, ChatInterval: time.Millisecond, MaxPerSecond: 1000, Timeout: 20 * time.Second}
	for _, f := range change {
		f(&cfg)
	}
	c, err := telegram.New(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

func message(chat string) channel.Message {
	return channel.Message{RunID: "0199e0a0-0000-7000-8000-000000000001", IdempotencyKey: "0199e0a0-0000-7000-8000-000000000001:0", Address: chat, Subject: "Hello", Text: "world", Part: 1, Parts: 1}
}

func send(t *testing.T, c *telegram.Channel, chat string) (channel.Sent, error) {
	t.Helper()
	sent, err := c.Send(t.Context(), message(chat))
	if err != nil {
		require.NotContains(t, err.Error(), "secret_token")
	}
	return sent, err
}

// requireClass checks what a worker must know, and that no text or code holds the token.
func requireClass(t *testing.T, err error, class channel.Class, code string) *channel.Error {
	t.Helper()
	var classified *channel.Error
	require.ErrorAs(t, err, &classified)
	require.Equal(t, class, classified.Class, err)
	require.Equal(t, code, classified.Code)
	require.ErrorIs(t, err, channel.ErrNotSent)
	require.NotContains(t, fmt.Sprintf("%+v %#v", err, classified.Err), "secret_token")
	return classified
}

// requireUnknown checks that the error claims nothing.
func requireUnknown(t *testing.T, err error) {
	t.Helper()
	require.Error(t, err)
	require.NotErrorIs(t, err, channel.ErrNotSent)
	require.NotErrorAs(t, err, new(*channel.Error))
	require.NotContains(t, fmt.Sprintf("%+v %#v", err, err), "secret_token")
}
