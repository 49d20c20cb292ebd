package drill

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weirqueue/weir/jobs"
	"github.com/weirqueue/weir/workers"
	"github.com/weirqueue/weir/workers/tool"
)

const (
	planQueue = "weir_drill_plan"
	envPlans  = "plans"
)

// The tools of the drill's plans, and where they stand in one.
var (
	noteSchema = json.RawMessage(`{"type": "object", "additionalProperties": false, "required": ["ms"], "properties": {"ms": {"type": "integer", "minimum": 0}}}`)
	noteTool   = jobs.MustTool("drill_note", jobs.ToolConfig{Effect: jobs.Transactional, Schema: noteSchema})
	chargeTool = jobs.MustTool("drill_charge", jobs.ToolConfig{Effect: jobs.Idempotent, Schema: noteSchema})
	shipTool   = jobs.MustTool("drill_ship", jobs.ToolConfig{Effect: jobs.Reconciled, Schema: noteSchema})

	planSteps = []*jobs.Tool{noteTool, chargeTool, noteTool, shipTool, noteTool}
)

// plans is the subject of approved plans. Every other one is resumed when its worker dies; the rest is interrupted.
type plans struct {
	hosting
	rng *rand.Rand
}

func newPlans(seed uint64) *plans {
	return &plans{hosting: hosting{seed: seed + 2, env: envPlans}, rng: rand.New(rand.NewPCG(seed, 17))} // #nosec G404 -- a seed is to be repeated
}

func (*plans) Name() string { return "plan" }
func (*plans) Kind() string { return jobs.KindPlan }

// resumes says whether the n-th plan is resumed.
func resumes(n int64) bool { return n%2 == 0 }

// Enqueue proposes a plan and approves it. The approval of another digest must be refused, whatever is broken.
func (p *plans) Enqueue(ctx context.Context, tx pgx.Tx, client *jobs.Client, n int64) (jobs.RunID, error) {
	params := jobs.PlanParams{Title: fmt.Sprintf("drill %d", n), Risk: jobs.RiskLow, Owner: "drill", Resume: resumes(n)}
	for _, t := range planSteps {
		params.Steps = append(params.Steps, jobs.PlanStep{Tool: t.Name(), Args: json.RawMessage(fmt.Sprintf(`{"ms": %d}`, 50+p.rng.IntN(400)))})
	}
	res, err := client.ProposePlanTx(ctx, tx, params, nil)
	if err != nil {
		return jobs.RunID{}, err
	}
	id := res.Run.ID
	plan, err := client.GetPlanTx(ctx, tx, id)
	if err != nil {
		return jobs.RunID{}, err
	}
	if err := client.ApprovePlanTx(ctx, tx, id, "00"+plan.Digest[2:], "nobody"); !errors.Is(err, jobs.ErrDigest) && plan.Digest[:2] != "00" {
		return jobs.RunID{}, fmt.Errorf("the approval of another digest was not refused: %w", err)
	}
	return id, client.ApprovePlanTx(ctx, tx, id, plan.Digest, "the drill")
}

func (*plans) Work(cfg *workers.Config, env map[string]string, limits Limits) error {
	out := outside{url: env[envPlans], client: &http.Client{Timeout: limits.StepTime}, stepTime: limits.StepTime}
	post := func(path string) func(context.Context, tool.Call) (any, error) {
		return func(ctx context.Context, call tool.Call) (any, error) {
			if err := pauseCall(ctx, call); err != nil {
				return nil, workers.NotSent(err)
			}
			return out.do(ctx, http.MethodPost, path+"/"+call.Key)
		}
	}
	cfg.Plan = workers.PlanConfig{Queue: planQueue, MaxWorkers: limits.MaxWorkers, Lease: limits.Lease, StepTime: limits.StepTime}
	cfg.Tools = append(cfg.Tools,
		tool.Transactional(noteTool, noteEffect),
		tool.Outside(chargeTool, post("once")),
		tool.Reconciled(shipTool, post("each"), func(ctx context.Context, call tool.Call) (any, bool, error) {
			ref, err := out.do(ctx, http.MethodGet, "each/"+call.Key)
			if errors.Is(err, errNothing) {
				return nil, false, nil
			}
			return ref, err == nil, err
		}))
	return nil
}

// noteEffect pauses with its effect written and nothing committed. The attempt is the run's as the step sees it: that of a
// stale owner's effect differs from its receipt's.
func noteEffect(ctx context.Context, tx pgx.Tx, call tool.Call) (any, error) {
	_, err := tx.Exec(ctx, "insert into weir_drill.effect (run_id, step, attempt) select id, $2, attempt from weir.run where id = $1", call.Run, call.Step)
	if err != nil {
		return nil, err
	}
	return call.Step, pauseCall(ctx, call)
}

func pauseCall(ctx context.Context, call tool.Call) error {
	var args struct {
		MS int `json:"ms"`
	}
	if err := json.Unmarshal(call.Args, &args); err != nil {
		return err
	}
	return pauseFor(ctx, args.MS)
}

// Check compares the receipts with the effects, and the ends of plans with what may end one.
func (p *plans) Check(_ context.Context, _ *pgxpool.Pool, records *Records) (Effects, error) {
	var all Effects
	late := 0
	for _, run := range records.Runs(jobs.KindPlan) {
		explained := !resumes(run.N) && len(run.takeovers) > 0
		stopped := false
		for i, t := range planSteps {
			outcome := run.Receipts[i]
			if stopped && outcome != "" {
				all.Faults = append(all.Faults, fmt.Sprintf("run %s: step %d is %q behind a step that is not ok", run.ID, i, outcome))
			}
			stopped = stopped || outcome != "ok"
			key := fmt.Sprintf("%s:%d", run.ID, i)
			switch t {
			case noteTool:
				all.add(run.inDatabase(i))
				if outcome == "failed" {
					late++
				}
			case chargeTool:
				all.add(run.outside(i, p.provider.times("once/"+key), 1))
			case shipTool:
				all.add(run.outside(i, p.provider.times("each/"+key), 1))
			}
			// Only the provider's no, an outcome that nobody knows, or a step that took too long, ends a plan otherwise.
			explained = explained || outcome == "failed" || outcome == "unknown"
		}
		all.Faults = append(all.Faults, run.unexplained(explained)...)
		if !resumes(run.N) && len(run.takeovers) > 0 && (run.succeeded() || len(run.takeovers) > 1) {
			all.Faults = append(all.Faults, fmt.Sprintf("run %s: its worker vanished, and it went on without being one that is resumed", run.ID))
		}
	}
	// A step in the database fails when a fault holds it up beyond its time, and for nothing else. That is rare.
	if allowed := 2 + len(records.Runs(jobs.KindPlan))/10; late > allowed {
		all.Faults = append(all.Faults, fmt.Sprintf("%d steps in the database failed; faults hold up at most %d", late, allowed))
	}
	return all, nil
}

// Prove says which of both ways was not seen.
func (*plans) Prove(records *Records) (faults []string) {
	interrupted, resumed := 0, 0
	for _, run := range records.Runs(jobs.KindPlan) {
		switch {
		case len(run.takeovers) == 0:
		case !resumes(run.N):
			interrupted++
		case run.succeeded():
			resumed++
		}
	}
	if interrupted == 0 {
		faults = append(faults, "no plan was interrupted")
	}
	if resumed == 0 {
		faults = append(faults, "no plan was resumed and carried out")
	}
	return faults
}
