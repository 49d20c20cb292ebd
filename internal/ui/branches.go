package ui

import (
	"crypto/rand"
	"errors"
	"net/http"
	"net/url"
	"time"

	"github.com/weirqueue/weir/jobs"
)

// branchesBody is the page of branches.
type branchesBody struct {
	Branches    []branchRow
	First, Next string // links; empty where there is nothing
}

// branchRow is a branch with its newest reset, which may be under way.
type branchRow struct {
	jobs.BranchStanding
	Link string
}

func linkToBranch(path, name string) string { return path + "?" + url.Values{"name": {name}}.Encode() }

func (p *pages) listBranches(w http.ResponseWriter, r *http.Request) error {
	after := r.URL.Query().Get("after")
	page, err := p.jobs.ListBranches(r.Context(), jobs.BranchFilter{After: after})
	if err != nil {
		return err
	}
	now, err := p.now(r.Context())
	if err != nil {
		return err
	}
	body := &branchesBody{}
	for _, b := range page.Branches {
		body.Branches = append(body.Branches, branchRow{b, linkToBranch("/branch", b.Name)})
	}
	if after != "" {
		body.First = "/branches"
	}
	if page.Next != "" {
		body.Next = "/branches?" + url.Values{"after": {page.Next}}.Encode()
	}
	return p.render(w, r, http.StatusOK, "branches", frame{Title: "Branches", Live: true, Now: now, Body: body})
}

// branchBody is the page of a branch.
type branchBody struct {
	branchRow
	History   []*jobs.Run
	MayReset  bool
	ResetLink string
	// Older is where resets are that are older than those of the history; empty when it has all.
	Older string
	// Key makes the form's request repeatable: an impatient operator gets the same run.
	Key string
}

// historyAtOnce is how many resets of a branch its page shows.
const historyAtOnce = 50

func (p *pages) branchBody(r *http.Request) (*branchBody, error) {
	name := r.FormValue("name")
	b, err := p.jobs.GetBranch(r.Context(), name)
	if err != nil {
		return nil, err
	}
	body := &branchBody{branchRow: branchRow{*b, linkToBranch("/branch", name)}, ResetLink: linkToBranch("/branch/reset", name), Key: rand.Text()}
	if body.History, err = p.jobs.ResetsOfBranch(r.Context(), name, historyAtOnce+1); err != nil {
		return nil, err
	}
	if len(body.History) > 0 {
		body.Last = body.History[0]
	}
	if len(body.History) > historyAtOnce {
		body.History, body.Older = body.History[:historyAtOnce], linkTo([]string{jobs.KindBranchReset}, nil, body.History[historyAtOnce-1].ID)
	}
	body.MayReset = !UserOf(r.Context()).Viewer && (body.Last == nil || body.Last.Terminal())
	return body, nil
}

func (p *pages) showBranch(w http.ResponseWriter, r *http.Request) error {
	body, err := p.branchBody(r)
	if err != nil {
		return err
	}
	now, err := p.now(r.Context())
	if err != nil {
		return err
	}
	says := "The branch has no reset yet"
	if body.Last != nil {
		says = "The last reset is now " + string(body.Last.Status)
	}
	return p.render(w, r, http.StatusOK, "branch", frame{Title: "Branch " + visible(body.Name), Live: true, Says: says, Now: now, Body: body})
}

// confirmReset asks before what cannot be undone.
func (p *pages) confirmReset(w http.ResponseWriter, r *http.Request) error {
	body, err := p.branchBody(r)
	if err != nil {
		return err
	}
	switch {
	case UserOf(r.Context()).Viewer:
		return &pageError{status: http.StatusForbidden, sentence: "You may look here and not change anything."}
	case !body.MayReset:
		return &jobs.InFlightError{Branch: body.Name, Run: body.Last.ID}
	}
	return p.render(w, r, http.StatusOK, "reset", frame{Title: "Reset a branch", Body: body})
}

func (p *pages) resetBranch(w http.ResponseWriter, r *http.Request) error {
	reset := jobs.Reset{Branch: r.PostFormValue("name")}
	if at := r.PostFormValue("at"); at != "" {
		point, err := time.Parse(time.RFC3339, at)
		if err != nil {
			return &jobs.InvalidError{Field: "Point in time", Value: at, Bound: "a time with its zone, such as 2026-01-31T12:00:00Z"}
		}
		reset.PointInTime = &point
	}
	var opts *jobs.Opts
	if key := r.PostFormValue("key"); key != "" {
		opts = &jobs.Opts{IdempotencyKey: "page:" + key}
	}
	res, err := p.jobs.ResetBranch(r.Context(), reset, opts)
	if err != nil {
		return err
	}
	http.Redirect(w, r, "/runs/"+res.Run.ID.String(), http.StatusSeeOther)
	return nil
}

// confirmCancel asks before a reset is canceled: what is under way at the provider may still take effect.
func (p *pages) confirmCancel(w http.ResponseWriter, r *http.Request) error {
	id, err := jobs.ParseRunID(r.PathValue("id"))
	if err != nil {
		return err
	}
	if UserOf(r.Context()).Viewer {
		return &pageError{http.StatusForbidden, "You may look here and not change anything.", id.String()}
	}
	run, err := p.jobs.Get(r.Context(), id)
	if err != nil {
		return err
	}
	if run.Terminal() {
		return &jobs.StateError{Run: id, Op: "cancel", Status: run.Status}
	}
	return p.render(w, r, http.StatusOK, "cancel", frame{Title: "Cancel a run", Body: run})
}

// branchProblem is the page for what the register and its resets refuse.
func branchProblem(err error) *pageError {
	var (
		flying *jobs.InFlightError
		reused *jobs.KeyReusedError
	)
	switch {
	case errors.As(err, &flying):
		return &pageError{http.StatusConflict, "The branch is being reset already. Nothing was changed.", flying.Run.String()}
	case errors.Is(err, jobs.ErrNoBranch):
		return &pageError{status: http.StatusNotFound, sentence: "There is no such branch. An application registers it."}
	case errors.As(err, &reused):
		return &pageError{http.StatusConflict, "This form was sent before, with something else in it. Nothing was changed.", reused.Run.String()}
	}
	return nil
}
