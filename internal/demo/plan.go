package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weirqueue/weir/desk"
	"github.com/weirqueue/weir/jobs"
	"github.com/weirqueue/weir/workers/tool/desktool"
)

const (
	planQueue = "weir_demo_plan"
	approver  = "the demo"
	// documentOwner is whose documents the pages show where nobody signs in, as on the demo's.
	documentOwner desk.Owner = ":local"

	budgetBefore = `{"cells":{"A1":{"v":"Printers"},"B1":{"v":1000}},"columnMeta":null}`
	budgetAfter  = `{"cells":{"A1":{"v":"Printers"},"B1":{"v":1200},"C1":{"v":"as invoiced"}},"columnMeta":null}`
)

// playedPlan is a plan, and the spreadsheet that it changed.
type playedPlan struct {
	run   jobs.RunID
	sheet desk.FileID
}

// carryOut proposes a plan on a spreadsheet and approves it, kills the worker that carries it out inside its second step, and
// waits until another one has finished it.
func (d *Demo) carryOut(ctx context.Context) (*playedPlan, error) {
	content, err := desk.ParseContent([]byte(budgetBefore))
	if err != nil {
		return nil, err
	}
	sheet, err := d.documents.Create(ctx, documentOwner, desk.NewFile{Name: "Budget", Content: content})
	if err != nil {
		return nil, fmt.Errorf("make the spreadsheet: %w", err)
	}
	args := func(format string, with ...any) json.RawMessage { return json.RawMessage(fmt.Sprintf(format, with...)) }
	res, err := d.client.ProposePlan(ctx, jobs.PlanParams{
		Title: "Correct the budget", Rationale: "the invoice of the printers came in", Risk: jobs.RiskLow, Owner: string(documentOwner),
		ProposedBy: "the demo", Resume: true, Steps: []jobs.PlanStep{
			{Tool: desktool.CreateMarkdown, Args: args(`{"name": "Why the budget changed", "text": "Invoice 4711."}`)},
			{Tool: desktool.UpdateCells, Args: args(`{"file": %q, "expectedVersion": 1, "cells": {"B1": {"v": 1200}, "C1": {"v": "as invoiced"}}}`, sheet.ID)},
			{Tool: desktool.RenameFile, Args: args(`{"file": %q, "name": "Budget, corrected", "expectedName": "Budget"}`, sheet.ID)},
		},
	}, nil)
	if err != nil {
		return nil, err
	}
	p := &playedPlan{run: res.Run.ID, sheet: sheet.ID}
	plan, err := d.client.GetPlan(ctx, p.run)
	if err != nil {
		return nil, err
	}
	// Somebody has the spreadsheet's row, so that the plan stands still inside its second step.
	err = pgx.BeginFunc(ctx, d.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "select from desk.file where id = $1 for update", sheet.ID); err != nil {
			return err
		}
		if _, err := d.client.ApprovePlan(ctx, p.run, plan.Digest, approver); err != nil {
			return err
		}
		d.say("a plan of %s on a spreadsheet was proposed, and approved by %q", plural(len(plan.Steps), "step"), approver)
		return d.killInside(ctx, p.run, tx)
	})
	if err != nil {
		return nil, err
	}
	if _, err := d.client.WaitPlan(ctx, p.run); err != nil {
		return nil, err
	}
	d.say("another worker went on after its last receipt")
	return p, nil
}

// killInside waits until a worker waits for what tx has locked, with the first step's receipt written, and kills it.
func (d *Demo) killInside(ctx context.Context, id jobs.RunID, tx pgx.Tx) error {
	for {
		plan, err := d.client.GetPlan(ctx, id)
		if err != nil {
			return err
		}
		var waits bool
		err = tx.QueryRow(ctx, "select exists (select from pg_stat_activity where pg_backend_pid() = any(pg_blocking_pids(pid)))").Scan(&waits)
		if err != nil {
			return err
		}
		if waits && plan.Steps[0].Outcome == "ok" && plan.Run.LeaseOwner != "" {
			return d.killAndReplace(plan.Run.LeaseOwner, "inside the second step of a plan")
		}
		if plan.Run.Terminal() {
			return fmt.Errorf("the plan is %s before its worker was killed: %s", plan.Run.Status, plan.Run.ErrorMessage)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (d *Demo) reportPlan(ctx context.Context, r *Report, p *playedPlan) error {
	plan, err := d.client.GetPlan(ctx, p.run)
	if err != nil {
		return err
	}
	receipts, err := d.client.Receipts(ctx, p.run)
	if err != nil {
		return err
	}
	tries, err := d.client.Tries(ctx, p.run)
	if err != nil {
		return err
	}
	sheet, err := d.documents.Get(ctx, documentOwner, p.sheet)
	if err != nil {
		return err
	}
	run := plan.Run
	r.Runs = append(r.Runs, RunReport{
		ID: run.ID, Kind: run.Kind, Status: run.Status, Attempt: run.Attempt, Failures: run.Failures, Reaps: run.Reaps,
		Receipts: receipts, title: "its worker is killed inside its second step; each step is there once",
	})
	reaped := 0
	for _, t := range tries {
		if t.How == "reaped" {
			reaped++
		}
	}
	r.Takeovers += reaped
	switch {
	case run.Status != jobs.StatusExecuted:
		r.fault("the plan is %s, not executed: %s %s", run.Status, run.ErrorCode, run.ErrorMessage)
	case plan.DecidedBy != approver:
		r.fault("the plan was approved by %q, not by %q", plan.DecidedBy, approver)
	case len(receipts) != len(plan.Steps):
		r.fault("the plan has %d receipts, not %d", len(receipts), len(plan.Steps))
	case reaped == 0:
		r.fault("the plan was not taken over")
	case sheet.Version != 2 || string(sheet.Content) != budgetAfter || sheet.Name != "Budget, corrected":
		r.fault("the spreadsheet %q is at version %d, with %s", sheet.Name, sheet.Version, sheet.Content)
	}
	for _, rc := range receipts {
		if rc.Outcome != "ok" {
			r.fault("step %d of the plan is %s", rc.StepIndex, rc.Outcome)
		}
	}
	return nil
}
