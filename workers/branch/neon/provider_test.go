package neon_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/workers/branch"
	"github.com/weirqueue/weir/workers/branch/neon"
)

func provider(t testing.TB, f *fakeNeon) *neon.Provider {
	t.Helper()
	p, err := neon.New(neon.Config{APIKey: key, BaseURL: f.URL + "/api/v2/", Timeout: 2 * time.Second})
	require.NoError(t, err)
	return p
}

func reset(run string) branch.Reset {
	return branch.Reset{
		RunID: run, Branch: "dev", Project: "p1", Target: "br-dev", Parent: "br-main",
		StillMine: func(ctx context.Context) error { return ctx.Err() },
	}
}

func class(err error) branch.Class {
	var e *branch.Error
	if errors.As(err, &e) {
		return e.Class
	}
	return branch.ClassUnknown
}

func TestConfig_NamesEveryFaultAndNoKey(t *testing.T) {
	_, err := neon.New(neon.Config{})
	require.ErrorIs(t, err, neon.ErrInvalidConfig)
	require.ErrorContains(t, err, "APIKey")
	_, err = neon.New(neon.Config{APIKey: key + "\n", BaseURL: "ftp://u:p@x", Timeout: time.Nanosecond})
	for _, field := range []string{"APIKey", "BaseURL", "Timeout"} {
		require.ErrorContains(t, err, field)
	}
	require.NotContains(t, err.Error(), key)
}

func TestIssue_RestoresFromTheParentAndKeepsTheOldState(t *testing.T) {
	f := newFake(t)
	p := provider(t, f)
	ops, err := p.Issue(t.Context(), reset("run-1"))
	require.NoError(t, err)
	require.Len(t, ops, 2)
	require.Equal(t, map[string]any{"source_branch_id": "br-main", "preserve_under_name": "weir-run-1"}, f.restores[0])
	for _, want := range []branch.State{branch.Running, branch.Running, branch.Finished} {
		op, err := p.Poll(t.Context(), reset("run-1"), ops[0])
		require.NoError(t, err)
		require.Equal(t, want, op.State)
	}
	require.ErrorIs(t, p.Cancel(t.Context(), reset("run-1"), ops), branch.ErrNotCancelable)
}

// BR-06: what a branch is restored from, with children, without a parent, and from itself.
func TestIssue_SourceChildrenAndOneself(t *testing.T) {
	f := newFake(t)
	p := provider(t, f)
	f.branches = append(f.branches, fakeBranch{ID: "br-child", Name: "child", ParentID: "br-dev"})
	r := reset("run-1")
	r.Parent = "" // Neon knows it
	_, err := p.Issue(t.Context(), r)
	require.NoError(t, err)
	require.Equal(t, "br-main", f.restores[0]["source_branch_id"])
	require.Equal(t, "br-backup-1", f.branch("br-child").ParentID)

	root := branch.Reset{RunID: "run-2", Project: "p1", Target: "br-main", StillMine: r.StillMine}
	_, err = p.Issue(t.Context(), root)
	require.Equal(t, branch.ClassRefused, class(err))
	require.ErrorContains(t, err, "no parent")
	at := time.Date(2026, 11, 1, 12, 0, 0, 0, time.FixedZone("x", 3600))
	root.PointInTime = &at
	_, err = p.Issue(t.Context(), root)
	require.NoError(t, err)
	require.Equal(t, map[string]any{"source_branch_id": "br-main", "source_timestamp": "2026-11-01T11:00:00Z", "preserve_under_name": "weir-run-2"}, f.restores[1])

	gone := reset("run-3")
	gone.Target = "br-nobody"
	_, err = p.Issue(t.Context(), gone)
	require.Equal(t, branch.ClassRefused, class(err))
	f.before = func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodPost {
			fail(w, 422, "", "timestamp is before the history window")
		}
		return r.Method == http.MethodPost
	}
	_, err = p.Issue(t.Context(), reset("run-4"))
	require.Equal(t, branch.ClassRefused, class(err))
	require.ErrorContains(t, err, "history window", "the provider's message is kept")
	require.Equal(t, 2, f.restored())
}

