package workers_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/internal/postgres/pgtest"
	"github.com/weirqueue/weir/jobs"
	"github.com/weirqueue/weir/workers"
	"github.com/weirqueue/weir/workers/tool"
)

const planTable = `
create table plan_effect (run uuid, step int, pid int, args json)`

// How a call of the tool mark behaves: it holds when the step is begun for the first time, before or after its effect.
var markDecl = jobs.MustTool("mark", jobs.ToolConfig{Effect: jobs.Transactional, Schema: json.RawMessage(
	`{"type": "object", "properties": {"n": {"type": "integer"}, "do": {"type": "string"}}, "additionalProperties": false}`)})

var callDecl = jobs.MustTool("call", jobs.ToolConfig{Effect: jobs.Idempotent, Schema: json.RawMessage(`{"type": "object"}`)})

var postDecl = jobs.MustTool("post", jobs.ToolConfig{Effect: jobs.Reconciled, Schema: json.RawMessage(`{"type": "object"}`)})

type markArgs struct {
	N  json.Number `json:"n"`
	Do string      `json:"do"`
}

// planTools are tools whose effect is a row. own is a pool beside the one that is tested.
func planTools(own *pgxpool.Pool) []tool.Tool {
	hold := func(call tool.Call) {
		background := context.Background()
		var begun int
		_, _ = own.Exec(background, "insert into acts (pid, run, act) values ($1, $2, $3)", os.Getpid(), call.Run.String(), fmt.Sprint("step ", call.Step))
		_ = own.QueryRow(background, "select count(*)::int from acts where run = $1 and act = $2", call.Run.String(), fmt.Sprint("step ", call.Step)).Scan(&begun)
		_, _ = own.Exec(background, "insert into acts (pid, run, act) values ($1, $2, 'begin')", os.Getpid(), call.Run.String())
		for open := begun > 1; !open; <-time.After(20 * time.Millisecond) {
			_ = own.QueryRow(background, "select exists (select from gate where open)").Scan(&open)
		}
	}
	mark := func(ctx context.Context, tx pgx.Tx, call tool.Call) (any, error) {
		var a markArgs
		if err := json.Unmarshal(call.Args, &a); err != nil {
			return nil, err
		}
		if a.Do == "hold before" {
			hold(call)
		}
		if _, err := tx.Exec(ctx, "insert into plan_effect values ($1, $2, $3, $4)", call.Run.String(), call.Step, os.Getpid(), string(call.Args)); err != nil {
			return nil, err
		}
		switch a.Do {
		case "hold after":
			hold(call)
		case "slow":
			time.Sleep(300 * time.Millisecond)
		case "fail":
			return nil, errors.New("the printer is on fire")
		case "refuse":
			return nil, tool.Refuse("no_paper", errors.New("there is none"))
		case "panic":
			panic("oh")
		case "nan":
			return func() {}, nil
		case "nul":
			return "a\x00b", nil
		case "large":
			return strings.Repeat("x", 2<<20), nil
		case "swallow":
			_, _ = tx.Exec(ctx, "select 1/0")
		}
		return json.RawMessage(call.Args), nil
	}
	outside := func(ctx context.Context, call tool.Call) (any, error) {
		_, err := own.Exec(ctx, "insert into plan_effect values ($1, $2, $3, '{}')", call.Run.String(), call.Step, os.Getpid())
		hold(call)
		return call.Key, err
	}
	return []tool.Tool{
		tool.Transactional(markDecl, mark), tool.Outside(callDecl, outside),
		tool.Reconciled(postDecl, outside, func(context.Context, tool.Call) (any, bool, error) { return nil, false, nil }),
	}
}

func planClient(t testing.TB, pool *pgxpool.Pool) *jobs.Client {
	t.Helper()
	client, err := jobs.NewClient(pool, &jobs.Config{Tools: []*jobs.Tool{markDecl, callDecl, postDecl}})
	require.NoError(t, err)
	return client
}

func planConfig(own *pgxpool.Pool) *workers.Config {
	return quickConfig(&fake{}, func(c *workers.Config) {
		c.Plan.Lease = time.Minute // no test may lose a lease by being slow
		c.Tools = planTools(own)
	})
}

// proposeMarks proposes a plan of calls of mark, with what each does.
func proposeMarks(t testing.TB, client *jobs.Client, resume bool, do ...string) jobs.RunID {
	t.Helper()
	p := jobs.PlanParams{Title: "Mark", Risk: jobs.RiskLow, Owner: "ada", Resume: resume}
	for i, d := range do {
		step := jobs.PlanStep{Tool: "mark", Args: json.RawMessage(fmt.Sprintf(`{"n": %d, "do": %q}`, i, d))}
		if d == "call" || d == "post" {
			step = jobs.PlanStep{Tool: d, Args: json.RawMessage(`{}`)}
		}
		p.Steps = append(p.Steps, step)
	}
	res, err := client.ProposePlan(t.Context(), p, nil)
	require.NoError(t, err)
	return res.Run.ID
}

