package ui

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/jobs"
)

// UI-01: the run decides, not the button.
func TestRedrive_OfASentRunIs409AndChangesNothing(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	id := s.notify()
	s.end(id, "sent", "", "")
	before, err := s.jobs.Get(t.Context(), id)
	require.NoError(t, err)
	var jobsBefore, jobsAfter int
	require.NoError(t, s.pool.QueryRow(t.Context(), "select count(*) from river_job").Scan(&jobsBefore))

	res := s.post(pathOf(id, "/redrive"))
	require.Equal(t, http.StatusConflict, res.StatusCode)
	require.Contains(t, res.body, "This run cannot be redriven: its status is sent. Nothing was changed.")
	require.Contains(t, res.body, `href="/runs/`+id.String()+`"`)

	after, err := s.jobs.Get(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, before, after)
	require.NoError(t, s.pool.QueryRow(t.Context(), "select count(*) from river_job").Scan(&jobsAfter))
	require.Equal(t, jobsBefore, jobsAfter)
}

func TestRedrive_OfADeadRunGoesBackToItsPage(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	id := s.notify()
	s.end(id, "dead", "smtp_451", "try later")

	for range 3 { // an impatient operator
		res := s.post(pathOf(id, "/redrive"))
		require.Equal(t, http.StatusSeeOther, res.StatusCode)
		require.Equal(t, pathOf(id, ""), res.Header.Get("Location"))
	}
	require.Equal(t, jobs.StatusPending, s.status(id))
}

func TestCancel_EndsAPendingRun(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	id := s.notify()
	require.Contains(t, s.get(pathOf(id, "")).body, `action="/runs/`+id.String()+`/cancel"`)
	require.Equal(t, http.StatusSeeOther, s.post(pathOf(id, "/cancel")).StatusCode)
	require.Equal(t, jobs.StatusFailed, s.status(id))

	body := s.get(pathOf(id, "")).body
	require.NotContains(t, body, "/redrive", "a canceled run cannot be redriven, so nothing offers it")
	require.NotContains(t, body, "/cancel")
	require.Equal(t, http.StatusConflict, s.post(pathOf(id, "/redrive")).StatusCode)
}

func TestErase_AsksFirstAndErasesAfterwards(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	id := s.notify()
	require.Equal(t, http.StatusConflict, s.get(pathOf(id, "/erase")).StatusCode, "not terminal yet")
	s.end(id, "failed", "smtp_550", "no such user ada@example.com")

	require.Contains(t, s.get(pathOf(id, "")).body, `href="/runs/`+id.String()+`/erase"`)
	page := s.get(pathOf(id, "/erase"))
	require.Equal(t, http.StatusOK, page.StatusCode)
	require.Contains(t, page.body, "cannot be undone")
	require.Contains(t, s.get(pathOf(id, "")).body, "no such user", "looking erases nothing")

	require.Equal(t, http.StatusSeeOther, s.post(pathOf(id, "/erase")).StatusCode)
	require.NotContains(t, s.get(pathOf(id, "")).body, "no such user")
	res := s.post(pathOf(id, "/redrive"))
	require.Equal(t, http.StatusConflict, res.StatusCode)
	require.Contains(t, res.body, "its payload was erased")
}

func TestRunPage_AnswersBadAndUnknownIds(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	const unknown = "01890a5d-ac96-774b-bcce-b302099a8057"
	for _, path := range []string{"/runs/%00", "/runs/1", "/runs/<script>", "/runs/" + unknown[1:]} {
		for _, rest := range []string{"", "/erase"} {
			res := s.get(path + rest)
			require.Contains(t, []int{http.StatusBadRequest, http.StatusNotFound}, res.StatusCode, path+rest)
			require.NotContains(t, res.body, "<script>")
		}
	}
	require.Equal(t, http.StatusBadRequest, s.get("/runs/1").StatusCode)
	require.Equal(t, http.StatusNotFound, s.get("/runs/"+unknown).StatusCode)
	for _, action := range []string{"/redrive", "/cancel", "/erase"} {
		require.Equal(t, http.StatusBadRequest, s.post("/runs/1"+action).StatusCode)
		require.Equal(t, http.StatusNotFound, s.post("/runs/"+unknown+action).StatusCode)
	}
}

