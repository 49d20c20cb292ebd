package workers_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/desk"
	"github.com/weirqueue/weir/jobs"
	"github.com/weirqueue/weir/workers/tool"
	"github.com/weirqueue/weir/workers/tool/desktool"
)

// office is desk with its six tools, a client that proposes and a process that carries out.
type office struct {
	store  *desk.Store
	client *jobs.Client
	pool   *pgxpool.Pool
}

func newOffice(t *testing.T) office {
	t.Helper()
	_, pool, _ := planPool(t)
	store, err := desk.NewStore(pool)
	require.NoError(t, err)
	set := desktool.New(store)
	client, err := jobs.NewClient(pool, &jobs.Config{Tools: append(set.Declarations(), markDecl)})
	require.NoError(t, err)
	cfg := planConfig(pool)
	cfg.Tools = append([]tool.Tool{cfg.Tools[0]}, set.Tools()...)
	start(t, pool, cfg)
	return office{store: store, client: client, pool: pool}
}

func (o office) sheet(t *testing.T, cells string) *desk.File {
	t.Helper()
	content, err := desk.ParseContent([]byte(`{"cells":` + cells + `,"columnMeta":null}`))
	require.NoError(t, err)
	f, err := o.store.Create(t.Context(), "ada", desk.NewFile{Name: "Budget", Content: content})
	require.NoError(t, err)
	return f
}

func (o office) note(t *testing.T, text string) *desk.File {
	t.Helper()
	content, err := desk.Markdown(text)
	require.NoError(t, err)
	f, err := o.store.Create(t.Context(), "ada", desk.NewFile{Name: "Notes", Content: content})
	require.NoError(t, err)
	return f
}

func (o office) read(t *testing.T, id desk.FileID) *desk.File {
	t.Helper()
	f, err := o.store.Get(t.Context(), "ada", id)
	require.NoError(t, err)
	return f
}

// plan proposes, approves and waits.
func (o office) plan(t *testing.T, steps ...jobs.PlanStep) *jobs.Plan {
	t.Helper()
	res, err := o.client.ProposePlan(t.Context(), jobs.PlanParams{Title: "Desk", Risk: jobs.RiskLow, Owner: "ada", Steps: steps}, nil)
	require.NoError(t, err)
	approve(t, o.client, res.Run.ID)
	return untilPlan(t, o.client, res.Run.ID)
}

func call(name, args string, with ...any) jobs.PlanStep {
	return jobs.PlanStep{Tool: name, Args: json.RawMessage(fmt.Sprintf(args, with...))}
}

// All six tools, each in its step's transaction, through desk's own versions.
func TestPlan_DeskTools(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	f := o.sheet(t, `{"A1":{"v":9007199254740993},"B1":{"v":"stays"}}`)
	p := o.plan(t,
		call(desktool.UpdateCells, `{"file": %q, "expectedVersion": 1, "cells": {"A1": null, "C1": {"v": 12345678901234567890, "f": "=A1"}}}`, f.ID),
		call(desktool.RenameFile, `{"file": %q, "name": "Plan", "expectedName": "Budget"}`, f.ID),
		call(desktool.CreateMarkdown, `{"name": "Notes", "text": "a"}`),
		call(desktool.CreateSpreadsheet, `{"name": "Sums", "cells": {"A1": {"v": 1}}}`),
	)
	require.Equal(t, jobs.StatusExecuted, p.Run.Status, p.Run.ErrorMessage)
	got := o.read(t, f.ID)
	require.JSONEq(t, `{"cells":{"B1":{"v":"stays"},"C1":{"v":12345678901234567890,"f":"=A1"}},"columnMeta":null}`, string(got.Content))
	require.Contains(t, string(got.Content), "12345678901234567890")
	require.Equal(t, []any{"Plan", int64(2)}, []any{got.Name, got.Version})
	var notes struct{ File desk.FileID }
	require.NoError(t, p.Steps[2].Receipt.Decode(&notes))
	p = o.plan(t,
		call(desktool.UpdateMarkdown, `{"file": %q, "expectedVersion": 1, "text": "b"}`, notes.File),
		call(desktool.DeleteFile, `{"file": %q, "expectedVersion": 2}`, notes.File),
	)
	require.Equal(t, jobs.StatusExecuted, p.Run.Status, p.Run.ErrorMessage)
	_, err := o.store.Get(t.Context(), "ada", notes.File)
	require.ErrorIs(t, err, desk.ErrDeleted)
}

