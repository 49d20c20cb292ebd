package workers_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/desk"
	"github.com/weirqueue/weir/internal/postgres/pgtest"
	"github.com/weirqueue/weir/jobs"
	"github.com/weirqueue/weir/workers"
	"github.com/weirqueue/weir/workers/tool"
	"github.com/weirqueue/weir/workers/tool/desktool"
)

// What a step of each desk tool costs beside its one commit (TestSteps_CommitsOfAStep): two round trips where it makes a file,
// three where it looks at what was there before, which its inverse needs.
func TestPlan_RoundTripsOfADeskStep(t *testing.T) {
	t.Parallel()
	var (
		w    wires
		seen []int64
	)
	address := pgtest.URL(t)
	pool, other := pgtest.Connect(t, address, pgtest.Config(w.watch)), pgtest.Connect(t, address) // whoever waits is not counted
	store, err := desk.NewStore(pool)
	require.NoError(t, err)
	set := desktool.New(store)
	var counted []tool.Tool
	for _, own := range set.Tools() {
		transact, _, _ := own.Functions()
		counted = append(counted, tool.Transactional(own.Decl(), func(ctx context.Context, tx pgx.Tx, call tool.Call) (any, error) {
			seen = append(seen, w.writes.Load())
			return transact(ctx, tx, call)
		}))
	}
	client, err := jobs.NewClient(other, &jobs.Config{Tools: set.Declarations()})
	require.NoError(t, err)
	start(t, pool, quickConfig(&fake{}, func(c *workers.Config) {
		c.Plan.Lease, c.Tools = time.Minute, counted
		c.ReaperInterval, c.FetchPollInterval = time.Minute, 5*time.Second // they write, too
	}))
	proposing, err := desk.NewStore(other)
	require.NoError(t, err)
	o := office{store: proposing, client: client, pool: other}
	sheet := o.sheet(t, `{"A1":{"v":1}}`)
	const steps = 20
	text := o.note(t, "was")
	var doomed []desk.FileID
	for range steps {
		doomed = append(doomed, o.note(t, "x").ID)
	}
	for name, c := range map[string]struct {
		step func(i int) jobs.PlanStep
		want int64
	}{
		"create markdown":    {func(int) jobs.PlanStep { return call(desktool.CreateMarkdown, `{"name": "Notes"}`) }, 2},
		"create spreadsheet": {func(int) jobs.PlanStep { return call(desktool.CreateSpreadsheet, `{"name": "Budget"}`) }, 2},
		"update cells": {func(i int) jobs.PlanStep {
			return call(desktool.UpdateCells, `{"file": %q, "expectedVersion": %d, "cells": {"A1": {"v": %d}}}`, sheet.ID, i+1, i)
		}, 3},
		"update markdown": {func(i int) jobs.PlanStep {
			return call(desktool.UpdateMarkdown, `{"file": %q, "expectedVersion": %d, "text": "%d"}`, text.ID, i+1, i)
		}, 3},
		"rename": {func(i int) jobs.PlanStep {
			return call(desktool.RenameFile, `{"file": %q, "name": "Name %d"}`, sheet.ID, i)
		}, 3},
		"delete": {func(i int) jobs.PlanStep {
			return call(desktool.DeleteFile, `{"file": %q, "expectedVersion": 1}`, doomed[i])
		}, 3},
	} {
		seen = nil
		var list []jobs.PlanStep
		for i := range steps {
			list = append(list, c.step(i))
		}
		p := o.plan(t, list...)
		require.Equal(t, jobs.StatusExecuted, p.Run.Status, "%s: %s", name, p.Run.ErrorMessage)
		require.Len(t, seen, steps)
		// Writes of River and of the upkeep come in between, so the least counts.
		least := seen[3] - seen[2] // the first ones prepare their statements
		for i := 4; i < steps; i++ {
			least = min(least, seen[i]-seen[i-1])
		}
		require.Equal(t, c.want, least, name)
	}
}
