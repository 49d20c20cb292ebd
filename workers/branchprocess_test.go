package workers_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/internal/postgres/pgtest"
	"github.com/weirqueue/weir/jobs"
	"github.com/weirqueue/weir/workers/branch"
)

// branchActor is a provider of worker processes. Its log is the table acts: "begin" when the call is reached, "issue"
// when it has taken it. The branch's name says where it waits for the gate.
type branchActor struct {
	pool *pgxpool.Pool
	note func(table, run, what string)
}

func (a branchActor) open() (open bool) {
	_ = a.pool.QueryRow(context.Background(), "select exists (select from gate where open)").Scan(&open)
	return open
}

func (a branchActor) wait() {
	for !a.open() {
		time.Sleep(20 * time.Millisecond)
	}
}

func (a branchActor) has(run, act string) (n int) {
	_ = a.pool.QueryRow(context.Background(), "select count(*)::int from acts where run = $1 and act = $2", run, act).Scan(&n)
	return n
}

func (a branchActor) Issue(_ context.Context, r branch.Reset) ([]branch.Operation, error) {
	a.note("acts", r.RunID, "begin")
	if strings.HasPrefix(r.Branch, "before") {
		a.wait() // whatever happens to its context
		if err := r.StillMine(context.Background()); err != nil && r.Branch == "before, asking" {
			a.note("acts", r.RunID, "kept out")
			return nil, err
		}
	}
	a.note("acts", r.RunID, "issue")
	if strings.HasPrefix(r.Branch, "inside") {
		a.wait()
	}
	return []branch.Operation{op(r.RunID, "running", "")}, nil
}

func (a branchActor) Find(_ context.Context, r branch.Reset) ([]branch.Operation, bool, error) {
	a.note("acts", r.RunID, "find")
	if a.has(r.RunID, "issue") == 0 {
		return nil, false, nil
	}
	return []branch.Operation{op(r.RunID, "running", "")}, true, nil
}

func (a branchActor) Poll(_ context.Context, r branch.Reset, o branch.Operation) (branch.Operation, error) {
	a.note("acts", r.RunID, "poll")
	switch {
	case strings.HasPrefix(r.Branch, "polling, held") && a.has(r.RunID, "poll") == 1:
		a.wait()
	case r.Branch == "polling" && !a.open():
		return op(o.ID, "running", ""), nil
	}
	return op(o.ID, "finished", branch.Finished), nil
}

func (branchActor) Cancel(context.Context, branch.Reset, []branch.Operation) error {
	return errors.New("not now")
}

func countOf(list []string, act string) int {
	return len(slices.DeleteFunc(slices.Clone(list), func(a string) bool { return a != act }))
}

func untilAct(t *testing.T, pool *pgxpool.Pool, id jobs.RunID, act string, n int) {
	t.Helper()
	require.NoError(t, eventually(func() bool { return countOf(acts(t, pool, id), act) >= n }), "%s: %v", act, acts(t, pool, id))
}

// BR-03, BR-15: a worker is killed before, inside and after the call, and while polling. The provider has one issue at
// most, and each reset comes to an end: adopted, or unknown where the provider never saw it.
func TestProcess_KilledAroundAnIssue(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		branch, at string
		n          int
		status     jobs.Status
		code       string
		issues     int
	}{
		{"before", "begin", 1, jobs.StatusFailed, "outcome_unknown", 0},
		{"inside", "issue", 1, jobs.StatusSucceeded, "", 1},
		{"polling", "poll", 2, jobs.StatusSucceeded, "", 1},
		{"polling, held", "poll", 1, jobs.StatusSucceeded, "", 1},
	} {
		t.Run(c.branch, func(t *testing.T) {
			t.Parallel()
			url := pgtest.URL(t)
			pool := pgtest.Connect(t, url)
			execSQL(t, pool, processTables)
			client := newClient(t, pool)
			first := spawn(t, url, options{Lease: time.Second})
			id := resetBranch(t, client, c.branch)
			untilAct(t, pool, id, c.at, c.n)
			first.kill(t)
			spawn(t, url, options{Lease: time.Second})
			if strings.HasPrefix(c.branch, "polling") {
				untilAct(t, pool, id, "poll", c.n+1)
			}
			execSQL(t, pool, "insert into gate values (true)")
			untilEnd(t, client, id, c.status, c.code)
			require.Equal(t, c.issues, countOf(acts(t, pool, id), "issue"), acts(t, pool, id))
		})
	}
}

// A worker is stopped between its `started` and the call; another one takes over and finds nothing; the first wakes up.
// It has at most the one issue, and none where it asks first whether the run is still its own.
func TestProcess_StoppedBetweenStartedAndTheCall(t *testing.T) {
	t.Parallel()
	for name, issues := range map[string]int{"before": 1, "before, asking": 0} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := pgtest.URL(t)
			pool := pgtest.Connect(t, url)
			execSQL(t, pool, processTables)
			client := newClient(t, pool)
			frozen := spawn(t, url, options{Lease: time.Second})
			id := resetBranch(t, client, name)
			untilAct(t, pool, id, "begin", 1)
			frozen.signal(t, syscall.SIGSTOP)
			spawn(t, url, options{Lease: time.Second})
			before := untilEnd(t, client, id, jobs.StatusFailed, "outcome_unknown")
			execSQL(t, pool, "insert into gate values (true)")
			frozen.signal(t, syscall.SIGCONT)
			if issues == 0 {
				untilAct(t, pool, id, "kept out", 1)
			} else {
				untilAct(t, pool, id, "issue", 1)
			}
			require.NoError(t, eventually(func() bool { return observedBy(t, pool, "lease_lost") > 0 }))
			require.Equal(t, before, get(t, client, id), "what it writes changes nothing")
			require.Equal(t, issues, countOf(acts(t, pool, id), "issue"))
			require.Equal(t, 1, countOf(acts(t, pool, id), "begin"))
		})
	}
}

// A worker that is stopped in a poll loses its lease; the other one goes on, and nothing is issued again.
func TestProcess_LeaseLostWhilePolling(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	pool := pgtest.Connect(t, url)
	execSQL(t, pool, processTables)
	client := newClient(t, pool)
	frozen := spawn(t, url, options{Lease: time.Second})
	id := resetBranch(t, client, "polling, held")
	untilAct(t, pool, id, "poll", 1)
	frozen.signal(t, syscall.SIGSTOP)
	spawn(t, url, options{Lease: time.Second})
	untilAct(t, pool, id, "poll", 2)
	run := untilEnd(t, client, id, jobs.StatusSucceeded, "")
	execSQL(t, pool, "insert into gate values (true)")
	frozen.signal(t, syscall.SIGCONT)
	frozen.signal(t, syscall.SIGTERM)
	<-frozen.exited
	require.Equal(t, run, get(t, client, id))
	require.Equal(t, 1, countOf(acts(t, pool, id), "issue"), fmt.Sprint(acts(t, pool, id)))
}