// BR-02, BR-03, BR-07: what an answer to the one call means. Only what surely was not taken may be sent again.
func TestIssue_WhatAnAnswerMeans(t *testing.T) {
	for _, c := range []struct {
		status int
		header string
		want   branch.Class
		after  time.Duration
	}{
		{423, "", branch.ClassLater, 0},
		{503, "", branch.ClassLater, 0},
		{503, "7", branch.ClassLater, 7 * time.Second},
		{429, "90", branch.ClassLater, 90 * time.Second},
		{429, time.Now().Add(time.Hour).UTC().Format(http.TimeFormat), branch.ClassLater, 10 * time.Minute},
		{401, "", branch.ClassMisconfigured, 0},
		{403, "", branch.ClassMisconfigured, 0},
		{400, "", branch.ClassRefused, 0},
		{409, "", branch.ClassUnknown, 0},
		{500, "", branch.ClassUnknown, 0},
		{502, "", branch.ClassUnknown, 0},
		{504, "", branch.ClassUnknown, 0},
		{302, "", branch.ClassUnknown, 0},
	} {
		t.Run(fmt.Sprint(c.status, c.header), func(t *testing.T) {
			f := newFake(t)
			p := provider(t, f)
			f.before = func(w http.ResponseWriter, r *http.Request) bool {
				if r.Method != http.MethodPost {
					return false
				}
				if c.header != "" {
					w.Header().Set("Retry-After", c.header)
				}
				w.Header().Set("Location", "/elsewhere")
				fail(w, c.status, "", "no")
				return true
			}
			_, err := p.Issue(t.Context(), reset("run"))
			require.Error(t, err)
			require.Equal(t, c.want, class(err), err)
			var e *branch.Error
			if c.after > 0 {
				require.ErrorAs(t, err, &e)
				require.Equal(t, c.after, e.After)
			}
			require.Equal(t, 1, f.asked("POST"))
		})
	}
	// Nobody there: nothing was sent. A silent server: nobody knows.
	f := newFake(t)
	p := provider(t, f)
	f.applied = func(w http.ResponseWriter, _ *http.Request) bool { return hangUp(w) }
	_, err := p.Issue(t.Context(), reset("run"))
	require.Equal(t, branch.ClassUnknown, class(err))
	require.Equal(t, 1, f.restored())
	f.Close()
	_, err = p.Issue(t.Context(), reset("other"))
	require.Equal(t, branch.ClassLater, class(err), err)
}

// BR-07: when Neon asks one caller to wait, this process asks nothing until then.
func TestHold_IsSharedByAllCallers(t *testing.T) {
	f := newFake(t)
	p := provider(t, f)
	f.before = func(w http.ResponseWriter, _ *http.Request) bool {
		w.Header().Set("Retry-After", "60")
		fail(w, 429, "", "slow down")
		return true
	}
	_, err := p.Poll(t.Context(), reset("a"), branch.Operation{ID: "x"})
	require.Equal(t, branch.ClassLater, class(err))
	asked := f.asked("")
	for i := range 60 {
		_, err := p.Poll(t.Context(), reset(fmt.Sprint(i)), branch.Operation{ID: "x"})
		var e *branch.Error
		require.ErrorAs(t, err, &e)
		require.Greater(t, e.After, 55*time.Second)
	}
	require.Equal(t, asked, f.asked(""))
}

// BR-03, BR-04: a call that was applied is found by the backup that it made, across pages, and its operations are told
// from others; a second call that meets the name is no failure.
func TestFind_ByTheBackupThatTheCallMade(t *testing.T) {
	f := newFake(t)
	p := provider(t, f)
	f.page = 2
	r := reset("run-1")
	_, found, err := p.Find(t.Context(), r)
	require.NoError(t, err)
	require.False(t, found)
	f.operations = append(f.operations, &fakeOperation{ID: "old", BranchID: "br-dev", Action: "suspend_compute", Status: "finished", Created: time.Now().Add(-time.Minute)})
	f.applied = func(w http.ResponseWriter, _ *http.Request) bool {
		fail(w, 502, "", "bad gateway")
		return true
	}
	_, err = p.Issue(t.Context(), r)
	require.Equal(t, branch.ClassUnknown, class(err))
	for i := range 5 { // Neon's own doings since then
		f.operations = append([]*fakeOperation{{ID: fmt.Sprint("later", i), BranchID: "br-dev", Action: "suspend_compute", Status: "running", Created: time.Now().Add(time.Minute)}}, f.operations...)
	}
	ops, found, err := p.Find(t.Context(), r)
	require.NoError(t, err)
	require.True(t, found)
	require.Len(t, ops, 2)
	require.Equal(t, "op-1-0", ops[0].ID)

	ops, err = p.Issue(t.Context(), r)
	require.NoError(t, err, "it looks first")
	require.Len(t, ops, 2)
	require.Equal(t, 1, f.restored())
	_, found, err = p.Find(t.Context(), reset("run-2"))
	require.NoError(t, err)
	require.False(t, found, "another run's")
}