// A document that somebody saved meanwhile is a conflict that ends the plan, and is never overwritten; somebody else's is
// not found.
func TestPlan_DeskConflictIsNeverAnOverwrite(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	f := o.sheet(t, `{"A1":{"v":1}}`)
	content, err := desk.ParseContent([]byte(`{"cells":{"A1":{"v":2}},"columnMeta":null}`))
	require.NoError(t, err)
	_, err = o.store.Save(t.Context(), "ada", desk.Save{File: f.ID, ID: desk.NewSaveID(), Writer: "tab", ExpectedVersion: 1, SchemaVersion: desk.SchemaVersion, Content: content})
	require.NoError(t, err)
	before := o.read(t, f.ID)
	for name, args := range map[string]string{
		desktool.UpdateCells: `{"file": %q, "expectedVersion": 1, "cells": {"A1": {"v": 3}}}`, desktool.DeleteFile: `{"file": %q, "expectedVersion": 1}`,
	} {
		p := o.plan(t, call(name, args, f.ID))
		require.Equal(t, []any{jobs.StatusFailed, "version_conflict", "failed"}, []any{p.Run.Status, p.Run.ErrorCode, p.Steps[0].Outcome}, name)
		require.Equal(t, before, o.read(t, f.ID), name)
	}
	p := o.plan(t, call(desktool.RenameFile, `{"file": %q, "name": "x", "expectedName": "other"}`, f.ID))
	require.Equal(t, "name_changed", p.Run.ErrorCode)
	require.Equal(t, before, o.read(t, f.ID))
	foreign, err := o.store.Create(t.Context(), "bob", desk.NewFile{Content: content})
	require.NoError(t, err)
	p = o.plan(t, call(desktool.UpdateCells, `{"file": %q, "expectedVersion": 1, "cells": {"A1": {"v": 3}}}`, foreign.ID))
	require.Equal(t, "not_found", p.Run.ErrorCode)
}

// PL-10: a plan is undone by another one, in reverse, with an approval and receipts of its own: only what committed, and
// what has no inverse or has moved on since is named and left alone.
func TestPlan_CompensationIsAPlanOfItsOwn(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	f, moved := o.sheet(t, `{"A1":{"v":1}}`), o.sheet(t, `{"A1":{"v":1}}`)
	p := o.plan(t,
		call(desktool.UpdateCells, `{"file": %q, "expectedVersion": 1, "cells": {"A1": {"v": 2}, "B2": {"v": "new"}}}`, f.ID),
		call(desktool.UpdateCells, `{"file": %q, "expectedVersion": 2, "cells": {"A1": {"v": 3}}}`, f.ID),
		call(desktool.RenameFile, `{"file": %q, "name": "Other"}`, f.ID),
		call(desktool.UpdateCells, `{"file": %q, "expectedVersion": 1, "cells": {"A1": {"v": 9}}}`, moved.ID),
		call(desktool.CreateMarkdown, `{"name": "Notes"}`),
		call("mark", `{"n": 1}`),
		call("mark", `{"do": "fail"}`),
		call("mark", `{"n": 2}`),
	)
	require.Equal(t, jobs.StatusFailed, p.Run.Status)
	content, err := desk.ParseContent([]byte(`{"cells":{},"columnMeta":null}`))
	require.NoError(t, err)
	_, err = o.store.Save(t.Context(), "ada", desk.Save{File: moved.ID, ID: desk.NewSaveID(), Writer: "tab", ExpectedVersion: 2, SchemaVersion: desk.SchemaVersion, Content: content})
	require.NoError(t, err)

	c, err := o.client.CompensatePlan(t.Context(), p.Run.ID, "grace")
	require.NoError(t, err)
	require.Equal(t, []int{4, 2, 1, 0}, c.Undone)
	require.Len(t, c.Refused, 2)
	require.Equal(t, []any{5, jobs.NotUndoneNoInverse, 3, jobs.NotUndoneMovedOn}, []any{c.Refused[0].Step, c.Refused[0].Code, c.Refused[1].Step, c.Refused[1].Code})
	require.Equal(t, `{"v":3}`, cell(t, o.read(t, f.ID), "A1"), "nothing happens before the approval")
	_, err = o.client.CompensatePlan(t.Context(), p.Run.ID, "grace")
	require.ErrorIs(t, err, jobs.ErrState, "once")

	approve(t, o.client, c.Run.ID)
	undone := untilPlan(t, o.client, c.Run.ID)
	require.Equal(t, jobs.StatusExecuted, undone.Run.Status, undone.Run.ErrorMessage)
	require.Equal(t, []string{"ok", "ok", "ok", "ok"}, planOutcomes(undone))
	require.Equal(t, p.Run.ID, *undone.Compensates)
	got := o.read(t, f.ID)
	require.JSONEq(t, string(f.Content), string(got.Content))
	require.Equal(t, []any{"Budget", int64(5)}, []any{got.Name, got.Version}, "undoing is saving: the version goes on")
	require.JSONEq(t, string(content.JSON()), string(o.read(t, moved.ID).Content))
	old, err := o.client.GetPlan(t.Context(), p.Run.ID)
	require.NoError(t, err)
	require.Equal(t, c.Run.ID, *old.CompensatedBy)
	require.Equal(t, planOutcomes(p), planOutcomes(old), "the receipts of the first plan stay")

	none := o.plan(t, call("mark", `{}`))
	c, err = o.client.CompensatePlan(t.Context(), none.Run.ID, "grace")
	require.ErrorIs(t, err, jobs.ErrNothingToUndo)
	require.Len(t, c.Refused, 1)
}

func cell(t *testing.T, f *desk.File, name string) string {
	t.Helper()
	var sheet struct{ Cells map[string]json.RawMessage }
	require.NoError(t, json.Unmarshal(f.Content, &sheet))
	return string(sheet.Cells[name])
}
