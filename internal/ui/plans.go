package ui

import (
	"fmt"
	"net/http"

	"github.com/weirqueue/weir/jobs"
)

// plansAtOnce is how many waiting plans the page shows: those whose time ends first.
const plansAtOnce = 100

// plansBody is the page of the plans that wait for an approval.
type plansBody struct {
	Plans []jobs.WaitingPlan
	More  bool
	All   string // the link to plans that wait for nobody
}

func linkToPlan(id jobs.RunID) string { return "/plans/" + id.String() }

func (p *pages) listPlans(w http.ResponseWriter, r *http.Request) error {
	waiting, err := p.jobs.WaitingPlans(r.Context(), plansAtOnce+1)
	if err != nil {
		return err
	}
	now, err := p.now(r.Context())
	if err != nil {
		return err
	}
	body := &plansBody{Plans: waiting, All: linkTo([]string{jobs.KindPlan}, nil, jobs.RunID{})}
	if body.More = len(waiting) > plansAtOnce; body.More {
		body.Plans = waiting[:plansAtOnce]
	}
	return p.render(w, r, http.StatusOK, "plans", frame{Title: "Plans", Live: true, Now: now, Body: body})
}

// planBody is the page of a plan.
type planBody struct {
	*jobs.Plan
	Link, RunLink string
	// OK is how many steps have committed.
	OK int
	// What may be done with a plan that stands as this one does, by who looks. A decision needs a name.
	MayDecide, MayCancel, MayUndo bool
	// Nameless says that only the name is missing.
	Nameless bool
}

func (p *pages) planBody(r *http.Request) (*planBody, error) {
	id, err := jobs.ParseRunID(r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	plan, err := p.jobs.GetPlan(r.Context(), id)
	if err != nil {
		return nil, err
	}
	body := &planBody{Plan: plan, Link: linkToPlan(id), RunLink: "/runs/" + id.String()}
	perhaps := false
	for _, s := range plan.Steps {
		switch s.Outcome {
		case "ok":
			body.OK++
		case "started", "unknown":
			perhaps = true
		}
	}
	user := UserOf(r.Context())
	if user.Viewer {
		return body, nil
	}
	open := plan.Run.Status == jobs.StatusPending && !plan.Overdue
	body.MayDecide, body.Nameless = open && user.Name != "", open && user.Name == ""
	body.MayCancel = !plan.Run.Terminal() && !plan.Overdue && plan.Run.CancelRequestedAt == nil
	body.MayUndo = plan.Run.Terminal() && !plan.Erased && (body.OK > 0 || perhaps)
	return body, nil
}

func (p *pages) showPlan(w http.ResponseWriter, r *http.Request) error {
	body, err := p.planBody(r)
	if err != nil {
		return err
	}
	now, err := p.now(r.Context())
	if err != nil {
		return err
	}
	return p.render(w, r, http.StatusOK, "plan", frame{
		Title: "Plan " + visible(body.Title), Live: true, Says: "The plan is now " + standing(body.Plan) + ", " + body.Progress(), Now: now, Body: body,
	})
}

// Progress says how far a plan is.
func (b *planBody) Progress() string {
	return fmt.Sprintf("%d of %d steps committed", b.OK, len(b.Steps))
}

// standing is a plan's status as it is, where the row says what was true before its time was over.
func standing(plan *jobs.Plan) string {
	switch {
	case plan.Interrupted:
		return "interrupted"
	case plan.Overdue:
		return "expired"
	}
	return string(plan.Run.Status)
}
