package workers_test

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/internal/faultproxy"
	"github.com/weirqueue/weir/jobs"
	"github.com/weirqueue/weir/workers"
	"github.com/weirqueue/weir/workers/tool"
)

// PL-04: the COMMIT of each step does not arrive, or its answer is lost. The owner looks the receipt up on another connection:
// the step is done once, and the plan is neither failed for it nor waits for its lease. (Where the owner is gone too:
// TestSteps_ClientCutOffInsideASlowCommit, and TestPlan_KilledInsideEachStep.)
func TestPlan_LostAnswerOfACommitIsLookedUp(t *testing.T) {
	t.Parallel()
	_, direct, client := planPool(t)
	proxy, err := faultproxy.New(direct.Config().ConnString())
	require.NoError(t, err)
	t.Cleanup(func() { _ = proxy.Close() })
	cfg := direct.Config()
	cfg.ConnConfig.Host, cfg.ConnConfig.Port, cfg.ConnConfig.Fallbacks = "127.0.0.1", uint16(proxy.Port()), nil
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	var cuts atomic.Int32
	var cut sync.Map // the steps whose first COMMIT is cut, by key
	p := start(t, pool, quickConfig(&fake{}, func(c *workers.Config) {
		c.Plan.Lease = time.Minute
		c.Tools = []tool.Tool{tool.Transactional(markDecl, func(ctx context.Context, tx pgx.Tx, call tool.Call) (any, error) {
			verdict := faultproxy.CutBefore
			if strings.Contains(string(call.Args), "after") {
				verdict = faultproxy.CutAfter
			}
			if _, again := cut.LoadOrStore(call.Key, true); !again {
				proxy.Set(faultproxy.AtCommit, func() faultproxy.Verdict { cuts.Add(1); return verdict })
			}
			_, err := tx.Exec(ctx, "insert into plan_effect values ($1, $2, 0, '{}')", call.Run.String(), call.Step)
			return call.Step, err
		})}
	}))
	for i, when := range []string{"before", "after"} {
		id := proposeMarks(t, client, false, when, when, when)
		approve(t, client, id)
		done := untilPlan(t, client, id)
		require.Equal(t, []any{jobs.StatusExecuted, ""}, []any{done.Run.Status, done.Run.ErrorCode}, when+done.Run.ErrorMessage)
		require.Equal(t, []string{"ok", "ok", "ok"}, planOutcomes(done), when)
		require.Equal(t, []int32{0, 1, 2}, effectsOf(t, direct, id), when)
		require.EqualValues(t, 3*(i+1), cuts.Load(), "each step's COMMIT was cut")
		require.Zero(t, done.Run.Reaps)
	}
	require.NotEmpty(t, of[workers.DoubtResolved](p.events))
	require.Empty(t, of[workers.LeaseLost](p.events))
}

// PL-14: two proposals of the same thing share nothing: canceling one leaves the other its doorbell and its steps. Two by one
// key are one plan, and say so.
func TestPlan_CancelingOneOfTwoAlikeLeavesTheOther(t *testing.T) {
	t.Parallel()
	_, pool, client := planPool(t)
	one, two, undecided := proposeMarks(t, client, false, "", ""), proposeMarks(t, client, false, "", ""), proposeMarks(t, client, false, "", "")
	require.Len(t, map[jobs.RunID]bool{one: true, two: true, undecided: true}, 3)
	approve(t, client, one)
	approve(t, client, two)
	require.NotEqual(t, get(t, client, one).DoorbellID, get(t, client, two).DoorbellID)
	require.NoError(t, client.CancelPlan(t.Context(), one))
	require.NoError(t, client.CancelPlan(t.Context(), undecided))
	start(t, pool, planConfig(pool))
	p := untilPlan(t, client, two)
	require.Equal(t, jobs.StatusExecuted, p.Run.Status, p.Run.ErrorMessage)
	require.Equal(t, []int32{0, 1}, effectsOf(t, pool, two))
	for _, id := range []jobs.RunID{one, undecided} {
		p = untilPlan(t, client, id)
		require.Equal(t, []any{jobs.StatusFailed, "canceled"}, []any{p.Run.Status, p.Run.ErrorCode})
		require.Empty(t, effectsOf(t, pool, id))
	}

	params := jobs.PlanParams{Title: "One", Risk: jobs.RiskLow, Owner: "ada", Steps: []jobs.PlanStep{{Tool: "mark", Args: json.RawMessage(`{}`)}}}
	first, err := client.ProposePlan(t.Context(), params, &jobs.Opts{IdempotencyKey: "k"})
	require.NoError(t, err)
	again, err := client.ProposePlan(t.Context(), params, &jobs.Opts{IdempotencyKey: "k"})
	require.NoError(t, err)
	require.Equal(t, []any{first.Run.ID, true}, []any{again.Run.ID, again.Existing})
	params.Steps[0].Args = json.RawMessage(`{"n": 1}`)
	_, err = client.ProposePlan(t.Context(), params, &jobs.Opts{IdempotencyKey: "k"})
	require.ErrorIs(t, err, jobs.ErrKeyReused)
}
