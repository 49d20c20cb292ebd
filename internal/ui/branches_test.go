package ui

import (
	"html"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/jobs"
)

const strange = `feat/<b>"a&b` + "\u202e"

func (s *site) branch(name string) {
	s.t.Helper()
	require.NoError(s.t, s.jobs.RegisterBranch(s.t.Context(), jobs.Branch{Name: name, Provider: "fake", Target: name + " db", Parent: "main"}))
}

func (s *site) form(path string, values url.Values, change ...func(*http.Request)) answer {
	s.t.Helper()
	return s.do(http.MethodPost, path, values.Encode(), append([]func(*http.Request){func(r *http.Request) {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Sec-Fetch-Site", "same-origin")
	}}, change...)...)
}

// A reset is asked for on a page of its own, works without a script, and an impatient operator gets the same run.
func TestBranchPages_ResetAsksFirstAndIsRepeatable(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	require.Contains(t, s.get("/branches").body, "No branch is registered")
	s.branch(strange)
	list := s.get("/branches").body
	require.Contains(t, list, `feat/&lt;b&gt;&#34;a&amp;b\u202e`)
	require.NotContains(t, list, "\u202e")
	link := "?" + url.Values{"name": {strange}}.Encode()
	page := s.get("/branch" + link).body
	require.Contains(t, page, "It has not been reset yet.")
	require.Contains(t, page, "Reset…")
	confirm := s.get("/branch/reset" + link)
	require.Equal(t, http.StatusOK, confirm.StatusCode)
	require.Contains(t, confirm.body, "is gone afterwards")
	key := between(t, confirm.body, `name="key" value="`, `"`)
	resets, err := s.jobs.ResetsOfBranch(t.Context(), strange, 0)
	require.NoError(t, err)
	require.Empty(t, resets, "looking resets nothing")

	values := url.Values{"name": {strange}, "key": {key}}
	first := s.form("/branch/reset", values)
	require.Equal(t, http.StatusSeeOther, first.StatusCode, first.body)
	again := s.form("/branch/reset", values)
	require.Equal(t, first.Header.Get("Location"), again.Header.Get("Location"))
	other := s.form("/branch/reset", url.Values{"name": {strange}, "key": {"other"}})
	require.Equal(t, http.StatusConflict, other.StatusCode)
	require.Contains(t, other.body, "being reset already")
	require.Contains(t, other.body, `href="`+first.Header.Get("Location")+`"`)
	require.Equal(t, http.StatusConflict, s.get("/branch/reset"+link).StatusCode)
	require.Contains(t, s.get("/branch"+link).body, "queued")
	require.Contains(t, s.get("/branches").body, first.Header.Get("Location"))
}

// However many branches there are, a page has fifty, and each is on one page.
func TestBranchPages_AreListedByPage(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.exec(`insert into weir.branch (name, provider, target, parent) select 'b&' || lpad(n::text, 3, '0'), 'fake', 'db ' || n, 'main' from generate_series(1, 120) n`)
	rows := regexp.MustCompile(`href="/branch\?name=b%26(\d{3})"`)
	next := regexp.MustCompile(`href="(/branches\?[^"]*)" rel="next"`)
	var seen []string
	path, pages := "/branches", 0
	for path != "" {
		page := s.get(path)
		require.Equal(t, http.StatusOK, page.StatusCode)
		require.Equal(t, pages > 0, strings.Contains(page.body, "First branches"))
		for _, row := range rows.FindAllStringSubmatch(page.body, -1) {
			seen = append(seen, row[1])
		}
		pages++
		require.LessOrEqual(t, len(seen), 50*pages)
		path = ""
		if m := next.FindStringSubmatch(page.body); m != nil {
			path = html.UnescapeString(m[1])
		}
	}
	require.Equal(t, 3, pages)
	require.Len(t, seen, 120)
	require.True(t, slices.IsSorted(seen))
	require.Contains(t, s.get("/branches?after=zzz").body, "There are no more branches.")
	for _, after := range []string{"%00", "%ff", strings.Repeat("x", 201)} {
		require.Equal(t, http.StatusBadRequest, s.get("/branches?after="+after).StatusCode, after)
	}
}

func TestBranchPages_BadInput(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.branch("dev")
	require.Equal(t, http.StatusNotFound, s.get("/branch?name=nobody").StatusCode)
	require.Equal(t, http.StatusNotFound, s.get("/branch/reset").StatusCode)
	require.Equal(t, http.StatusNotFound, s.form("/branch/reset", url.Values{"name": {"nobody"}}).StatusCode)
	for _, at := range []string{"yesterday", "2026-01-31T12:00:00", "2999-01-01T00:00:00Z"} {
		res := s.form("/branch/reset", url.Values{"name": {"dev"}, "at": {at}})
		require.Equal(t, http.StatusBadRequest, res.StatusCode, at)
	}
	res := s.form("/branch/reset", url.Values{"name": {"dev"}}, func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") })
	require.Equal(t, http.StatusForbidden, res.StatusCode)
	runs, err := s.jobs.ResetsOfBranch(t.Context(), "dev", 0)
	require.NoError(t, err)
	require.Empty(t, runs)
}

// The run's page shows every status of the provider's operations, and cancels on a page of its own.
func TestBranchPages_OperationsAndCancel(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.branch("dev")
	res, err := s.jobs.ResetBranch(t.Context(), jobs.Reset{Branch: "dev"}, nil)
	require.NoError(t, err)
	id := res.Run.ID
	s.exec(`update weir.run set status = 'running' where id = $1`, id.String())
	s.exec(`insert into weir.receipt (run_id, step_index, attempt, outcome, effect, step_name) values ($1, 0, 1, 'ok', 'reconciled', 'issue')`, id.String())
	s.exec(`insert into weir.branch_operation (run_id, operation_id, attempt, action, status, state, final, seen)
		values ($1, 'op-<1>', 1, 'apply_config', 'running', 'running', false, '[{"status": "scheduling", "at": "2026-01-01T00:00:00Z"}, {"status": "running", "at": "2026-01-01T00:00:05Z"}]')`, id.String())
	body := s.get(pathOf(id, "")).body
	for _, want := range []string{"op-&lt;1&gt;", "apply_config", "scheduling", "2026-01-01 00:00:05", `href="/branch?name=dev"`, `href="/runs/` + id.String() + `/cancel"`} {
		require.Contains(t, body, want)
	}
	require.Contains(t, s.get(pathOf(id, "/cancel")).body, "Cancel this run?")
	require.Equal(t, http.StatusSeeOther, s.post(pathOf(id, "/cancel")).StatusCode)
	require.Equal(t, jobs.StatusRunning, s.status(id), "its operations are not final")
	require.Contains(t, s.get(pathOf(id, "")).body, "The run ends when the provider's operations do")
	s.end(id, "failed", "x", "")
	require.Equal(t, http.StatusConflict, s.get(pathOf(id, "/cancel")).StatusCode)
}

func TestBranchPages_ViewersLookOnly(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(c *Config) { c.Auth, c.Viewers = BasicAuth{User: "ada", Password: "secret"}, []string{"ada"} })
	s.branch("dev")
	ada := as("ada", "secret")
	require.NotContains(t, s.get("/branch?name=dev", ada).body, "Reset…")
	require.Equal(t, http.StatusForbidden, s.get("/branch/reset?name=dev", ada).StatusCode)
	require.Equal(t, http.StatusForbidden, s.form("/branch/reset", url.Values{"name": {"dev"}}, ada).StatusCode)
}
