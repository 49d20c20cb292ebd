package demo

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/weirqueue/weir/jobs"
)

const (
	branchName  = "preview"
	branchQueue = "weir_demo_branch"
)

// branches are two databases on the demo's own server: a branch and the parent that it is made from.
type branches struct{ target, parent string }

func (b branches) names() []string {
	if b.target == "" {
		return nil
	}
	return []string{b.target, b.parent}
}

// makeBranches makes both. The branch has been worked in since.
func (d *Demo) makeBranches(ctx context.Context) error {
	b := branches{target: d.dbName + "_preview", parent: d.dbName + "_main"}
	if err := d.server.CreateDatabase(ctx, b.parent); err != nil {
		return err
	}
	d.branches = b
	if err := d.execIn(ctx, b.parent, "create table orders (id int primary key, item text); insert into orders values (1, 'a book'), (2, 'a lamp')"); err != nil {
		return err
	}
	if err := d.server.CopyDatabase(ctx, b.target, b.parent); err != nil {
		return err
	}
	return d.execIn(ctx, b.target, "delete from orders where id = 1; insert into orders values (3, 'an experiment')")
}

func (d *Demo) execIn(ctx context.Context, database, sql string) error {
	conn, err := pgx.Connect(ctx, d.server.URL(database))
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, sql)
	return err
}

func (d *Demo) orders(ctx context.Context, database string) (list string, err error) {
	conn, err := pgx.Connect(ctx, d.server.URL(database))
	if err != nil {
		return "", err
	}
	defer conn.Close(ctx)
	err = conn.QueryRow(ctx, "select coalesce(string_agg(item, ', ' order by id), '') from orders").Scan(&list)
	return list, err
}

// playedReset is a reset, and what was in the branch before and after it.
type playedReset struct {
	run                   jobs.RunID
	before, after, parent string
}

// reset registers the branch, resets it and looks at what is in it then. It returns nil on a server that is not the
// demo's own: databases are not made there.
func (d *Demo) reset(ctx context.Context) (p *playedReset, err error) {
	if d.branches.target == "" {
		d.say("no branch is reset: that needs databases beside this one, which the demo makes on a server of its own only")
		return nil, nil //nolint:nilnil // nothing was played
	}
	p = &playedReset{}
	if p.before, err = d.orders(ctx, d.branches.target); err != nil {
		return nil, err
	}
	err = d.client.RegisterBranch(ctx, jobs.Branch{
		Name: branchName, Provider: jobs.ProviderPGTemplate, Target: d.branches.target, Parent: d.branches.parent,
	})
	if err != nil {
		return nil, err
	}
	res, err := d.client.ResetBranch(ctx, jobs.Reset{Branch: branchName}, &jobs.Opts{IdempotencyKey: "demo:" + d.branches.target})
	if err != nil {
		return nil, err
	}
	p.run = res.Run.ID
	if _, err := d.client.Wait(ctx, p.run); err != nil {
		return nil, err
	}
	if p.after, err = d.orders(ctx, d.branches.target); err != nil {
		return nil, err
	}
	if p.parent, err = d.orders(ctx, d.branches.parent); err != nil {
		return nil, err
	}
	d.say("the branch %q was reset: %q became %q", branchName, p.before, p.after)
	return p, nil
}

func (d *Demo) reportReset(ctx context.Context, r *Report, p *playedReset) error {
	if p == nil {
		return nil
	}
	reset, err := d.client.GetBranchReset(ctx, p.run)
	if err != nil {
		return err
	}
	receipts, err := d.client.Receipts(ctx, p.run)
	if err != nil {
		return err
	}
	run := reset.Run
	r.Runs = append(r.Runs, RunReport{
		ID: run.ID, Kind: run.Kind, Status: run.Status, Attempt: run.Attempt, Failures: run.Failures, Reaps: run.Reaps,
		Receipts: receipts, title: fmt.Sprintf("the branch equals its parent again: %s", p.after),
	})
	switch {
	case run.Status != jobs.StatusSucceeded:
		r.fault("the branch reset is %s, not succeeded: %s %s", run.Status, run.ErrorCode, run.ErrorMessage)
	case p.after != p.parent || p.after == p.before:
		r.fault("the branch holds %q, and its parent %q", p.after, p.parent)
	case len(receipts) != 2 || receipts[0].Outcome != "ok" || receipts[1].Outcome != "ok":
		r.fault("the branch reset has not two receipts that are ok: %+v", receipts)
	case len(reset.Operations) != 1 || !reset.Operations[0].Final:
		r.fault("the branch reset has not one operation that is final: %+v", reset.Operations)
	}
	return nil
}
