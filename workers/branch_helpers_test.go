package workers_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/jobs"
	"github.com/weirqueue/weir/workers"
	"github.com/weirqueue/weir/workers/branch"
)

// fakeBranches is a provider that does what a test says, and logs what it was called for.
type fakeBranches struct {
	issue  func(ctx context.Context, r branch.Reset) ([]branch.Operation, error)
	find   func(ctx context.Context, r branch.Reset) ([]branch.Operation, bool, error)
	poll   func(ctx context.Context, op branch.Operation, n int) (branch.Operation, error)
	cancel func(ops []branch.Operation) error

	mu                            sync.Mutex
	issues, finds, polls, cancels map[string]int
}

func (f *fakeBranches) count(of *map[string]int, key string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	if *of == nil {
		*of = map[string]int{}
	}
	(*of)[key]++
	return (*of)[key]
}

func (f *fakeBranches) times(of *map[string]int, id jobs.RunID) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return (*of)[id.String()]
}

func op(id, status string, state branch.State) branch.Operation {
	return branch.Operation{ID: id, Action: "restore", Status: status, State: state}
}

func (f *fakeBranches) Issue(ctx context.Context, r branch.Reset) ([]branch.Operation, error) {
	f.count(&f.issues, r.RunID)
	if f.issue == nil {
		return []branch.Operation{op(r.RunID, "running", branch.Running)}, nil
	}
	return f.issue(ctx, r)
}

func (f *fakeBranches) Find(ctx context.Context, r branch.Reset) ([]branch.Operation, bool, error) {
	f.count(&f.finds, r.RunID)
	if f.find == nil {
		return nil, false, nil
	}
	return f.find(ctx, r)
}

func (f *fakeBranches) Poll(ctx context.Context, r branch.Reset, o branch.Operation) (branch.Operation, error) {
	n := f.count(&f.polls, r.RunID)
	if f.poll == nil {
		return op(o.ID, "finished", branch.Finished), nil
	}
	return f.poll(ctx, o, n)
}

func (f *fakeBranches) Cancel(_ context.Context, r branch.Reset, ops []branch.Operation) error {
	f.count(&f.cancels, r.RunID)
	if f.cancel == nil {
		return branch.ErrNotCancelable
	}
	return f.cancel(ops)
}

// says polls through a list of words; the last one stays.
func says(list ...branch.Operation) func(context.Context, branch.Operation, int) (branch.Operation, error) {
	return func(_ context.Context, o branch.Operation, n int) (branch.Operation, error) {
		now := list[min(n, len(list))-1]
		now.ID = o.ID
		return now, nil
	}
}

// branchConfig has polls of milliseconds, and limits that no test meets by being slow.
func branchConfig(p branch.Provider, changes ...func(*workers.Config)) *workers.Config {
	cfg := quickConfig(nil)
	cfg.Channels = nil
	cfg.Branches = workers.BranchConfig{
		Lease: 2 * time.Second, StepTime: 20 * time.Second, PollFirst: 20 * time.Millisecond, PollMax: 40 * time.Millisecond,
		Limit: time.Hour, FailedLimit: 10 * time.Minute, AskWait: 5 * time.Minute,
	}
	if p != nil {
		cfg.Branches.Providers = map[string]branch.Provider{"fake": p}
	}
	for _, change := range changes {
		change(cfg)
	}
	return cfg
}

func registerBranch(t testing.TB, client *jobs.Client, name string) {
	t.Helper()
	require.NoError(t, client.RegisterBranch(context.Background(), jobs.Branch{Name: name, Provider: "fake", Target: name + "-db", Parent: "main"}))
}

func resetBranch(t testing.TB, client *jobs.Client, name string) jobs.RunID {
	t.Helper()
	registerBranch(t, client, name)
	res, err := client.ResetBranch(context.Background(), jobs.Reset{Branch: name}, nil)
	require.NoError(t, err)
	return res.Run.ID
}

func getReset(t testing.TB, client *jobs.Client, id jobs.RunID) *jobs.BranchReset {
	t.Helper()
	r, err := client.GetBranchReset(context.Background(), id)
	require.NoError(t, err)
	return r
}

// untilTerminal waits for the end and asserts it.
func untilEnd(t testing.TB, client *jobs.Client, id jobs.RunID, status jobs.Status, code string) *jobs.Run {
	t.Helper()
	run := until(t, client, id, "terminal", (*jobs.Run).Terminal)
	require.Equal(t, status, run.Status, "%s: %s", run.ErrorCode, run.ErrorMessage)
	require.Equal(t, code, run.ErrorCode, run.ErrorMessage)
	return run
}

func seenWords(r *jobs.BranchReset) []string {
	var out []string
	for _, o := range r.Operations {
		for _, s := range o.Seen {
			out = append(out, fmt.Sprintf("%s %s", o.ID, s.Status))
		}
	}
	return out
}

// age moves what a reset has recorded into the past, as if its provider had been at it for long.
func age(t testing.TB, pool *pgxpool.Pool, id jobs.RunID, by time.Duration) {
	t.Helper()
	execSQL(t, pool, "update weir.run set created_at = created_at - $2::interval where id = $1", id.String(), by)
	execSQL(t, pool, `update weir.receipt set recorded_at = recorded_at - $2::interval, output = case when output ? 'since'
		then jsonb_set(output, '{since}', to_jsonb((output ->> 'since')::timestamptz - $2::interval)) else output end where run_id = $1`, id.String(), by)
	execSQL(t, pool, `update weir.branch_operation set first_seen_at = first_seen_at - $2::interval, seen = (
		select jsonb_agg(jsonb_set(s, '{at}', to_jsonb((s ->> 'at')::timestamptz - $2::interval))) from jsonb_array_elements(seen) s) where run_id = $1`, id.String(), by)
}
