package desk_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/desk"
	"github.com/weirqueue/weir/internal/postgres/pgtest"
)

const userHeader = "X-Test-User"

// identify is the tests' authentication: a name in a header.
func identify(r *http.Request) (desk.Owner, error) {
	switch name := r.Header.Get(userHeader); name {
	case "":
		return "", errors.New("nobody")
	case "viewer":
		return "", desk.ErrForbidden
	default:
		return desk.Owner(name), nil
	}
}

// api is a running handler on a database of its own.
type api struct {
	t     testing.TB
	pool  *pgxpool.Pool
	store *desk.Store
	url   string
	http  *http.Client

	handler *desk.Handler
}

func newAPI(t testing.TB, opts ...pgtest.Option) *api {
	t.Helper()
	return serve(t, pgtest.Pool(t, opts...), desk.HandlerConfig{Rate: 1e6, Burst: 1e6}, nil)
}

// serve starts a server on pool; around, when it is not nil, stands in front of the handler.
func serve(t testing.TB, pool *pgxpool.Pool, cfg desk.HandlerConfig, around func(http.Handler) http.Handler) *api {
	t.Helper()
	store, err := desk.NewStore(pool)
	require.NoError(t, err)
	cfg.Store, cfg.Logger = store, slog.New(slog.NewTextHandler(t.Output(), nil))
	if cfg.Identify == nil {
		cfg.Identify = identify
	}
	handler, err := desk.NewHandler(cfg)
	require.NoError(t, err)
	mux := http.NewServeMux()
	mux.Handle(desk.Prefix, handler)
	var h http.Handler = mux
	if around != nil {
		h = around(h)
	}
	server := httptest.NewServer(h)
	transport := &http.Transport{MaxIdleConnsPerHost: 300}
	t.Cleanup(func() { handler.Close(); transport.CloseIdleConnections(); server.Close() })
	return &api{t, pool, store, server.URL, &http.Client{Transport: transport}, handler}
}

// answer is a response whose body was read.
type answer struct {
	t      testing.TB
	status int
	header http.Header
	body   string
}

type change = func(*http.Request)

func header(name, value string) change {
	return func(r *http.Request) {
		r.Header.Del(name)
		if value != "" {
			r.Header.Set(name, value)
		}
	}
}

func as(user string) change { return header(userHeader, user) }

// send makes a request as ada, with a JSON body where there is one. Every answer is held against the description.
func (a *api) send(method, path, body string, changes ...change) (answer, error) {
	a.t.Helper()
	req, err := http.NewRequestWithContext(context.Background(), method, a.url+path, strings.NewReader(body))
	require.NoError(a.t, err)
	req.Header.Set(userHeader, "ada")
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for _, f := range changes {
		f(req)
	}
	res, err := a.http.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		return answer{}, err
	}
	conforms(a.t, req, body, res, text)
	return answer{a.t, res.StatusCode, res.Header, string(text)}, nil
}

func (a *api) do(method, path, body string, changes ...change) answer {
	a.t.Helper()
	res, err := a.send(method, path, body, changes...)
	require.NoError(a.t, err)
	return res
}

func (a *api) get(path string, changes ...change) answer {
	return a.do(http.MethodGet, path, "", changes...)
}

// is fails the test unless the answer has the status and, where it is an error, the code.
func (r answer) is(status int, code string) answer {
	r.t.Helper()
	require.Equal(r.t, status, r.status, r.body)
	if code != "" {
		require.Equal(r.t, code, r.value("error", "code"), r.body)
	}
	return r
}

// value is what a path of keys leads to; numbers are json.Number.
func (r answer) value(path ...string) any {
	r.t.Helper()
	decoder := json.NewDecoder(strings.NewReader(r.body))
	decoder.UseNumber()
	var v any
	require.NoError(r.t, decoder.Decode(&v), r.body)
	for _, key := range path {
		object, ok := v.(map[string]any)
		require.True(r.t, ok, "%s in %s", key, r.body)
		v = object[key]
	}
	return v
}

func (r answer) version(path ...string) int64 {
	r.t.Helper()
	n, err := r.value(path...).(json.Number).Int64()
	require.NoError(r.t, err)
	return n
}

// create makes a markdown file of ada's and returns its path.
func (a *api) create(text string, changes ...change) string {
	a.t.Helper()
	res := a.do(http.MethodPost, "/api/desk/files", fmt.Sprintf(`{"type":"markdown","name":"Notes","content":{"text":%q}}`, text), changes...)
	res.is(http.StatusCreated, "")
	return res.header.Get("Location")
}

// put is the body of a save of a markdown file.
func put(version int64, saveID, text string) string {
	return fmt.Sprintf(`{"expectedVersion":%d,"saveId":%q,"writerId":"tab-1","schemaVersion":1,"content":{"text":%q}}`, version, saveID, text)
}

func (a *api) save(path string, version int64, saveID, text string, changes ...change) answer {
	a.t.Helper()
	return a.do(http.MethodPut, path, put(version, saveID, text), changes...)
}

// stored is the version and the text of a file, from the database.
func (a *api) stored(path string) (version int64, text string) {
	a.t.Helper()
	require.NoError(a.t, a.pool.QueryRow(context.Background(), `select version, content ->> 'text' from desk.file where id = $1`,
		strings.TrimPrefix(path, "/api/desk/files/")).Scan(&version, &text))
	return version, text
}

func value[T any](t testing.TB, pool *pgxpool.Pool, sql string, args ...any) T {
	t.Helper()
	var v T
	require.NoError(t, pool.QueryRow(context.Background(), sql, args...).Scan(&v), sql)
	return v
}

func execSQL(t testing.TB, pool *pgxpool.Pool, sql string, args ...any) {
	t.Helper()
	_, err := pool.Exec(context.Background(), sql, args...)
	require.NoError(t, err, sql)
}

// inParallel calls f n times at once and returns when all have returned.
func inParallel(n int, f func(i int)) {
	var all sync.WaitGroup
	start := make(chan struct{})
	for i := range n {
		all.Go(func() {
			<-start
			f(i)
		})
	}
	close(start)
	all.Wait()
}

// waitsForLock waits until n sessions of the database wait for a lock.
func waitsForLock(t testing.TB, pool *pgxpool.Pool, n int) {
	t.Helper()
	require.Eventually(t, func() bool {
		return value[int](t, pool, `select count(*)::int from pg_stat_activity
			where datname = current_database() and wait_event_type = 'Lock'`) >= n
	}, 20*time.Second, 5*time.Millisecond, "%d sessions wait for a lock", n)
}

func markdown(t testing.TB, text string) desk.Content {
	t.Helper()
	c, err := desk.Markdown(text)
	require.NoError(t, err)
	return c
}
