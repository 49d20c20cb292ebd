package workers

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/riverqueue/river"

	"github.com/weirqueue/weir/internal/doorbell"
	"github.com/weirqueue/weir/internal/fencing"
	"github.com/weirqueue/weir/internal/plan"
	"github.com/weirqueue/weir/internal/receipts"
	"github.com/weirqueue/weir/jobs"
	"github.com/weirqueue/weir/workers/tool"
)

// PlanConfig configures how a process carries out approved plans. The zero value means the defaults.
type PlanConfig struct {
	// Queue is the River queue. Defaults to "weir_plan", as jobs.Config.PlanQueue does.
	Queue string
	// MaxWorkers is how many plans this process carries out at once. Defaults to 20; 1 to 10,000.
	MaxWorkers int
	// Lease is how long this process owns a plan without renewing. Defaults to 120 s; 1 s to 1 h.
	Lease time.Duration
	// StepTime is how long one step may take. Defaults to the lease; at most 24 h.
	StepTime time.Duration
}

func (c PlanConfig) withDefaults() PlanConfig {
	def(&c.Queue, doorbell.QueueOf(jobs.KindPlan))
	def(&c.MaxWorkers, 20)
	def(&c.Lease, 120*time.Second)
	def(&c.StepTime, c.Lease)
	return c
}

// planWorker carries out approved plans.
type planWorker struct {
	service *Service
	tools   map[string]tool.Tool // by what a plan needs
	kind    workKind
}

func (s *Service) addPlans(workers *river.Workers) error {
	w := &planWorker{service: s, tools: map[string]tool.Tool{}}
	w.kind = w.workKind(s.cfg.Plan)
	for _, t := range s.cfg.Tools {
		w.tools[t.Decl().Need()] = t
		w.kind.offers = append(w.kind.offers, t.Decl().Need())
	}
	return s.addKind(workers, &w.kind, jobs.MaxSteps*(w.kind.stepTime+w.kind.lease)+time.Minute)
}

func (w *planWorker) workKind(c PlanConfig) workKind {
	return workKind{
		kind: jobs.KindPlan, lease: c.Lease, stepTime: c.StepTime, do: w.run, judge: later,
		// A plan is never tried again; the pause is for what ends a try before a step has begun.
		backoff: Backoff{First: time.Second, Max: time.Second},
	}
}

var approvedDigest = fencing.Compile("approved digest", `select approved_digest from weir.plan where run_id = @run`)

// run goes on after the last receipt. What it carries out are the bytes that it has checked here, so that what runs is what
// was approved, whatever happens to the tables meanwhile.
func (w *planWorker) run(ctx context.Context, held *fencing.Held, c *fencing.Claimed) result {
	first := receipts.Step{Name: "plan", Effect: receipts.Transactional}
	refuse := func(code string, err error) result {
		return result{step: first, event: fencing.Refuse, outcome: receipts.Failed, code: code, err: err, notSent: true}
	}
	var approved []byte
	err := w.service.pool.QueryRow(ctx, approvedDigest.SQL, approvedDigest.Bind(fencing.Args{"run": c.Run})...).Scan(&approved)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return interrupted(first, "database", err)
	}
	frozen, err := plan.Decode(c.Payload, c.Digest)
	switch {
	case errors.Is(err, plan.ErrDigest), err == nil && !bytes.Equal(approved, c.Digest):
		return refuse("digest_mismatch", plan.ErrDigest)
	case err != nil:
		return refuse("payload_unreadable", err)
	}

	t := &try{service: w.service, kind: &w.kind, held: held, claimed: c, outputs: map[string]json.RawMessage{}}
	t.binding = Binding{name: jobs.KindPlan, decode: func(json.RawMessage) (any, error) { return nil, nil }}
	steps := make([]receipts.Step, len(frozen.Steps))
	for i, s := range frozen.Steps {
		bound, ok := w.tools[s.Need]
		if !ok || bound.Decl().Name() != s.Tool || string(bound.Decl().Effect()) != s.Effect {
			return refuse("tool_missing", fmt.Errorf("step %d needs the tool %s, which this process does not have as it was declared", i, s.Tool))
		}
		steps[i] = receipts.Step{Index: i, Name: s.Tool, Effect: receipts.Effect(s.Effect)}
		t.binding.steps = append(t.binding.steps, boundStep{Step: steps[i], impl: calls(bound, frozen.Owner, s.Args)})
	}
	return t.through(ctx, steps, func(ctx context.Context, i int, r receipts.Receipt) (result, bool) {
		if _, err := w.tools[frozen.Steps[i].Need].Decl().Check("args", frozen.Steps[i].Args); err != nil {
			return result{step: steps[i], event: fencing.Refuse, outcome: receipts.Failed, code: "arguments_refused", err: err, notSent: true}, true
		}
		open := r.Outcome == receipts.Started || r.Outcome == receipts.Unknown
		if open && steps[i].Effect == receipts.AtLeastOnce {
			// Without a key, and with nobody to ask, a person looks (PL-15): a plan is not worth a second letter.
			return result{
				step: steps[i], event: fencing.Refuse, outcome: receipts.Unknown, code: "outcome_unknown",
				err: errors.New("an earlier try began this step, and nobody knows what became of it"),
			}, true
		}
		return t.step(ctx, i, r)
	})
}

