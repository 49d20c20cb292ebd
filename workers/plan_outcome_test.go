package workers_test

import (
	"context"
	"encoding/json"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/internal/postgres/pgtest"
	"github.com/weirqueue/weir/jobs"
	"github.com/weirqueue/weir/workers"
	"github.com/weirqueue/weir/workers/tool"
)

// PL-15: an effect outside without a key, whose owner was lost in the middle, is not repeated although the plan is to be
// resumed: a person looks.
func TestPlan_AnAtLeastOnceStepIsNotRepeated(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t, pgtest.MaxConns(20))
	letter := jobs.MustTool("letter", jobs.ToolConfig{Effect: jobs.AtLeastOnce, Schema: json.RawMessage(`true`)})
	var calls atomic.Int32
	tools := []tool.Tool{tool.Outside(letter, func(ctx context.Context, _ tool.Call) (any, error) {
		calls.Add(1)
		<-ctx.Done() // until its lease is lost
		return nil, ctx.Err()
	})}
	client, err := jobs.NewClient(pool, &jobs.Config{Tools: []*jobs.Tool{letter}})
	require.NoError(t, err)
	start(t, pool, quickConfig(&fake{}, func(c *workers.Config) {
		c.Plan.Lease, c.Plan.StepTime, c.Tools = 30*time.Second, time.Minute, tools
	}))
	res, err := client.ProposePlan(t.Context(), jobs.PlanParams{
		Title: "Write", Risk: jobs.RiskLow, Owner: "ada", Resume: true,
		Steps: []jobs.PlanStep{{Tool: "letter", Args: json.RawMessage(`{}`)}, {Tool: "letter", Args: json.RawMessage(`{}`)}},
	}, nil)
	require.NoError(t, err)
	id := res.Run.ID
	approve(t, client, id)
	require.NoError(t, eventually(func() bool { return calls.Load() == 1 }))
	first := get(t, client, id).Attempt
	require.NoError(t, eventually(func() bool {
		execSQL(t, pool, `update weir.run set lease_expires_at = clock_timestamp() - interval '1 ms'
			where id = $1 and attempt = $2 and lease_expires_at is not null`, id.String(), first)
		return get(t, client, id).Attempt > first
	}))
	p := untilPlan(t, client, id)
	require.Equal(t, []any{jobs.StatusFailed, "outcome_unknown"}, []any{p.Run.Status, p.Run.ErrorCode}, p.Run.ErrorMessage)
	require.Equal(t, []string{"unknown", jobs.OutcomeNotRun}, []string{p.Steps[0].Outcome, p.Steps[1].Outcome})
	require.EqualValues(t, 1, calls.Load())
}
