package ui

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/weirqueue/weir/jobs"
)

const (
	doApprove = "approve"
	doReject  = "reject"
	doCancel  = "cancel"
	doUndo    = "undo"
)

// planAsk is the page that asks before something is done to a plan.
type planAsk struct {
	*planBody
	Do string
}

// errNobody: who decides is written down for good, so somebody must be there.
var errNobody = &pageError{
	status:   http.StatusForbidden,
	sentence: "A plan is decided in somebody's name, and nobody is signed in here. Start this server with users who sign in.",
}

func (p *pages) askAboutPlan(w http.ResponseWriter, r *http.Request) error {
	do := r.PathValue("do")
	body, err := p.planBody(r)
	if err != nil {
		return err
	}
	id := body.Run.ID
	refused := &jobs.StateError{Run: id, Op: do, Status: jobs.Status(standing(body.Plan))}
	switch {
	case do != doReject && do != doCancel && do != doUndo:
		return p.notFound(w, r)
	case UserOf(r.Context()).Viewer:
		return &pageError{http.StatusForbidden, "You may look here and not change anything.", id.String()}
	case do == doReject && body.Nameless:
		return errNobody
	case do == doReject && !body.MayDecide, do == doCancel && !body.MayCancel:
		return refused
	case do == doUndo && !body.MayUndo:
		refused.Op = "compensate"
		if body.Run.Terminal() {
			refused.Detail = "no step of it has committed"
		}
		return refused
	}
	titles := map[string]string{doReject: "Reject a plan", doCancel: "Cancel a plan", doUndo: "Undo a plan"}
	return p.render(w, r, http.StatusOK, "planask", frame{Title: titles[do], Body: &planAsk{body, do}})
}

// decidePlan does what a form asks for, in the name of who is signed in. Each is safe to ask for twice.
func (p *pages) decidePlan(w http.ResponseWriter, r *http.Request) error {
	id, err := jobs.ParseRunID(r.PathValue("id"))
	if err != nil {
		return err
	}
	ctx, by := r.Context(), UserOf(r.Context()).Name
	show := id
	switch r.PathValue("do") {
	case doApprove:
		if by == "" {
			return errNobody
		}
		_, err = p.jobs.ApprovePlan(ctx, id, r.PostFormValue("digest"), by)
	case doReject:
		if by == "" {
			return errNobody
		}
		// Browsers end lines as mails do.
		err = p.jobs.RejectPlan(ctx, id, by, strings.ReplaceAll(r.PostFormValue("reason"), "\r\n", "\n"))
	case doCancel:
		err = p.jobs.CancelPlan(ctx, id)
	case doUndo:
		show, err = p.undoPlan(r, id, by)
	default:
		return p.notFound(w, r)
	}
	if err != nil {
		return err
	}
	http.Redirect(w, r, linkToPlan(show), http.StatusSeeOther)
	return nil
}

// undoPlan proposes the plan that undoes this one. Whoever asks twice is shown the one that is there.
func (p *pages) undoPlan(r *http.Request, id jobs.RunID, by string) (jobs.RunID, error) {
	undo, err := p.jobs.CompensatePlan(r.Context(), id, by)
	if err == nil {
		return undo.Run.ID, nil
	}
	if errors.Is(err, jobs.ErrNothingToUndo) {
		sentence := "No step of this plan can be undone."
		for _, r := range undo.Refused {
			sentence += fmt.Sprintf("\nStep %d, %s: %s: %s.", r.Step, visible(r.Tool), r.Code, visible(r.Reason))
		}
		return id, &pageError{http.StatusConflict, sentence, id.String()}
	}
	if errors.Is(err, jobs.ErrState) {
		old, readErr := p.jobs.GetPlan(r.Context(), id)
		if readErr == nil && old.CompensatedBy != nil {
			if last, readErr := p.jobs.Get(r.Context(), *old.CompensatedBy); readErr == nil && undoes(last.Status) {
				return last.ID, nil
			}
		}
	}
	return id, err
}

// undoes says whether a compensation with this status keeps another one from being proposed.
func undoes(s jobs.Status) bool {
	return s == jobs.StatusPending || s == jobs.StatusApproved || s == jobs.StatusExecuting || s == jobs.StatusExecuted
}

// planProblem is the page for what plans refuse.
func planProblem(err error) *pageError {
	var digest *jobs.DigestError
	if errors.As(err, &digest) {
		return &pageError{http.StatusConflict, "What was approved is not what this plan does. Nothing was approved: look at the plan again.", digest.Run.String()}
	}
	return nil
}