// BR-08: an operation that is gone is gone, and not finished; a key that was revoked says so, and is not shown.
func TestPoll_GoneAndForbidden(t *testing.T) {
	f := newFake(t)
	p := provider(t, f)
	_, err := p.Poll(t.Context(), reset("r"), branch.Operation{ID: "nothing"})
	require.Equal(t, branch.ClassGone, class(err))
	other, err := neon.New(neon.Config{APIKey: "wrong-key-987654", BaseURL: f.URL + "/api/v2"})
	require.NoError(t, err)
	_, err = other.Poll(t.Context(), reset("r"), branch.Operation{ID: "x"})
	require.Equal(t, branch.ClassMisconfigured, class(err))
	require.NotContains(t, err.Error(), "wrong-key-987654")
	for word, state := range map[string]branch.State{
		"failed": branch.Retrying, "error": branch.Retrying, "cancelling": branch.Running, "cancelled": branch.Canceled,
		"skipped": branch.Skipped, "finished": branch.Finished, "pondering": branch.Unheard,
	} {
		f.operations = []*fakeOperation{{ID: "x", Status: word}}
		op, err := p.Poll(t.Context(), reset("r"), branch.Operation{ID: "x"})
		require.NoError(t, err)
		require.Equal(t, state, op.State, word)
	}
}

// A process that has lost its run, or does not know, sends nothing.
func TestIssue_AsksWhetherTheRunIsStillItsOwn(t *testing.T) {
	f := newFake(t)
	p := provider(t, f)
	r := reset("run")
	r.StillMine = func(context.Context) error { return errors.New("lost") }
	_, err := p.Issue(t.Context(), r)
	require.Equal(t, branch.ClassLater, class(err))
	require.Zero(t, f.asked("POST"))
}

// BR-04: a proxy repeats the call, and Neon says no to its double: that is proof that the first one worked.
func TestIssue_ADoubleThatIsRefusedIsProofOfTheFirst(t *testing.T) {
	for _, status := range []int{409, 422} {
		f := newFake(t)
		p := provider(t, f)
		f.applied = func(w http.ResponseWriter, _ *http.Request) bool {
			fail(w, status, "BRANCH_ALREADY_EXISTS", "branch already exists")
			return true
		}
		ops, err := p.Issue(t.Context(), reset(fmt.Sprint("run-", status)))
		require.NoError(t, err)
		require.Len(t, ops, 2)
		require.Equal(t, 1, f.restored())
	}
}

// What is looked for may be on a later page, behind names that look alike.
func TestFind_AcrossPages(t *testing.T) {
	f := newFake(t)
	p := provider(t, f)
	f.page = 1
	for i := range 4 {
		f.branches = append(f.branches, fakeBranch{ID: fmt.Sprint("br-x", i), Name: fmt.Sprintf("weir-run-1%d", i)})
	}
	f.applied = func(w http.ResponseWriter, _ *http.Request) bool { return hangUp(w) }
	_, err := p.Issue(t.Context(), reset("run-1"))
	require.Equal(t, branch.ClassUnknown, class(err))
	ops, found, err := p.Find(t.Context(), reset("run-1"))
	require.NoError(t, err)
	require.True(t, found)
	require.Len(t, ops, 2)
}

// BR-03: a 200 that names no operation comes from somebody between Neon and us, or means something else: it is not the
// end of a reset, and not of an operation.
func TestAnswers_ThatNameNoOperation(t *testing.T) {
	f := newFake(t)
	p := provider(t, f)
	say := "{}"
	f.before = func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodGet && !strings.Contains(r.URL.Path, "/operations/") {
			return false
		}
		_, _ = w.Write([]byte(say))
		return true
	}
	for _, say = range []string{"{}", "null", `{"operations": []}`, `{"operations": [{"status": "finished"}]}`, "<html>", ""} {
		_, err := p.Issue(t.Context(), reset("run"))
		require.Error(t, err, say)
		require.Equal(t, branch.ClassUnknown, class(err), say)
	}
	for _, say = range []string{"{}", "null", `{"operation": {"status": "finished"}}`, `{"operation": {"id": "y", "status": "finished"}}`, "<html>"} {
		op, err := p.Poll(t.Context(), reset("run"), branch.Operation{ID: "x", Status: "running"})
		require.Error(t, err, say)
		require.Equal(t, branch.Operation{ID: "x", Status: "running"}, op)
	}
}