func approve(t testing.TB, client *jobs.Client, id jobs.RunID) {
	t.Helper()
	p, err := client.GetPlan(t.Context(), id)
	require.NoError(t, err)
	_, err = client.ApprovePlan(t.Context(), id, p.Digest, "grace")
	require.NoError(t, err)
}

func untilPlan(t testing.TB, client *jobs.Client, id jobs.RunID) *jobs.Plan {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	p, err := client.WaitPlan(ctx, id)
	require.NoError(t, err)
	return p
}

func planOutcomes(p *jobs.Plan) (out []string) {
	for _, s := range p.Steps {
		out = append(out, s.Outcome)
	}
	return out
}

// effectsOf are the effects of a plan that committed, as its steps.
func effectsOf(t testing.TB, pool *pgxpool.Pool, id jobs.RunID) []int32 {
	t.Helper()
	return value[[]int32](t, pool, "select coalesce(array_agg(step order by step), '{}') from plan_effect where run = $1", uuid.UUID(id))
}

func planPool(t *testing.T) (string, *pgxpool.Pool, *jobs.Client) {
	t.Helper()
	url := pgtest.URL(t)
	pool := pgtest.Connect(t, url)
	execSQL(t, pool, processTables)
	return url, pool, planClient(t, pool)
}

// Steps are carried out once, in their order, each with its receipt; numbers keep every digit from the proposal to the
// receipt. A plan that was carried out answers from its receipts.
func TestPlan_CarriedOutInOrderOnce(t *testing.T) {
	t.Parallel()
	_, pool, client := planPool(t)
	start(t, pool, planConfig(pool))
	res, err := client.ProposePlan(t.Context(), jobs.PlanParams{Title: "Numbers", Risk: jobs.RiskLow, Owner: "ada", Steps: []jobs.PlanStep{
		{Tool: "mark", Args: json.RawMessage(`{"n": 9007199254740993123}`)}, {Tool: "mark", Args: json.RawMessage(`{}`)}, {Tool: "mark", Args: json.RawMessage(`{"n":2}`)},
	}}, nil)
	require.NoError(t, err)
	approve(t, client, res.Run.ID)
	p := untilPlan(t, client, res.Run.ID)
	require.Equal(t, jobs.StatusExecuted, p.Run.Status, p.Run.ErrorMessage)
	require.Equal(t, []string{"ok", "ok", "ok"}, planOutcomes(p))
	require.JSONEq(t, `{"n":9007199254740993123}`, string(p.Steps[0].Receipt.Output))
	require.Contains(t, string(p.Steps[0].Receipt.Output), "9007199254740993123")
	require.Equal(t, []int32{0, 1, 2}, effectsOf(t, pool, p.Run.ID))
	approve(t, client, p.Run.ID)
	require.Equal(t, []int32{0, 1, 2}, effectsOf(t, pool, p.Run.ID))
}

// PL-09, PL-13: a step that is not ok ends the plan at its position, with a receipt that says so and without its effect;
// the steps before it stay, and those after it are visibly not run.
func TestPlan_StopsAtTheFirstStepThatIsNotOK(t *testing.T) {
	t.Parallel()
	_, pool, client := planPool(t)
	start(t, pool, planConfig(pool))
	for do, code := range map[string]string{
		"fail": "error", "refuse": "no_paper", "panic": "panic", "nan": "output_unstorable", "nul": "output_unstorable", "large": "output_unstorable",
		"swallow": "error",
	} {
		id := proposeMarks(t, client, false, "", do, "")
		approve(t, client, id)
		p := untilPlan(t, client, id)
		require.Equal(t, []any{jobs.StatusFailed, code}, []any{p.Run.Status, p.Run.ErrorCode}, "%s: %s", do, p.Run.ErrorMessage)
		require.Equal(t, []string{"ok", "failed", jobs.OutcomeNotRun}, planOutcomes(p), do)
		require.Equal(t, []int32{0}, effectsOf(t, pool, id), do)
	}
}