// calls makes a step's function of a tool's.
func calls(t tool.Tool, owner string, args json.RawMessage) stepImpl {
	transact, act, ask := t.Functions()
	call := func(in callIn) tool.Call {
		return tool.Call{Run: in.run, Step: in.step, Key: in.key, Owner: owner, Args: bytes.Clone(args)}
	}
	var impl stepImpl
	if transact != nil {
		impl.live = func(ctx context.Context, tx pgx.Tx, in callIn) (any, error) {
			out, err := transact(ctx, tx, call(in))
			return out, refusedByTool(err)
		}
		return impl
	}
	impl.act = func(ctx context.Context, in callIn) (any, error) {
		out, err := act(ctx, call(in))
		return out, refusedByTool(err)
	}
	if ask != nil {
		impl.ask = func(ctx context.Context, in callIn) (any, bool, error) {
			out, found, err := ask(ctx, call(in))
			return out, found, refusedByTool(err)
		}
	}
	return impl
}

func refusedByTool(err error) error {
	var refused *tool.RefusedError
	if errors.As(err, &refused) {
		return Refuse(refused.Code, refused.Err)
	}
	return err
}

// later keeps the plan alive where a try ended for nothing that a step did: the database was not there, or this process
// stopped itself because its lease might have been over. A step that failed ends the plan, and so does one whose outcome
// is not known.
func later(ctx context.Context, res result) result {
	cause := context.Cause(ctx)
	switch {
	case res.event == fencing.Snooze:
		res.outcome = "" // what is put off has no receipt: the plan goes on
	case res.event != fencing.FailTry:
	case res.unsettled:
		// The receipt is left as it is, started or ok: whoever comes next goes by it.
		res.event, res.outcome, res.delay = fencing.Snooze, "", time.Second
	case errors.Is(cause, ErrShutdown), errors.Is(cause, river.ErrJobCancelledRemotely):
		// conclude knows what these mean.
	case errors.Is(cause, fencing.ErrStepDeadline) && res.outcome != "" && !res.notBegun:
	case res.notBegun, cause != nil && res.notSent:
		res.event = fencing.Release // it takes back a `started` that may have been written
	case res.notSent && (res.outcome == "" || res.step.Effect == receipts.Transactional && connectionLost(res.err)):
		res.event, res.outcome, res.delay = fencing.Snooze, "", time.Second
	}
	return res
}

// connectionLost reports an error of the way to the database, not of what a step asked of it.
func connectionLost(err error) bool {
	var (
		pgErr   *pgconn.PgError
		connect *pgconn.ConnectError
		network net.Error
	)
	switch {
	case errors.As(err, &pgErr):
		return pgErr.SeverityUnlocalized == "FATAL" || fencing.IsReadOnly(err)
	case errors.As(err, &connect), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF), errors.Is(err, net.ErrClosed):
		return true
	}
	return errors.As(err, &network) && !errors.Is(err, context.DeadlineExceeded)
}
