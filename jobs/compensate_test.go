package jobs_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/internal/postgres/pgtest"
	"github.com/weirqueue/weir/jobs"
)

// PL-10: a tool that fails when it is asked how to undo a step, by an error of its SQL or otherwise, or that answers with what
// no plan may do, has its step listed and left alone; the others are undone.
func TestPlan_CompensationRefusesTheStepWhoseUndoFails(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	var cancel context.CancelFunc
	schema := json.RawMessage(`{"type": "object", "additionalProperties": false, "properties": {"do": {"type": "string"}}}`)
	undo := func(ctx context.Context, tx pgx.Tx, done jobs.DoneStep) (*jobs.PlanStep, error) {
		var a struct{ Do string }
		if err := json.Unmarshal(done.Args, &a); err != nil {
			return nil, err
		}
		switch a.Do {
		case "sql":
			return nil, tx.QueryRow(ctx, "select 1 from no_such_table").Scan(new(int))
		case "swallow":
			_, _ = tx.Exec(ctx, "select 1/0")
		case "write":
			_, err := tx.Exec(ctx, "create table left_behind ()")
			return &jobs.PlanStep{Tool: "do", Args: done.Args}, err
		case "text":
			return nil, errors.New("a\x00b\xff")
		case "tool":
			return &jobs.PlanStep{Tool: "none", Args: done.Args}, nil
		case "args":
			return &jobs.PlanStep{Tool: "do", Args: json.RawMessage(`{"x": 1}`)}, nil
		case "cancel":
			cancel()
			return nil, ctx.Err()
		}
		return &jobs.PlanStep{Tool: "do", Args: json.RawMessage(`{"do": "undone"}`)}, nil
	}
	do := jobs.MustTool("do", jobs.ToolConfig{Effect: jobs.Transactional, Schema: schema, Undo: undo})
	client, err := jobs.NewClient(pool, &jobs.Config{Tools: []*jobs.Tool{do}})
	require.NoError(t, err)
	executed := func(do ...string) jobs.RunID {
		p := jobs.PlanParams{Title: "Do", Risk: jobs.RiskLow, Owner: "ada"}
		for _, d := range do {
			args, _ := json.Marshal(map[string]string{"do": d})
			p.Steps = append(p.Steps, jobs.PlanStep{Tool: "do", Args: args})
		}
		id := propose(t, client, p).Run.ID
		for i := range do {
			execSQL(t, pool, "insert into weir.receipt (run_id, step_index, attempt, outcome, effect, step_name) values ($1, $2, 1, 'ok', 'transactional', 'do')", uuid.UUID(id), i)
		}
		execSQL(t, pool, "update weir.run set status = 'executed', attempt = 2, finished_at = clock_timestamp(), next_attempt_at = null, expires_at = null where id = $1", uuid.UUID(id))
		return id
	}
	c, err := client.CompensatePlan(t.Context(), executed("fine", "sql", "swallow", "write", "text", "tool", "args", "fine"), "grace")
	require.NoError(t, err)
	require.Equal(t, []int{7, 3, 2, 0}, c.Undone)
	var refused []int
	for _, r := range c.Refused {
		refused = append(refused, r.Step)
		require.Equal(t, jobs.NotUndoneFailed, r.Code, r)
	}
	require.Equal(t, []int{6, 5, 4, 1}, refused)
	require.Contains(t, c.Refused[3].Reason, "no_such_table")
	require.False(t, value[bool](t, pool, "select to_regclass('left_behind') is not null"), "an undo that writes has written nothing")
	p, err := client.GetPlan(t.Context(), c.Run.ID)
	require.NoError(t, err)
	require.Len(t, p.Steps, 4)
	require.Contains(t, p.Rationale, "step 1, do: undo_failed: ")
	require.Contains(t, p.Rationale, "a?b?")

	all, err := client.CompensatePlan(t.Context(), executed("sql", "text"), "")
	require.ErrorIs(t, err, jobs.ErrNothingToUndo)
	require.Len(t, all.Refused, 2)

	many := make([]string, 100)
	for i := range many[1:] {
		many[i] = "sql"
	}
	c, err = client.CompensatePlan(t.Context(), executed(many...), "")
	require.NoError(t, err)
	require.Len(t, c.Refused, 99)
	p, err = client.GetPlan(t.Context(), c.Run.ID)
	require.NoError(t, err)
	require.Regexp(t, `and \d+ more$`, p.Rationale)

	ctx, stop := context.WithCancel(t.Context())
	cancel = stop
	id := executed("fine", "cancel")
	_, err = client.CompensatePlan(ctx, id, "")
	require.ErrorIs(t, err, context.Canceled, "a request that was given up refuses no step")
	require.Zero(t, value[int](t, pool, "select count(*)::int from weir.plan where compensates = $1", uuid.UUID(id)))
}
