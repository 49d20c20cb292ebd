package ui

import (
	"context"
	"net/http"

	"github.com/weirqueue/weir/jobs"
)

// runBody is a run's page.
type runBody struct {
	Run      *jobs.Run
	Receipts []jobs.Receipt
	Tries    []jobs.Try
	// Reset is set for a branch reset.
	Reset      *jobs.BranchReset
	BranchLink string
	// PlanLink is the page of an approved plan, which shows its steps with their arguments.
	PlanLink string
	// What the person who looks may do with a run that stands as this one does.
	MayRedrive, MayCancel, MayErase bool
}

func (p *pages) showRun(w http.ResponseWriter, r *http.Request) error {
	id, err := jobs.ParseRunID(r.PathValue("id"))
	if err != nil {
		return err
	}
	run, err := p.jobs.Get(r.Context(), id)
	if err != nil {
		return err
	}
	body := &runBody{Run: run}
	if body.Receipts, err = p.jobs.Receipts(r.Context(), id); err != nil {
		return err
	}
	if body.Tries, err = p.jobs.Tries(r.Context(), id); err != nil {
		return err
	}
	if run.Kind == jobs.KindBranchReset {
		if body.Reset, err = p.jobs.GetBranchReset(r.Context(), id); err != nil {
			return err
		}
		body.BranchLink = linkToBranch("/branch", body.Reset.Branch)
	}
	if run.Kind == jobs.KindPlan {
		body.PlanLink = linkToPlan(id)
	}
	now, err := p.now(r.Context())
	if err != nil {
		return err
	}
	if !UserOf(r.Context()).Viewer {
		body.MayRedrive = run.Kind == jobs.KindDelivery && run.Terminal() && run.Status != jobs.StatusSent && !wasCanceled(run)
		body.MayCancel = !run.Terminal() && run.CancelRequestedAt == nil
		body.MayErase = run.Terminal()
	}
	return p.render(w, r, http.StatusOK, "run", frame{
		Title: kindName(run.Kind) + " " + id.String(), Live: true, Says: "The run is now " + string(run.Status), Now: now, Body: body,
	})
}

func wasCanceled(run *jobs.Run) bool {
	return run.ErrorCode == "canceled" || run.ErrorCode == "canceled_in_river"
}

// act does what a form asks for and goes back to the run's page. Each of the operations is safe to ask for twice.
func (p *pages) act(do func(context.Context, jobs.RunID) error) pageFunc {
	return func(w http.ResponseWriter, r *http.Request) error {
		id, err := jobs.ParseRunID(r.PathValue("id"))
		if err != nil {
			return err
		}
		if err := do(r.Context(), id); err != nil {
			return err
		}
		http.Redirect(w, r, "/runs/"+id.String(), http.StatusSeeOther)
		return nil
	}
}

// confirmErase asks before what cannot be undone.
func (p *pages) confirmErase(w http.ResponseWriter, r *http.Request) error {
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
	if !run.Terminal() {
		return &jobs.StateError{Run: id, Op: "erase", Status: run.Status, Detail: "cancel it first"}
	}
	return p.render(w, r, http.StatusOK, "erase", frame{Title: "Erase a run's personal data", Body: run})
}
