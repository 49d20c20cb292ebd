package browser

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/jobs"
	"github.com/weirqueue/weir/workers"
	"github.com/weirqueue/weir/workers/branch"
)

// slowBranches is a provider whose operations go on until a test says that they are over.
type slowBranches struct {
	over   atomic.Bool
	issues atomic.Int64
}

func (p *slowBranches) Issue(_ context.Context, r branch.Reset) ([]branch.Operation, error) {
	p.issues.Add(1)
	return []branch.Operation{{ID: "op-<1>-" + r.RunID, Action: "apply_config", Status: "scheduling"}}, nil
}

func (*slowBranches) Find(context.Context, branch.Reset) ([]branch.Operation, bool, error) {
	return nil, false, errors.New("nobody asks")
}

func (p *slowBranches) Poll(_ context.Context, _ branch.Reset, op branch.Operation) (branch.Operation, error) {
	op.Status, op.State = "running", branch.Running
	if p.over.Load() {
		op.Status, op.State = "cancelled", branch.Canceled
	}
	return op, nil
}

func (*slowBranches) Cancel(context.Context, branch.Reset, []branch.Operation) error { return nil }

// branches is a site with a branch and a worker for it.
func branches(t *testing.T, name string) (*site, *jobs.Client, *slowBranches) {
	t.Helper()
	s := newSite(t)
	logger := slog.New(slog.NewTextHandler(io.Discard, nil))
	client, err := jobs.NewClient(s.pool, &jobs.Config{Logger: logger})
	require.NoError(t, err)
	p := &slowBranches{}
	fleet, err := workers.New(s.pool, &workers.Config{
		Branches: workers.BranchConfig{
			Providers: map[string]branch.Provider{"slow": p}, PollFirst: 50 * time.Millisecond, PollMax: 100 * time.Millisecond,
		},
		FetchPollInterval: 100 * time.Millisecond, Logger: logger,
	})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- fleet.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		require.NoError(t, <-done)
	})
	require.NoError(t, client.RegisterBranch(t.Context(), jobs.Branch{Name: name, Provider: "slow", Target: "db", Parent: "main"}))
	return s, client, p
}

// click follows a link or a button, and waits for the page that it leads to.
func (b *tab) click(css, until string) {
	b.t.Helper()
	b.do(chromedp.Click(chromedp.CSS(css)))
	b.until(until)
}

// says waits for a text on the page.
func (b *tab) says(text string) {
	b.t.Helper()
	b.until("document.getElementById('main')?.innerText.includes(" + quoted(text) + ")")
}

func quoted(s string) string { return "'" + strings.ReplaceAll(s, "'", `\'`) + "'" }

// A branch is reset after a question and canceled after another one; the page of the run follows the provider's operations by
// itself, and the branch's page keeps the history.
func TestBrowser_ABranchIsResetAndCanceledAfterAQuestionEach(t *testing.T) {
	const name = `feat/<b>"a&b`
	s, client, p := branches(t, name)
	history := func() []*jobs.Run {
		list, err := client.ResetsOfBranch(t.Context(), name, 0)
		require.NoError(t, err)
		return list
	}
	b := s.tab()
	b.do(chromedp.Navigate(s.url + "/branches"))
	b.says(name)
	b.says("none")
	b.click("td a", "location.pathname === '/branch'")
	b.says("It has not been reset yet.")
	b.click("#reset", "document.querySelector('button.danger')")
	b.says("is gone afterwards")
	b.shoot("branch-reset")
	b.click("form .actions a.button", "location.pathname === '/branch'")
	require.Empty(t, history(), "whoever was asked may keep it")

	b.click("#reset", "document.querySelector('button.danger')")
	b.run("const f = document.querySelector('form[action=\"/branch/reset\"]'); await fetch(f.action, {method: 'POST', body: new URLSearchParams(new FormData(f))})")
	b.click("button.danger", "location.pathname.startsWith('/runs/')")
	require.Len(t, history(), 1, "sent twice, reset once")
	id := history()[0].ID
	require.Equal(t, "/runs/"+id.String(), js[string](b, "location.pathname"))
	b.says("op-<1>-" + id.String()) // the page follows by itself
	b.says("scheduling")
	b.says("running")
	b.shoot("branch-running")

	b.click("#cancel", "document.querySelector('button.danger')")
	b.says("Cancel this run?")
	b.click("main > div.actions a.button", "location.pathname.startsWith('/runs/') && !location.pathname.endsWith('/cancel')")
	run, err := client.Get(t.Context(), id)
	require.NoError(t, err)
	require.Nil(t, run.CancelRequestedAt, "whoever was asked may let it go on")
	b.click("#cancel", "document.querySelector('button.danger')")
	b.click("button.danger", "location.pathname.startsWith('/runs/') && !location.pathname.endsWith('/cancel')")
	b.says("Cancellation was requested")
	run, err = client.Get(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, jobs.StatusRunning, run.Status, "its operations are not final")
	p.over.Store(true)
	b.until("document.querySelector('h1 .badge').textContent === 'canceled'")
	b.says("cancelled")
	b.do(chromedp.Click(chromedp.CSS("#operations-title a")))
	b.until("location.pathname === '/branch' && document.getElementById('reset')")
	b.says(id.String())
	require.EqualValues(t, 1, p.issues.Load())
}

// Everything that changes something is a form: it works without a script.
func TestBrowser_BranchesWorkWithoutAScript(t *testing.T) {
	s, client, p := branches(t, "dev")
	p.over.Store(true)
	b := s.tab()
	b.do(chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
		return err
	}))
	b.do(chromedp.Navigate(s.url + "/branches"))
	b.click("td a", "location.pathname === '/branch'")
	b.click("#reset", "document.querySelector('button.danger')")
	b.click("button.danger", "location.pathname.startsWith('/runs/')")
	list, err := client.ResetsOfBranch(t.Context(), "dev", 0)
	require.NoError(t, err)
	require.Len(t, list, 1)
	run, err := client.Wait(t.Context(), list[0].ID)
	require.NoError(t, err)
	require.Equal(t, "operation_canceled", run.ErrorCode)
	b.do(chromedp.Navigate(s.url + "/runs/" + run.ID.String()))
	b.says("operation_canceled")
	require.False(t, js[bool](b, "document.getElementById('live-state').textContent !== ''"), "no script ran")
}
