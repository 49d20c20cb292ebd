package ui

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/bcrypt"

	"github.com/weirqueue/weir/jobs"
)

// users is an htpasswd file in which everybody's password is their name.
func users(t *testing.T, names ...string) *Htpasswd {
	t.Helper()
	var file strings.Builder
	for _, name := range names {
		fmt.Fprintf(&file, "%s:%s\n", name, hashOf(t, name))
	}
	h, err := ParseHtpasswd(strings.NewReader(file.String()))
	require.NoError(t, err)
	return h
}

func hashOf(t *testing.T, password string) string {
	t.Helper()
	hash, err := bcrypt.GenerateFromPassword([]byte(password), bcrypt.MinCost)
	require.NoError(t, err)
	return string(hash)
}

func withViewer(t *testing.T) func(*Config) {
	return func(c *Config) { c.Auth, c.Viewers = users(t, "vera", "otto"), []string{"vera"} }
}

func riverJobOf(s *site, id jobs.RunID) (job int64, state string) {
	s.t.Helper()
	require.NoError(s.t, s.pool.QueryRow(s.t.Context(), `
		select j.id, j.state from river_job j join weir.run r on r.doorbell_id = j.id where r.id = $1`, id.String()).Scan(&job, &state))
	return job, state
}

func TestPages_ViewerCannotWrite(t *testing.T) {
	t.Parallel()
	s := newSite(t, withViewer(t))
	live, dead := s.notify(), s.notify()
	s.end(dead, "dead", "x", "")
	job, _ := riverJobOf(s, live)
	vera, otto := as("vera", "vera"), as("otto", "otto")

	for _, path := range []string{pathOf(dead, "/redrive"), pathOf(live, "/cancel"), pathOf(dead, "/erase"), "/", "/nothing", "/healthz"} {
		for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, "BREW"} {
			res := s.do(method, path, "", vera)
			require.Equal(t, http.StatusForbidden, res.StatusCode, method+" "+path)
		}
	}
	for _, path := range []string{"/river/api/jobs/cancel", "/river/api/jobs/delete", "/river/api/jobs/retry", "/river", "/river/"} {
		res := s.do(http.MethodPost, path, fmt.Sprintf(`{"ids":["%d"]}`, job), vera)
		require.Equal(t, http.StatusForbidden, res.StatusCode, path)
		if strings.Contains(path, "/api/") {
			var said struct{ Message string }
			require.NoError(t, json.Unmarshal([]byte(res.body), &said), res.body)
			require.NotEmpty(t, said.Message)
		}
	}
	require.Equal(t, http.StatusForbidden, s.do(http.MethodPut, "/river/api/queues/weir_delivery/pause", "", vera).StatusCode)
	require.Equal(t, jobs.StatusPending, s.status(live))
	require.Equal(t, jobs.StatusDead, s.status(dead))
	_, state := riverJobOf(s, live)
	require.Equal(t, "available", state)

	for _, id := range []jobs.RunID{live, dead} {
		page := s.get(pathOf(id, ""), vera)
		require.Equal(t, http.StatusOK, page.StatusCode)
		require.NotContains(t, page.body, "<form", "no button that would be refused")
		require.NotContains(t, page.body, "/erase")
		require.Contains(t, s.get(pathOf(id, ""), otto).body, "<form")
	}
	require.Equal(t, http.StatusForbidden, s.get(pathOf(dead, "/erase"), vera).StatusCode)
	require.Equal(t, http.StatusOK, s.get("/river/api/jobs", vera).StatusCode)
	require.Equal(t, http.StatusSeeOther, s.post(pathOf(dead, "/redrive"), otto).StatusCode)
}

func TestPages_CrossSitePostIsRefused(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	id := s.notify()
	job, _ := riverJobOf(s, id)
	body := fmt.Sprintf(`{"ids":["%d"]}`, job)
	foreign := map[string][]func(*http.Request){
		"a new browser":        {header("Sec-Fetch-Site", "cross-site"), header("Origin", "https://evil.example")},
		"another subdomain":    {header("Sec-Fetch-Site", "same-site")},
		"an old browser":       {header("Origin", "https://evil.example")},
		"a sandboxed document": {header("Origin", "null")},
	}
	for name, from := range foreign {
		t.Run(name, func(t *testing.T) {
			plain := append([]func(*http.Request){header("Content-Type", "text/plain")}, from...)
			res := s.do(http.MethodPost, "/river/api/jobs/cancel", body, plain...)
			require.Equal(t, http.StatusForbidden, res.StatusCode)
			require.Equal(t, http.StatusForbidden, s.do(http.MethodPost, pathOf(id, "/cancel"), "", plain...).StatusCode)
		})
	}
	_, state := riverJobOf(s, id)
	require.Equal(t, "available", state)
	require.Equal(t, jobs.StatusPending, s.status(id))

	// River UI's own script still may.
	res := s.do(http.MethodPost, "/river/api/jobs/cancel", body, header("Sec-Fetch-Site", "same-origin"), header("Content-Type", "application/json"))
	require.Equal(t, http.StatusOK, res.StatusCode, res.body)
	_, state = riverJobOf(s, id)
	require.Equal(t, "cancelled", state)
}