// PL-05: what runs is what was approved: bytes that were changed after the approval, with or without their digest, are
// refused at the claim, and nothing of them happens.
func TestPlan_WhatWasChangedAfterTheApprovalNeverRuns(t *testing.T) {
	t.Parallel()
	_, pool, client := planPool(t)
	execSQL(t, pool, "alter table weir.payload disable trigger all")
	var ids []jobs.RunID
	for _, change := range []string{
		"body = convert_to(replace(convert_from(body, 'UTF8'), '\"n\":0', '\"n\":7'), 'UTF8')",
		"body = convert_to(replace(convert_from(body, 'UTF8'), '\"n\":0', '\"n\":7'), 'UTF8'), digest = sha256(convert_to(replace(convert_from(body, 'UTF8'), '\"n\":0', '\"n\":7'), 'UTF8'))",
	} {
		id := proposeMarks(t, client, false, "", "")
		approve(t, client, id)
		execSQL(t, pool, "update weir.payload set "+change+" where run_id = $1", uuid.UUID(id))
		ids = append(ids, id)
	}
	start(t, pool, planConfig(pool))
	for _, id := range ids {
		p := untilPlan(t, client, id)
		require.Equal(t, []any{jobs.StatusFailed, "digest_mismatch"}, []any{p.Run.Status, p.Run.ErrorCode})
		require.Empty(t, effectsOf(t, pool, id))
	}
	// The schema refuses the change in the first place.
	execSQL(t, pool, "alter table weir.payload enable trigger all")
	_, err := pool.Exec(t.Context(), "update weir.payload set body = 'x' where run_id = $1", uuid.UUID(ids[0]))
	require.ErrorContains(t, err, "never changes")
}

// PL-01, PL-07: twenty doorbells in three processes carry a plan out once.
func TestPlan_TwentyExecutorsOneExecution(t *testing.T) {
	t.Parallel()
	_, pool, client := planPool(t)
	var ids []jobs.RunID
	for range 3 {
		id := proposeMarks(t, client, false, "slow", "slow", "")
		approve(t, client, id)
		execSQL(t, pool, `insert into river_job (args, kind, max_attempts, priority, queue, state, scheduled_at)
			select args, kind, max_attempts, priority, queue, 'available', scheduled_at from river_job, generate_series(1, 19) where args->>'run_id' = $1`, id.String())
		ids = append(ids, id)
	}
	for range 3 {
		start(t, pool, planConfig(pool))
	}
	for _, id := range ids {
		p := untilPlan(t, client, id)
		require.Equal(t, []any{jobs.StatusExecuted, int64(1)}, []any{p.Run.Status, p.Run.Attempt})
		require.Equal(t, []int32{0, 1, 2}, effectsOf(t, pool, id))
	}
}

