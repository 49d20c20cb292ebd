package browser

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/desk"
	"github.com/weirqueue/weir/jobs"
	"github.com/weirqueue/weir/workers"
	"github.com/weirqueue/weir/workers/tool/desktool"
)

// planner proposes plans of desk's tools to a worker of the site, and approves them.
type planner struct {
	s      *site
	client *jobs.Client
}

func (s *site) planner() planner {
	s.t.Helper()
	set := desktool.New(s.store)
	client, err := jobs.NewClient(s.pool, &jobs.Config{Tools: set.Declarations()})
	require.NoError(s.t, err)
	fleet, err := workers.New(s.pool, &workers.Config{Tools: set.Tools(), Logger: slog.New(slog.DiscardHandler)})
	require.NoError(s.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- fleet.Run(ctx) }()
	s.t.Cleanup(func() {
		cancel()
		<-done
	})
	return planner{s, client}
}

// carryOut waits until an approved plan of one step has ended.
func (p planner) carryOut(id desk.FileID, version int64, to string) *jobs.Plan {
	t := p.s.t
	t.Helper()
	args, err := json.Marshal(map[string]any{"file": id, "expectedVersion": version, "text": to})
	require.NoError(t, err)
	res, err := p.client.ProposePlan(t.Context(), jobs.PlanParams{
		Title: "Rewrite", Risk: jobs.RiskLow, Owner: "ada", Steps: []jobs.PlanStep{{Tool: desktool.UpdateMarkdown, Args: args}},
	}, nil)
	require.NoError(t, err)
	plan, err := p.client.GetPlan(t.Context(), res.Run.ID)
	require.NoError(t, err)
	_, err = p.client.ApprovePlan(t.Context(), plan.Run.ID, plan.Digest, "grace")
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	plan, err = p.client.WaitPlan(ctx, plan.Run.ID)
	require.NoError(t, err)
	return plan
}

// A step of an approved plan, carried out by a worker, changes an open document: a hint where it is clean, a conflict
// where it is not. And the other way round: what a person saved first is never overwritten by a plan.
func TestBrowser_APlansStepIsAHintAndThenAConflict(t *testing.T) {
	s := newSite(t)
	id := s.file(text("one"))
	p := s.planner()
	b := s.tab().open(id)
	require.Equal(t, jobs.StatusExecuted, p.carryOut(id, 1, "by step 1").Run.Status)
	b.until("document.getElementById('text').value === 'by step 1'") // nobody asked for it: it was told
	require.Equal(t, 2, js[int](b, "weirSession.state().version"))

	s.set(func() { s.onPut = noSave }) // the person's save is still on its way when the plan's step commits
	b.write("mine")
	b.kept("mine")
	require.Equal(t, jobs.StatusExecuted, p.carryOut(id, 2, "by step 2").Run.Status)
	s.set(func() { s.onPut = nil })
	b.run("if (weirSession.state().phase === 'retrying') weirSession.retry(); await weirSession.flush()")
	b.phase("conflict")
	writer := s.get(id).WriterID
	require.NotNil(t, writer)
	b.until(fmt.Sprintf("document.getElementById('conflict')?.innerText.includes(%q)", "by writer "+string(*writer)))
	require.Equal(t, text("by step 2"), s.stored(id))
	b.do(chromedp.Click(chromedp.CSS("#keep-mine")))
	b.phase("clean")
	require.Equal(t, text("mine"), s.stored(id))

	require.Equal(t, jobs.StatusFailed, p.carryOut(id, 3, "by step 3").Run.Status, "it was approved on an older version")
	require.Equal(t, text("mine"), s.stored(id))
	require.Equal(t, int64(4), s.get(id).Version)
}
