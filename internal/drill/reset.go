package drill

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weirqueue/weir/jobs"
	"github.com/weirqueue/weir/workers"
	"github.com/weirqueue/weir/workers/branch"
)

const (
	drillProvider = "drill"
	envBranches   = "branches"
	// pollsOfReset is how many polls an operation takes.
	pollsOfReset = 4
)

// resets is the subject of branch resets. The provider in the parent counts the issues.
type resets struct{ hosting }

func newResets(seed uint64) *resets { return &resets{hosting{seed: seed + 1, env: envBranches}} }

func (*resets) Name() string { return "branch-reset" }
func (*resets) Kind() string { return jobs.KindBranchReset }

// Enqueue resets a branch of its own. A second reset of it, with another key, must be refused, whatever is broken.
func (*resets) Enqueue(ctx context.Context, tx pgx.Tx, client *jobs.Client, n int64) (jobs.RunID, error) {
	name := fmt.Sprintf("drill-%d", n)
	err := client.RegisterBranchTx(ctx, tx, jobs.Branch{Name: name, Provider: drillProvider, Target: name})
	if err != nil {
		return jobs.RunID{}, err
	}
	res, err := client.ResetBranchTx(ctx, tx, jobs.Reset{Branch: name}, nil)
	if err != nil {
		return jobs.RunID{}, err
	}
	_, err = client.ResetBranchTx(ctx, tx, jobs.Reset{Branch: name}, &jobs.Opts{IdempotencyKey: "another of " + name})
	if !errors.Is(err, jobs.ErrInFlight) {
		return jobs.RunID{}, fmt.Errorf("a second reset of a branch was not refused: %w", err)
	}
	return res.Run.ID, nil
}

func (*resets) Work(cfg *workers.Config, env map[string]string, limits Limits) error {
	cfg.Branches = workers.BranchConfig{
		Providers:  map[string]branch.Provider{drillProvider: outsideBranches{url: env[envBranches], client: &http.Client{Timeout: limits.StepTime}}},
		MaxWorkers: limits.MaxWorkers, Lease: limits.Lease, StepTime: limits.StepTime,
		PollFirst: 100 * time.Millisecond, PollMax: 300 * time.Millisecond, Limit: time.Hour, AskWait: 2 * limits.Lease,
	}
	return nil
}

// outsideBranches reaches the provider of the drill. Its issues are counted, and none is told from another.
type outsideBranches struct {
	url    string
	client *http.Client
}

func (o outsideBranches) do(ctx context.Context, method, path string) (n, status int, err error) {
	req, err := http.NewRequestWithContext(ctx, method, o.url+"/"+path, nil)
	if err != nil {
		return 0, 0, err
	}
	res, err := o.client.Do(req)
	if err != nil {
		return 0, 0, err
	}
	defer res.Body.Close()
	var said struct {
		N int `json:"n"`
	}
	if res.StatusCode == http.StatusOK {
		err = json.NewDecoder(io.LimitReader(res.Body, 1<<16)).Decode(&said)
	}
	return said.N, res.StatusCode, err
}

func (o outsideBranches) Issue(ctx context.Context, r branch.Reset) ([]branch.Operation, error) {
	if err := r.StillMine(ctx); err != nil {
		return nil, branch.Later(0, "not_begun", err)
	}
	_, status, err := o.do(ctx, http.MethodPost, "each/"+r.RunID)
	switch {
	case err != nil:
		return nil, err
	case status == http.StatusInternalServerError: // the provider's word that nothing was done
		return nil, branch.Later(0, "out_of_order", nil)
	}
	return o.operations(r), nil
}

func (outsideBranches) operations(r branch.Reset) []branch.Operation {
	return []branch.Operation{{ID: "op-" + r.RunID, Action: "restore", Status: "scheduling"}}
}

func (o outsideBranches) Find(ctx context.Context, r branch.Reset) ([]branch.Operation, bool, error) {
	n, _, err := o.do(ctx, http.MethodGet, "each/"+r.RunID)
	if err != nil || n == 0 {
		return nil, false, err
	}
	return o.operations(r), true, nil
}

func (o outsideBranches) Poll(ctx context.Context, r branch.Reset, op branch.Operation) (branch.Operation, error) {
	n, _, err := o.do(ctx, http.MethodGet, "poll/"+r.RunID)
	if err != nil {
		return op, err
	}
	op.Status, op.State = "running", branch.Running
	if n >= pollsOfReset {
		op.Status, op.State = "finished", branch.Finished
	}
	return op, nil
}

func (outsideBranches) Cancel(context.Context, branch.Reset, []branch.Operation) error {
	return branch.ErrNotCancelable
}

// Check counts the issues at the provider: at most one a reset, whatever was done to the workers.
func (r *resets) Check(ctx context.Context, pool *pgxpool.Pool, records *Records) (Effects, error) {
	var all Effects
	for _, run := range records.Runs(jobs.KindBranchReset) {
		// Only a reset that may have been issued, and that the provider did not show in time, ends otherwise.
		all.Faults = append(all.Faults, run.unexplained(run.Unknown[0] > 0)...)
		all.Faults = append(all.Faults, run.Missing(1)...)
		all.add(run.outside(0, r.provider.times("each/"+run.ID.String()), 1))
	}
	var open int
	err := pool.QueryRow(ctx, `select count(*) from weir.branch_operation o join weir.run r on r.id = o.run_id
		where r.status = 'succeeded' and not o.final`).Scan(&open)
	if err != nil {
		return all, fmt.Errorf("drill: read the operations: %w", err)
	}
	if open > 0 {
		all.Faults = append(all.Faults, fmt.Sprintf("%d operations of resets that have succeeded are not final", open))
	}
	return all, nil
}
