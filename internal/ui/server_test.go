package ui

import (
	"context"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/internal/postgres/pgtest"
	"github.com/weirqueue/weir/jobs"
)

// withDatabaseAt makes a server whose database is at an address where there may be none.
func withDatabaseAt(t *testing.T, address string) *site {
	return newSite(t, func(c *Config) {
		pool, err := pgxpool.New(t.Context(), "postgres://weir:hunter2@"+address+"/weir?sslmode=disable")
		require.NoError(t, err)
		t.Cleanup(pool.Close)
		client, err := jobs.NewClient(pool, nil)
		require.NoError(t, err)
		c.Pool, c.Jobs = pool, client
	})
}

func TestPages_SayThatTheDatabaseIsDownAndNothingElse(t *testing.T) {
	t.Parallel()
	s := withDatabaseAt(t, "127.0.0.1:1")
	for _, path := range []string{"/", "/runs/01890a5d-ac96-774b-bcce-b302099a8057"} {
		res := s.get(path)
		require.Equal(t, http.StatusServiceUnavailable, res.StatusCode)
		require.Contains(t, res.body, "The database does not answer.")
		require.NotContains(t, res.body, "127.0.0.1")
		require.NotContains(t, res.body, "hunter2")
		require.NotContains(t, res.body, "refused")
	}
	require.Equal(t, http.StatusServiceUnavailable, s.post("/runs/01890a5d-ac96-774b-bcce-b302099a8057/cancel").StatusCode)
	require.Equal(t, http.StatusServiceUnavailable, s.get("/readyz").StatusCode)
	require.Equal(t, http.StatusOK, s.get("/healthz").StatusCode, "the process is up")
}

func TestReadyz_ASilentDatabaseIsNotReadyAfterTwoSeconds(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0") // takes connections and says nothing
	require.NoError(t, err)
	t.Cleanup(func() { _ = silent.Close() })
	s := withDatabaseAt(t, silent.Addr().String())
	began := time.Now()
	require.Equal(t, http.StatusServiceUnavailable, s.get("/readyz").StatusCode)
	require.GreaterOrEqual(t, time.Since(began), readyLimit)
	require.Less(t, time.Since(began), readyLimit+3*time.Second)
}

func TestPages_WithoutTablesSayHowToMakeThem(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(c *Config) {
		pool := pgtest.Connect(t, pgtest.Empty(t))
		client, err := jobs.NewClient(pool, nil)
		require.NoError(t, err)
		c.Pool, c.Jobs = pool, client
	})
	res := s.get("/")
	require.Equal(t, http.StatusServiceUnavailable, res.StatusCode)
	require.Contains(t, res.body, "worker migrate up")
}

func TestPages_TheListOfRunsIsFoundWhereOneWouldLook(t *testing.T) {
	t.Parallel()
	res := newSite(t).get("/runs")
	require.Equal(t, http.StatusFound, res.StatusCode)
	require.Equal(t, "/", res.Header.Get("Location"))
}

func TestPages_AFaultInsideShowsASentenceOnly(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	id := s.notify()
	s.exec("alter table weir.run alter column tags drop not null")
	s.exec("alter table weir.run alter column tags type text")
	res := s.get(pathOf(id, ""))
	require.Equal(t, http.StatusInternalServerError, res.StatusCode)
	require.Contains(t, res.body, somethingBroke)
	require.NotContains(t, res.body, "tags")
}

func TestPages_APanicIsA500(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(c *Config) {
		c.Metrics = http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("the inside") })
	})
	res := s.get("/metrics")
	require.Equal(t, http.StatusInternalServerError, res.StatusCode)
	require.Contains(t, res.body, somethingBroke)
	require.NotContains(t, res.body, "the inside")
}

func TestMetrics_CountByRouteAndNeverByPath(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	id := s.notify()
	s.get(pathOf(id, ""))
	s.get("/river/api/jobs")
	s.get("/some/secret/path")
	res := s.get("/metrics")
	require.Equal(t, http.StatusOK, res.StatusCode)
	for _, want := range []string{
		`weir_ui_requests_total{method="GET",route="/runs/{id}",status="200"} 1`, `route="/river/api"`, `route="other",status="404"`,
		"weir_ui_request_seconds_bucket", "go_goroutines", "process_open_fds",
	} {
		require.Contains(t, res.body, want)
	}
	require.NotContains(t, res.body, id.String())
	require.NotContains(t, res.body, "secret")
}

func TestAssets_AreKeptAndAskedFor(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for name, kind := range map[string]string{"weir.css": "text/css", "live.js": "javascript", "weir.svg": "image/svg+xml"} {
		res := s.get("/assets/" + name)
		require.Equal(t, http.StatusOK, res.StatusCode, name)
		require.Contains(t, res.Header.Get("Content-Type"), kind)
		tag := res.Header.Get("ETag")
		require.NotEmpty(t, tag)
		again := s.get("/assets/"+name, header("If-None-Match", tag))
		require.Equal(t, http.StatusNotModified, again.StatusCode)
		require.Empty(t, again.body)
	}
	require.Equal(t, http.StatusNotFound, s.get("/assets/other").StatusCode)
	require.Equal(t, http.StatusNotFound, s.get("/assets/%2e%2e%2fserver.go").StatusCode)
}

func TestServer_FinishesRequestsBeforeItEnds(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	client, err := jobs.NewClient(pool, nil)
	require.NoError(t, err)
	entered, leave := make(chan struct{}), make(chan struct{})
	server, err := New(Config{Pool: pool, Jobs: client, Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		close(entered)
		<-leave
		w.WriteHeader(http.StatusTeapot)
	})})
	require.NoError(t, err)
	l, err := Listen("127.0.0.1", "0", nil)
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(ctx, l) }()

	answered := make(chan int, 1)
	go func() {
		res, err := http.Get("http://" + l.Addr().String() + "/metrics")
		if err != nil {
			answered <- 0
			return
		}
		_ = res.Body.Close()
		answered <- res.StatusCode
	}()
	<-entered
	stop()
	close(leave)
	require.Equal(t, http.StatusTeapot, <-answered)
	select {
	case err := <-ended:
		require.NoError(t, err)
	case <-time.After(shutdownGrace + 5*time.Second):
		t.Fatal("the server did not end")
	}
}