// A member without the tool leaves the plan to others, and says why it waits.
func TestPlan_MemberWithoutTheToolLeavesIt(t *testing.T) {
	t.Parallel()
	_, pool, client := planPool(t)
	cfg := planConfig(pool)
	cfg.Tools = cfg.Tools[1:]
	start(t, pool, cfg)
	id := proposeMarks(t, client, false, "")
	approve(t, client, id)
	run := until(t, client, id, "blocked", func(r *jobs.Run) bool { return r.BlockedReason != "" })
	require.Contains(t, run.BlockedReason, "tool:mark")
	require.Equal(t, jobs.StatusApproved, run.Status)
	// Who gets the doorbell each time is chance: one of four, and the pauses grow.
	for range 3 {
		start(t, pool, planConfig(pool))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	p, err := client.WaitPlan(ctx, id)
	require.NoError(t, err)
	require.Equal(t, jobs.StatusExecuted, p.Run.Status)
}

// kill -9 inside each step, before and after its effect: a plan that is not to be resumed is interrupted, the steps that
// committed stay; one that is resumed goes on after its last receipt, and each effect is there once.
func TestPlan_KilledInsideEachStep(t *testing.T) {
	t.Parallel()
	url, pool, client := planPool(t)
	for _, resume := range []bool{false, true} {
		for at := range 3 {
			for _, when := range []string{"hold before", "hold after"} {
				name := fmt.Sprint("resume ", resume, ", ", when, " ", at)
				do := []string{"", "", ""}
				do[at] = when
				id := proposeMarks(t, client, resume, do...)
				approve(t, client, id)
				c := spawn(t, url, options{Lease: 2 * time.Second})
				begun(t, pool, id, 1)
				c.kill(t)
				want := []string{"ok", "ok", "ok"}
				status, code := jobs.StatusExecuted, ""
				if !resume {
					status, code = jobs.StatusFailed, "interrupted"
					for i := at; i < 3; i++ {
						want[i] = jobs.OutcomeNotRun
					}
				} else {
					c = spawn(t, url, options{Lease: 2 * time.Second})
				}
				p := untilPlan(t, client, id)
				_ = c.Process.Kill() // one process at a time: the machine may be a small one
				<-c.exited
				require.Equal(t, []any{status, code}, []any{p.Run.Status, p.Run.ErrorCode}, name)
				require.Equal(t, want, planOutcomes(p), name)
				var effects []int32
				for i, o := range want {
					if o == "ok" {
						effects = append(effects, int32(i))
					}
				}
				require.Equal(t, append([]int32{}, effects...), effectsOf(t, pool, id), name)
			}
		}
	}
}

// PL-11, PL-12: a worker that is frozen past its lease is healed by the next read, and what it undoes meanwhile is decided;
// when it wakes up it changes nothing.
func TestPlan_FrozenOwnerChangesNothing(t *testing.T) {
	t.Parallel()
	url, pool, client := planPool(t)
	frozen := spawn(t, url, options{Lease: 2 * time.Second})
	id := proposeMarks(t, client, false, "", "hold after", "")
	approve(t, client, id)
	begun(t, pool, id, 1)
	_, err := client.CompensatePlan(t.Context(), id, "grace")
	require.ErrorIs(t, err, jobs.ErrState, "nothing is undone under a live owner")
	frozen.signal(t, syscall.SIGSTOP)
	p := untilPlan(t, client, id) // no other worker is there: the reader heals
	require.Equal(t, []any{jobs.StatusFailed, "interrupted"}, []any{p.Run.Status, p.Run.ErrorCode})
	execSQL(t, pool, "insert into gate values (true)")
	frozen.signal(t, syscall.SIGCONT)
	require.NoError(t, eventually(func() bool { return observedBy(t, pool, "lease_lost") >= 1 }))
	again, err := client.GetPlan(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, p, again)
	require.Equal(t, []string{"ok", jobs.OutcomeNotRun, jobs.OutcomeNotRun}, planOutcomes(again))
	require.Equal(t, []int32{0}, effectsOf(t, pool, id))
}

// R5: a deploy hands a plan over between two steps. It is not an interruption.
func TestPlan_HandedOverAtADeploy(t *testing.T) {
	t.Parallel()
	url, pool, client := planPool(t)
	old := spawn(t, url, options{Lease: 20 * time.Second, Grace: 10 * time.Second})
	id := proposeMarks(t, client, false, "hold after", "", "")
	approve(t, client, id)
	begun(t, pool, id, 1)
	old.signal(t, syscall.SIGTERM)
	time.Sleep(300 * time.Millisecond) // the signal has arrived, and the step goes on within its grace
	execSQL(t, pool, "insert into gate values (true)")
	<-old.exited
	require.Equal(t, jobs.StatusExecuting, get(t, client, id).Status)
	spawn(t, url, options{Lease: 20 * time.Second})
	p := untilPlan(t, client, id)
	require.Equal(t, []any{jobs.StatusExecuted, 0}, []any{p.Run.Status, p.Run.Reaps})
	require.Equal(t, []int32{0, 1, 2}, effectsOf(t, pool, id))
	require.Equal(t, []string{"released"}, hows(t, client, id))
}

// PL-15: kill -9 after an effect outside and before its receipt. Its `started` was committed before: an idempotent one is
// issued again, a reconciled one ends the plan with an outcome that nobody knows, and without resume both do.
func TestPlan_KilledAfterAnOutsideEffect(t *testing.T) {
	t.Parallel()
	url, pool, client := planPool(t)
	for _, c := range []struct {
		do      string
		resume  bool
		status  jobs.Status
		code    string
		outcome string
		effects int
	}{
		{"call", false, jobs.StatusFailed, "interrupted", "unknown", 1},
		{"call", true, jobs.StatusExecuted, "", "ok", 2},
		{"post", true, jobs.StatusFailed, "outcome_unknown", "unknown", 1},
	} {
		id := proposeMarks(t, client, c.resume, "", c.do)
		approve(t, client, id)
		w := spawn(t, url, options{Lease: 2 * time.Second})
		begun(t, pool, id, 1)
		w.kill(t)
		if c.resume {
			w = spawn(t, url, options{Lease: 2 * time.Second})
		}
		p := untilPlan(t, client, id)
		_ = w.Process.Kill()
		<-w.exited
		require.Equal(t, []any{c.status, c.code}, []any{p.Run.Status, p.Run.ErrorCode}, c)
		require.Equal(t, c.outcome, p.Steps[1].Outcome, c)
		require.Len(t, effectsOf(t, pool, id), c.effects+1, c)
	}
}

// A plan that is canceled stays so, whatever its owner does.
func TestPlan_CancelUnderItsOwner(t *testing.T) {
	t.Parallel()
	_, pool, client := planPool(t)
	start(t, pool, planConfig(pool))
	id := proposeMarks(t, client, false, "", "hold after", "")
	approve(t, client, id)
	begun(t, pool, id, 1)
	require.NoError(t, client.CancelPlan(t.Context(), id))
	execSQL(t, pool, "insert into gate values (true)")
	p := untilPlan(t, client, id)
	require.Equal(t, []any{jobs.StatusFailed, "canceled"}, []any{p.Run.Status, p.Run.ErrorCode})
	require.NoError(t, client.CancelPlan(t.Context(), id), "again")
	require.Equal(t, []int32{0}, effectsOf(t, pool, id))
}