func TestPages_NobodyGetsInWithoutAPassword(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(c *Config) { c.Auth = BasicAuth{User: "ada", Password: "s3cret"} })
	id := s.notify()
	closed := []string{
		"/", pathOf(id, ""), "/assets/weir.css", "/river", "/river/api/jobs", "/metrics", "/nothing", "/river/api/health-checks/other",
		"/x/api/health-checks/complete", "/river/x/../api/health-checks/complete/x",
	}
	for _, path := range closed {
		for name, who := range map[string]func(*http.Request){
			"nobody": func(*http.Request) {}, "a wrong password": as("ada", "s3cre"), "another user": as("bob", "s3cret"), "no password": as("ada", ""),
		} {
			res := s.get(path, who)
			require.Equal(t, http.StatusUnauthorized, res.StatusCode, path+" as "+name)
			require.Contains(t, res.Header.Get("WWW-Authenticate"), "Basic")
		}
		require.NotEqual(t, http.StatusUnauthorized, s.get(path, as("ada", "s3cret")).StatusCode)
	}
	require.Equal(t, http.StatusUnauthorized, s.post(pathOf(id, "/cancel")).StatusCode)
	require.Equal(t, http.StatusUnauthorized, s.post("/healthz").StatusCode)
	for _, open := range []string{"/healthz", "/readyz", "/river/api/health-checks/minimal", "/river/api/health-checks/complete"} {
		require.Equal(t, http.StatusOK, s.get(open).StatusCode, open)
	}
	require.Contains(t, s.get("/", as("ada", "s3cret")).body, "Signed in as <b>ada</b>")
}

func TestPages_WithoutAuthenticationAForeignNameIsRefused(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	host := func(name string) func(*http.Request) { return func(r *http.Request) { r.Host = name } }
	for _, name := range []string{"evil.example", "evil.example:8080", "localhost.evil.example", "10.0.0.1:8080", "127.0.0.1.evil.example"} {
		require.Equal(t, http.StatusForbidden, s.get("/", host(name)).StatusCode, name)
		require.Equal(t, http.StatusForbidden, s.get("/river/api/jobs", host(name)).StatusCode, name)
		require.Equal(t, http.StatusOK, s.get("/healthz", host(name)).StatusCode, name)
	}
	for _, name := range []string{"localhost", "LOCALHOST:8080", "127.0.0.1:1", "[::1]:8080", "[::1]"} {
		require.Equal(t, http.StatusOK, s.get("/", host(name)).StatusCode, name)
	}
}

func TestPages_SendSecurityHeaders(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	id := s.notify()
	for _, path := range []string{"/", pathOf(id, ""), "/nothing", "/runs/1", "/river/", "/river/api/jobs", "/healthz"} {
		h := s.get(path).Header
		require.Equal(t, "nosniff", h.Get("X-Content-Type-Options"), path)
		require.Equal(t, "same-origin", h.Get("Referrer-Policy"), path)
		require.Equal(t, "no-store", h.Get("Cache-Control"), path)
		require.Contains(t, h.Get("Content-Security-Policy"), "frame-ancestors 'none'", path)
		require.NotContains(t, h.Get("Content-Security-Policy"), "unsafe-eval", path)
		require.Contains(t, h.Get("Content-Security-Policy"), "script-src 'self';", path)
	}
	require.NotContains(t, s.get("/").Header.Get("Content-Security-Policy"), "unsafe")
}

func TestServer_RefusesAPublicAddressWithoutAuthentication(t *testing.T) {
	t.Parallel()
	for _, host := range []string{"", "0.0.0.0", "::", "192.0.2.1"} {
		_, err := Listen(host, "0", nil)
		require.ErrorIs(t, err, ErrPublic, host)
	}
	for _, host := range []string{"127.0.0.1", "localhost", "127.8.8.8"} {
		l, err := Listen(host, "0", nil)
		require.NoError(t, err, host)
		require.NoError(t, l.Close())
	}
	l, err := Listen("0.0.0.0", "0", BasicAuth{User: "ada", Password: "s3cret"})
	require.NoError(t, err)
	require.NoError(t, l.Close())
}