func TestRunPage_SaysWhatAnUnknownOutcomeMeans(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	id := s.notify()
	s.exec(`insert into weir.receipt (run_id, step_index, attempt, outcome, effect, step_name, external_ref, output)
		values ($1, 0, 1, 'unknown', 'at_least_once', 'send', '<id@weir>', '{"took": "<b>"}')`, id.String())
	body := s.get(pathOf(id, "")).body
	require.Contains(t, body, "may have been delivered; is sent again")
	require.Contains(t, body, "&lt;id@weir&gt;")
	require.Contains(t, body, "&#34;took&#34;: &#34;&lt;b&gt;&#34;")

	s.end(id, "dead", "reaped", "")
	body = s.get(pathOf(id, "")).body
	require.Contains(t, body, "may have been delivered; the run has ended, so it is not tried again")
}

func TestRunPage_ShowsLeaseTriesAndTheRiverJob(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	id := s.notify()
	s.exec(`update weir.run set status = 'processing', attempt = 3, failures = 1, reaps = 2, lease_owner = 'node-7', doorbell_id = 4711,
		lease_expires_at = clock_timestamp() - interval '90 s', step_deadline_at = clock_timestamp(), next_attempt_at = 'infinity' where id = $1`, id.String())
	s.exec(`insert into weir.ended_try (run_id, attempt, how, owner, error_code, error, doorbell_id)
		values ($1, 2, 'reaped', 'node-6', 'lease_expired', 'gone', 4710)`, id.String())
	body := s.get(pathOf(id, "")).body
	for _, want := range []string{
		"processing", "node-7", "The lease has expired", "1 min ago", "1 of 8", `href="/river/jobs/4711"`, "node-6", "reaped", `href="/river/jobs/4710"`,
	} {
		require.Contains(t, body, want)
	}
}

func TestPages_EscapeWhatTheProviderSaid(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	id := s.notify()
	s.end(id, "dead", "x<i>", "550 <script>alert(1)</script> \u202Eevil\u2066 \x1b[31m\u2028 grüß 👍\r\n\"'`")
	s.exec(`update weir.run set tags = '{"<u>"}', metadata = '{"a": "</pre><script>\u202e"}' where id = $1`, id.String())
	body := s.get(pathOf(id, "")).body
	require.Contains(t, body, `550 &lt;script&gt;alert(1)&lt;/script&gt; \u202eevil\u2066 \u001b[31m\u2028 grüß 👍\u000d`)
	for _, never := range []string{"<script>alert", "\u202e", "\u2066", "\x1b", "<u>", "<i>", "</pre><script>"} {
		require.NotContains(t, body, never)
	}
	require.NotContains(t, s.get("/").body, "<i>")
}

func TestListPage_NeverShowsWhomOrWhatAbout(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	id := s.notify()
	body := s.get("/").body
	require.Contains(t, body, id.String())
	require.NotContains(t, body, "ada@example.com")
	require.NotContains(t, body, "A private subject")
}

func TestListPage_FiltersAndPagesByLinks(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	first := s.notify()
	for range 51 {
		s.notify()
	}
	s.end(first, "dead", "x", "")

	body := s.get("/").body
	require.Equal(t, 50, strings.Count(body, `id="run-`))
	require.NotContains(t, body, first.String())
	link := between(t, body, `<a href="/?after=`, `"`)
	older := s.get("/?after=" + link).body
	require.Equal(t, 2, strings.Count(older, `id="run-`))
	require.Contains(t, older, first.String())
	require.Contains(t, older, "Newest runs")

	dead := s.get("/?kind=delivery&status=dead").body
	require.Equal(t, 1, strings.Count(dead, `id="run-`))
	require.Contains(t, dead, `href="/?kind=delivery&amp;status=dead" aria-current="true"`)
	require.Contains(t, s.get("/?kind=own&status=dead").body, "No run matches.")
	for _, bad := range []string{"/?status=nonsense", "/?after=1", "/?kind=%00", "/?kind=" + strings.Repeat("x", 101)} {
		require.Equal(t, http.StatusBadRequest, s.get(bad).StatusCode, bad)
	}
}

func between(t *testing.T, text, from, to string) string {
	t.Helper()
	_, rest, ok := strings.Cut(text, from)
	require.True(t, ok, "no %q in the page", from)
	found, _, _ := strings.Cut(rest, to)
	return found
}
