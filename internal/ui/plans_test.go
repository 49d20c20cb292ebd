package ui

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/desk"
	"github.com/weirqueue/weir/jobs"
	"github.com/weirqueue/weir/workers/tool/desktool"
)

// planSite is a site with the tools that cmd/ui has, where ada signs in.
func planSite(t *testing.T, change ...func(*Config)) (*site, *desk.Store) {
	t.Helper()
	var client *jobs.Client
	var store *desk.Store
	s := newSite(t, append([]func(*Config){func(c *Config) {
		var err error
		store, err = desk.NewStore(c.Pool)
		require.NoError(t, err)
		client, err = jobs.NewClient(c.Pool, &jobs.Config{Tools: desktool.New(store).Declarations(), Logger: c.Logger})
		require.NoError(t, err)
		c.Jobs, c.Auth = client, BasicAuth{User: "ada", Password: "secret"}
	}}, change...)...)
	s.jobs = client
	return s, store
}

var ada = as("ada", "secret")

func (s *site) propose(p jobs.PlanParams) jobs.RunID {
	s.t.Helper()
	p.Risk, p.Owner = jobs.RiskHigh, "grace"
	res, err := s.jobs.ProposePlan(s.t.Context(), p, nil)
	require.NoError(s.t, err)
	return res.Run.ID
}

func (s *site) plan(id jobs.RunID) *jobs.Plan {
	s.t.Helper()
	p, err := s.jobs.GetPlan(s.t.Context(), id)
	require.NoError(s.t, err)
	return p
}

func noteStep(text string) jobs.PlanStep {
	args, _ := json.Marshal(map[string]string{"name": "Notes", "text": text})
	return jobs.PlanStep{Tool: desktool.CreateMarkdown, Args: args, Rationale: "because <b>" + text[:1]}
}

// Whoever approves sees every argument, with what would change how the text around it reads as an escape, and nothing of it
// as markup; the list shows what waits.
func TestPlanPages_EveryArgumentIsShownAndNotObeyed(t *testing.T) {
	t.Parallel()
	s, _ := planSite(t)
	require.Contains(t, s.get("/plans", ada).body, "No plan waits for an approval.")
	long := strings.Repeat("x", 20_000) + "the end"
	bad := "pay \u202eada\u2066 \u200b\u3164\ufe0f\u0085<script>alert(1)</script>"
	id := s.propose(jobs.PlanParams{Title: "Title " + bad, Rationale: "Rationale " + bad, ProposedBy: "bot " + bad, Steps: []jobs.PlanStep{
		noteStep("text " + bad), noteStep(long), {Tool: desktool.UpdateCells, Args: json.RawMessage(
			`{"file": "fil_0123456789ab", "expectedVersion": 9007199254740991, "cells": {"A1": {"v": 123456789012345678901234567890}}}`)},
	}})
	list, page := s.get("/plans", ada).body, s.get(linkToPlan(id), ada).body
	for _, body := range []string{list, page} {
		for _, hidden := range []string{"\u202e", "\u2066", "\u200b", "\u3164", "\ufe0f", "\u0085", "<script>alert", "<b>pay"} {
			require.NotContains(t, body, hidden)
		}
		require.Contains(t, body, `Title pay \u202eada\u2066 \u200b\u3164\ufe0f\u0085&lt;script&gt;`)
	}
	require.Contains(t, list, "high")
	for _, want := range []string{
		`Rationale pay \u202eada`, `bot pay \u202eada`, `text pay \u202eada\u2066 \u200b\u3164\ufe0f`, long, "123456789012345678901234567890", "9007199254740991",
		"Makes a markdown file.", "because &lt;b&gt;", s.plan(id).Digest, "Approve as ada", "on behalf of <b>grace</b>", "0 of 3 steps committed", "not run",
	} {
		require.Contains(t, page, want)
	}
	require.Contains(t, s.get(pathOf(id, ""), ada).body, `href="`+linkToPlan(id)+`"`)
}

