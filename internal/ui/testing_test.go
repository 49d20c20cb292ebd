package ui

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/internal/postgres/pgtest"
	"github.com/weirqueue/weir/jobs"
)

// site is a running server on a database of its own.
type site struct {
	t    *testing.T
	pool *pgxpool.Pool
	jobs *jobs.Client
	url  string
}

func newSite(t *testing.T, change ...func(*Config)) *site {
	t.Helper()
	pool := pgtest.Pool(t)
	logger := slog.New(slog.NewTextHandler(t.Output(), nil))
	client, err := jobs.NewClient(pool, &jobs.Config{Logger: logger})
	require.NoError(t, err)
	cfg := Config{Pool: pool, Jobs: client, Logger: logger}
	for _, f := range change {
		f(&cfg)
	}
	server, err := New(cfg)
	require.NoError(t, err)
	require.NoError(t, server.Start(t.Context()))
	front := httptest.NewServer(server.Handler())
	t.Cleanup(front.Close)
	return &site{t: t, pool: pool, jobs: client, url: front.URL}
}

func (s *site) notify() jobs.RunID {
	s.t.Helper()
	res, err := s.jobs.Notify(s.t.Context(), jobs.Notification{
		To: []jobs.Recipient{jobs.Email("ada@example.com")}, Subject: "A private subject", Text: "It is on its way.",
	}, nil)
	require.NoError(s.t, err)
	return res.Runs[0].ID
}

// end gives a run a terminal status, as a worker would have.
func (s *site) end(id jobs.RunID, status, code, message string) {
	s.t.Helper()
	s.exec(`update weir.run set status = $2, error_code = nullif($3, ''), error_message = nullif($4, ''), attempt = attempt + 1,
		next_attempt_at = null, finished_at = clock_timestamp() where id = $1`, id.String(), status, code, message)
}

func (s *site) exec(sql string, args ...any) {
	s.t.Helper()
	_, err := s.pool.Exec(s.t.Context(), sql, args...)
	require.NoError(s.t, err)
}

// answer is a response whose body was read.
type answer struct {
	*http.Response
	body string
}

func (s *site) do(method, path, body string, change ...func(*http.Request)) answer {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, strings.NewReader(body))
	require.NoError(s.t, err)
	for _, f := range change {
		f(req)
	}
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	res, err := client.Do(req)
	require.NoError(s.t, err)
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	require.NoError(s.t, err)
	return answer{res, string(text)}
}

func (s *site) get(path string, change ...func(*http.Request)) answer {
	s.t.Helper()
	return s.do(http.MethodGet, path, "", change...)
}

// post sends a form as a browser on the same site does.
func (s *site) post(path string, change ...func(*http.Request)) answer {
	s.t.Helper()
	return s.do(http.MethodPost, path, "", append([]func(*http.Request){func(r *http.Request) {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Sec-Fetch-Site", "same-origin")
	}}, change...)...)
}

func as(user, password string) func(*http.Request) {
	return func(r *http.Request) { r.SetBasicAuth(user, password) }
}

func header(name, value string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Add(name, value) }
}

func (s *site) status(id jobs.RunID) jobs.Status {
	s.t.Helper()
	run, err := s.jobs.Get(s.t.Context(), id)
	require.NoError(s.t, err)
	return run.Status
}

func pathOf(id jobs.RunID, rest string) string { return "/runs/" + url.PathEscape(id.String()) + rest }