// A form without a script approves what it shows, in the name of who is signed in; an impatient approver, and a second one,
// change nothing; another digest is refused.
func TestPlanPages_ApproveInTheNameOfWhoIsSignedIn(t *testing.T) {
	t.Parallel()
	s, _ := planSite(t)
	id := s.propose(jobs.PlanParams{Title: "Notes", Steps: []jobs.PlanStep{noteStep("a")}})
	page := s.get(linkToPlan(id), ada).body
	digest := between(t, page, `name="digest" value="`, `"`)
	for _, wrong := range []string{"", "zz", strings.Repeat("0", 64), digest + " "} {
		res := s.form(linkToPlan(id)+"/approve", url.Values{"digest": {wrong}, "by": {"grace"}}, ada)
		require.Equal(t, http.StatusConflict, res.StatusCode, wrong)
		require.Equal(t, jobs.StatusPending, s.status(id))
	}
	res := s.form(linkToPlan(id)+"/approve", url.Values{"digest": {digest}}, ada, func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") })
	require.Equal(t, http.StatusForbidden, res.StatusCode)
	var clicks sync.WaitGroup
	for range 4 {
		clicks.Go(func() {
			res := s.form(linkToPlan(id)+"/approve", url.Values{"digest": {digest}, "by": {"grace"}}, ada)
			require.Equal(t, []any{http.StatusSeeOther, linkToPlan(id)}, []any{res.StatusCode, res.Header.Get("Location")})
		})
	}
	clicks.Wait()
	p := s.plan(id)
	require.Equal(t, []any{jobs.StatusApproved, "approved", "ada"}, []any{p.Run.Status, p.Decision, p.DecidedBy}, "no field of the form is a name")
	page = s.get(linkToPlan(id), ada).body
	require.Contains(t, page, "Approved by")
	require.NotContains(t, page, "Approve as")
	require.NotContains(t, s.get("/plans", ada).body, id.String())
	require.Equal(t, http.StatusConflict, s.form(linkToPlan(id)+"/reject", url.Values{}, ada).StatusCode)
}

// No identity: no approval and no rejection, whatever a form says. A viewer looks only.
func TestPlanPages_NobodyDecidesWithoutAName(t *testing.T) {
	t.Parallel()
	s, _ := planSite(t, func(c *Config) { c.Auth = nil })
	id := s.propose(jobs.PlanParams{Title: "Notes", Steps: []jobs.PlanStep{noteStep("a")}})
	page := s.get(linkToPlan(id)).body
	require.Contains(t, page, "so nobody can approve")
	require.NotContains(t, page, "Approve as")
	form := url.Values{"digest": {s.plan(id).Digest}, "by": {"ada"}}
	for _, do := range []string{"/approve", "/reject"} {
		require.Equal(t, http.StatusForbidden, s.form(linkToPlan(id)+do, form, header("X-Forwarded-User", "ada")).StatusCode, do)
	}
	require.Equal(t, http.StatusForbidden, s.get(linkToPlan(id)+"/reject").StatusCode)
	require.Equal(t, jobs.StatusPending, s.status(id))

	s, _ = planSite(t, func(c *Config) { c.Viewers = []string{"ada"} })
	id = s.propose(jobs.PlanParams{Title: "Notes", Steps: []jobs.PlanStep{noteStep("a")}})
	form.Set("digest", s.plan(id).Digest)
	for _, do := range []string{"approve", "reject", "cancel", "undo"} {
		require.Equal(t, http.StatusForbidden, s.form(linkToPlan(id)+"/"+do, form, ada).StatusCode, do)
		require.NotContains(t, s.get(linkToPlan(id), ada).body, `id="`+do+`"`)
	}
	require.Equal(t, http.StatusForbidden, s.get(linkToPlan(id)+"/cancel", ada).StatusCode)
	require.Equal(t, jobs.StatusPending, s.status(id))
}

// Rejecting and canceling ask first, work without a script, and are safe to ask for twice.
func TestPlanPages_RejectAndCancel(t *testing.T) {
	t.Parallel()
	s, _ := planSite(t)
	id := s.propose(jobs.PlanParams{Title: "Notes", Steps: []jobs.PlanStep{noteStep("a")}})
	require.Contains(t, s.get(linkToPlan(id)+"/reject", ada).body, "<textarea")
	for range 2 {
		require.Equal(t, http.StatusSeeOther, s.form(linkToPlan(id)+"/reject", url.Values{"reason": {"not <now>\u202e\r\nnor later"}}, ada).StatusCode)
	}
	require.Contains(t, s.get(linkToPlan(id), ada).body, "not &lt;now&gt;\\u202e\nnor later")
	require.Equal(t, []string{"rejected", "ada"}, []string{s.plan(id).Decision, s.plan(id).DecidedBy})
	for _, reason := range []string{strings.Repeat("x", 9000), "a\x00", "\xff"} {
		require.Equal(t, http.StatusBadRequest, s.form(linkToPlan(id)+"/reject", url.Values{"reason": {reason}}, ada).StatusCode)
	}
	res := s.form(linkToPlan(id)+"/approve", url.Values{"digest": {s.plan(id).Digest}}, ada)
	require.Equal(t, http.StatusConflict, res.StatusCode, "PL-07: approved after it was rejected")

	id = s.propose(jobs.PlanParams{Title: "Notes", Steps: []jobs.PlanStep{noteStep("a")}})
	require.Contains(t, s.get(linkToPlan(id)+"/cancel", ada).body, "Cancel this plan?")
	require.Equal(t, jobs.StatusPending, s.status(id), "looking cancels nothing")
	for range 2 {
		require.Equal(t, http.StatusSeeOther, s.form(linkToPlan(id)+"/cancel", nil, ada).StatusCode)
	}
	require.Equal(t, "canceled", s.plan(id).Run.ErrorCode)
	for _, do := range []string{"/reject", "/cancel", "/undo"} {
		require.Equal(t, http.StatusConflict, s.get(linkToPlan(id)+do, ada).StatusCode, do)
	}
	require.Equal(t, http.StatusNotFound, s.get(linkToPlan(id)+"/burn", ada).StatusCode)
	require.Equal(t, http.StatusNotFound, s.form(linkToPlan(id)+"/burn", nil, ada).StatusCode)
	require.Equal(t, http.StatusBadRequest, s.get("/plans/x", ada).StatusCode)
	require.Equal(t, http.StatusNotFound, s.get(linkToPlan(jobs.RunID{1}), ada).StatusCode)
	require.Equal(t, http.StatusNotFound, s.get(linkToPlan(s.notify()), ada).StatusCode, "a delivery is no plan")
}

// carriedOut gives a plan receipts and an end, as a worker would have.
func (s *site) carriedOut(id jobs.RunID, status, code string, outputs ...string) {
	s.t.Helper()
	p := s.plan(id)
	_, err := s.jobs.ApprovePlan(s.t.Context(), id, p.Digest, "grace")
	require.NoError(s.t, err)
	for i, out := range outputs {
		outcome := "ok"
		if out == "" {
			outcome, out = "failed", "null"
		}
		s.exec(`insert into weir.receipt (run_id, step_index, attempt, outcome, effect, step_name, output) values ($1, $2, 1, $3, 'transactional', $4, $5::json)`,
			id.String(), i, outcome, p.Steps[i].Tool, out)
	}
	s.exec(`update weir.run set status = 'executing', expires_at = null where id = $1`, id.String())
	if status != "executing" {
		s.end(id, status, code, "")
	}
}

// Progress is read from the receipts; a plan that ended is undone by one that waits for its own approval and says what it
// leaves alone, and whoever asks twice gets the same.
func TestPlanPages_ProgressAndUndo(t *testing.T) {
	t.Parallel()
	s, store := planSite(t)
	made, err := store.Create(t.Context(), "grace", desk.NewFile{Name: "Notes", Content: mustMarkdown(t, "a")})
	require.NoError(t, err)
	steps := []jobs.PlanStep{noteStep("a"), {Tool: desktool.DeleteFile, Args: json.RawMessage(`{"file": "fil_0123456789ab", "expectedVersion": 1}`)}, noteStep("b"), noteStep("c")}
	outputs := []string{fmt.Sprintf(`{"file": %q, "version": 1}`, made.ID), `{"file": "fil_0123456789ab", "version": 1}`}
	running := s.propose(jobs.PlanParams{Title: "Under way", Steps: steps})
	s.carriedOut(running, "executing", "", outputs...)
	page := s.get(linkToPlan(running), ada).body
	require.Contains(t, page, "2 of 4 steps committed")
	require.Contains(t, page, "executing")
	require.Equal(t, 2, strings.Count(page, `>not run</span>`))
	require.Equal(t, http.StatusConflict, s.get(linkToPlan(running)+"/undo", ada).StatusCode)

	id := s.propose(jobs.PlanParams{Title: "Stopped", Steps: steps})
	s.carriedOut(id, "failed", "version_conflict", append(outputs, "")...)
	page = s.get(linkToPlan(id), ada).body
	require.Contains(t, page, "version_conflict")
	require.Contains(t, page, "2 of 4 steps committed")
	require.Contains(t, s.get(linkToPlan(id)+"/undo", ada).body, "Undo this plan?")
	first := s.form(linkToPlan(id)+"/undo", nil, ada)
	require.Equal(t, http.StatusSeeOther, first.StatusCode, first.body)
	again := s.form(linkToPlan(id)+"/undo", nil, ada)
	require.Equal(t, first.Header.Get("Location"), again.Header.Get("Location"))
	undo := s.get(first.Header.Get("Location"), ada).body
	for _, want := range []string{"Undo: Stopped", "step 1, desk_delete_file: no_inverse", string(made.ID), "Approve as ada", `href="` + linkToPlan(id) + `"`, "by ada"} {
		require.Contains(t, undo, want)
	}
	require.Contains(t, s.get(linkToPlan(id), ada).body, "was proposed to undo it")

	none := s.propose(jobs.PlanParams{Title: "Nothing to undo", Steps: steps[1:2]})
	s.carriedOut(none, "executed", "", outputs[1])
	res := s.form(linkToPlan(none)+"/undo", nil, ada)
	require.Equal(t, http.StatusConflict, res.StatusCode)
	require.Contains(t, res.body, "No step of this plan can be undone")
	require.Contains(t, res.body, "no_inverse")

	require.NoError(t, s.jobs.Erase(t.Context(), id))
	page = s.get(linkToPlan(id), ada).body
	require.Contains(t, page, "personal data was erased")
	require.NotContains(t, page, "Stopped")
}

func mustMarkdown(t *testing.T, text string) desk.Content {
	t.Helper()
	c, err := desk.Markdown(text)
	require.NoError(t, err)
	return c
}

// The page works in a browser, under its policy, on a desktop and on a phone.
func TestBrowser_APlanIsApprovedWhereAllOfItIsSeen(t *testing.T) {
	s, _ := planSite(t, func(c *Config) { c.Auth = signedIn("ada") })
	p := jobs.PlanParams{
		Title: "Correct the budget of March", Rationale: "The invoice of the printers came in, and is higher than was planned.", ProposedBy: "assistant",
		Steps: []jobs.PlanStep{
			{Tool: desktool.UpdateCells, Args: json.RawMessage(`{"file": "fil_0123456789ab", "expectedVersion": 4, "cells": {"C3": {"v": 1200}, "C9": {"v": 8450, "f": "=C2+C3"}}}`), Rationale: "1,000 was planned."},
			{Tool: desktool.RenameFile, Args: json.RawMessage(`{"file": "fil_0123456789ab", "name": "Budget, corrected", "expectedName": "Budget"}`)},
			noteStep("Please pay \u202eadA ot\u202c the invoice 4711."),
		},
	}
	p.Steps[2].Rationale = "For the bookkeepers."
	id := s.propose(p)
	b := newBrowser(t)
	for size, width := range map[string]int64{"desktop": 1280, "phone": 390} {
		b.do(chromedp.EmulateViewport(width, 844))
		b.open(s.url+"/plans", "main table")
		require.True(t, eval[bool](b, fits), size)
		b.shoot("plans-" + size)
		b.open(s.url+linkToPlan(id), "#approve")
		require.True(t, eval[bool](b, fits), "the plan's page is no wider than the %s", size)
		require.Equal(t, 3, eval[int](b, "document.querySelectorAll('ol.timeline > li').length"))
		require.True(t, eval[bool](b, "[...document.querySelectorAll('pre.whole')].every(p => p.scrollHeight <= p.clientHeight + 1)"), "no argument is below a fold of its own")
		require.Contains(t, eval[string](b, "document.getElementById('step-2').innerText"), `pay \u202eadA ot\u202c the`)
		b.shoot("plan-" + size)
	}
	b.do(chromedp.Click(chromedp.CSS("#approve")), chromedp.WaitNotPresent(chromedp.CSS("#approve")))
	require.Equal(t, "ada", s.plan(id).DecidedBy)
	b.quiet()
}

// signedIn is a user whom a browser need not give a password for.
type signedIn string

func (u signedIn) identify(*http.Request) (string, bool) { return string(u), true }
func (signedIn) refuse(http.ResponseWriter)              {}
