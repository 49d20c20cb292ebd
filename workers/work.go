package workers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"

	"github.com/weirqueue/weir/internal/fencing"
	"github.com/weirqueue/weir/internal/receipts"
	"github.com/weirqueue/weir/jobs"
)

// work carries out one doorbell of a run: claim, act, write how it ended. What it returns is for River only; the run
// row is the truth, so a stale owner may return anything.
//
// next receives when River should ring again, for NextRetry.
func (s *Service) work(ctx context.Context, job *rivertype.JobRow, run uuid.UUID, next *time.Duration, k *workKind) error {
	s.active.enter()
	defer s.active.leave()
	if s.stopping.Load() || s.lastGood.Load() == 0 {
		s.notClaimed(ctx, run, k, "stopping")
		return river.JobSnooze(jitter(time.Second))
	}

	req := s.claimRequest(job, run, k)
	sent := time.Now()
	claimed, err := k.writes.claims.Do(ctx, req)
	var standing fencing.Standing
	if err == nil && claimed == nil {
		standing, err = fencing.StandingOf(ctx, s.pool, run, k.offers...)
	}
	if err == nil && claimed == nil && standing.Reason == fencing.ReasonSuspect && s.takeSuspectSlot() {
		defer s.giveSuspectSlot()
		req.Suspect, sent = true, time.Now()
		claimed, err = k.writes.claims.Do(ctx, req)
	}
	if err != nil {
		return s.claimFailed(ctx, run, k, err)
	}
	if claimed == nil {
		return s.answerUnclaimed(ctx, job, run, k, standing)
	}

	return s.carryOut(ctx, claimed, k, sent).answer(next)
}

func (s *Service) claimRequest(job *rivertype.JobRow, run uuid.UUID, k *workKind) fencing.ClaimRequest {
	req := fencing.ClaimRequest{
		Run: run, Kind: k.kind, Owner: s.owner, Doorbell: job.ID, Lease: k.lease, StepTime: k.stepTime, Offers: k.offers,
	}
	if job.AttemptedAt != nil {
		req.DoorbellAttemptedAt = *job.AttemptedAt
	}
	return req
}

// carryOut keeps a run that was claimed by a statement sent then, calls its handler and writes how the try ended.
func (s *Service) carryOut(ctx context.Context, claimed *fencing.Claimed, k *workKind, sent time.Time) tried {
	runCtx, held := s.keeper.Hold(ctx, claimed.Run, claimed.Attempt, k.lease, k.stepTime, sent)
	defer held.Drop()
	s.cfg.Observer.Observe(ctx, RunClaimed{
		Run: jobs.RunID(claimed.Run), Kind: k.kind, Attempt: claimed.Attempt, Reaps: claimed.Reaps, Failures: claimed.Failures,
		Waited: claimed.Now.Sub(claimed.CreatedAt),
	})

	began := time.Now()
	result := s.actAndJudge(runCtx, held, claimed, k)
	return s.conclude(ctx, runCtx, held, claimed, k, result, began)
}

// tried is how a try ended.
type tried struct {
	run uuid.UUID
	// written says that this process wrote how it ended; otherwise the run is left, or somebody else's.
	written bool
	ended   receipts.Ended
	result  result
	// canceledInRiver says that it ended because somebody cancelled its River job.
	canceledInRiver bool
}

// workKind is how this process works the runs of one kind.
type workKind struct {
	kind            string
	lease, stepTime time.Duration
	backoff         Backoff
	// offers is what this process has of what runs need.
	offers []string
	// start is the outside step whose `started` receipt the claim commits, for a run that has no other; nil where the steps
	// do that themselves.
	start *receipts.Step
	// writes carries out what comes at the same time together.
	writes *writesOf
	// ringsRetries: the job that rang does not come back for this run, so what gives the run away rings for it.
	ringsRetries bool
	do           func(ctx context.Context, held *fencing.Held, c *fencing.Claimed) result
	// judge says what the end of a try means for a kind that is not tried again; nil takes it as it is.
	judge func(ctx context.Context, res result) result
}

// begun is the step that the claim has started, if it has.
func (k *workKind) begun(c *fencing.Claimed) (step receipts.Step, ok bool) {
	if k.start == nil || c.ManySteps {
		return receipts.Step{}, false
	}
	return *k.start, true
}

// result is what the handler's outcome means for the run.
type result struct {
	// step is the one that the outcome is about.
	step        receipts.Step
	event       fencing.Event
	outcome     receipts.Outcome
	externalRef string
	code        string
	err         error
	delay       time.Duration
	// notSent says that nothing reached the outside, so the run can be handed over at once.
	notSent bool
	// notBegun says that the step was not even begun, whatever was written of it.
	notBegun bool
	// unsettled says that the step was done, and that this could not be written for as long as the lease may have lasted.
	unsettled bool
	// label is the channel, for observers.
	label string
	// ended is set when the step's own transaction has ended the run already.
	ended *receipts.Ended
	// stepOutput and output are the step's and the run's.
	stepOutput, output json.RawMessage
}

func (s *Service) actAndJudge(ctx context.Context, held *fencing.Held, c *fencing.Claimed, k *workKind) result {
	res := s.act(ctx, held, c, k)
	if step, begun := k.begun(c); begun && res.event != fencing.Succeed {
		before := receipts.Receipt{Outcome: receipts.Outcome(c.Before)}
		if res.step.Effect == "" {
			res.step = step
		}
		if mayHaveHappened(boundStep{Step: res.step}, before, res) {
			// What an earlier try may have done is not undone by one that surely did not, or that did not even begin.
			res.outcome, res.notSent = receipts.Unknown, false
		}
	}
	if k.judge != nil {
		res = k.judge(ctx, res)
	}
	return res
}

// act calls the handler, unless the lease may be over by now: a process that was frozen after the claim must not begin.
func (s *Service) act(ctx context.Context, held *fencing.Held, c *fencing.Claimed, k *workKind) (res result) {
	step, begun := k.begun(c)
	defer func() {
		if p := recover(); p != nil {
			res = result{event: fencing.FailTry, code: "panic", err: fmt.Errorf("panic: %v\n%s", p, debug.Stack())}
			if begun {
				res.step, res.outcome = step, receipts.Unknown
			}
		}
	}()
	if !held.Alive() || ctx.Err() != nil {
		if begun {
			return notBegun(step, "not_begun", context.Cause(ctx))
		}
		return interrupted(step, "not_begun", context.Cause(ctx))
	}
	return k.do(ctx, held, c)
}

// conclude writes how the try ended.
func (s *Service) conclude(ctx, runCtx context.Context, held *fencing.Held, c *fencing.Claimed, k *workKind, res result, began time.Time) tried {
	cause := context.Cause(runCtx)
	t := tried{run: c.Run}
	res.code = clean(res.code, maxCode) // a channel's own: River and metrics see it too
	if res.code == "" && res.event != fencing.Succeed {
		res.code = "no_code"
	}
	if res.event == fencing.FailTry && res.delay == 0 {
		res.delay = k.backoff.Delay(c.Failures + 1)
	}
	switch {
	case res.ended != nil:
	case res.event == fencing.Succeed || res.event == fencing.Refuse || cause == nil:
	case errors.Is(cause, ErrShutdown):
		if res.event == fencing.FailTry {
			if !res.notSent {
				// Its `started` stays open: whoever comes next must know that it may have happened (R5).
				s.cfg.Observer.Observe(ctx, LeaseLeft{Run: jobs.RunID(c.Run), Kind: c.Kind, Attempt: held.Attempt()})
				return t
			}
			res.event = fencing.Release
		}
	case errors.Is(cause, river.ErrJobCancelledRemotely):
		done := false
		if t.canceledInRiver, done = s.requestCancel(ctx, c.Run); done {
			t.written, t.ended.Terminal = true, true
			return t
		}
	case errors.Is(cause, fencing.ErrStepDeadline) && res.event == fencing.FailTry:
		res.code = fencing.CodeStepDeadline
	}

	// From here on the run is given away: the caller's context must not stop that.
	ctx = context.WithoutCancel(ctx)
	if res.ended != nil {
		t.ended = *res.ended
	} else {
		var err error
		if t.ended, err = s.write(ctx, held, c, k, res); err != nil {
			s.lost(ctx, held, c, res, err)
			return t
		}
	}
	t.written, t.result = true, res
	s.cfg.Observer.Observe(ctx, TryEnded{
		Run: jobs.RunID(c.Run), Kind: c.Kind, Channel: res.label, Attempt: c.Attempt, Status: jobs.Status(t.ended.Status),
		How: hows[res.event], Code: res.code, Took: time.Since(began),
	})
	if status := jobs.Status(t.ended.Status); status == jobs.StatusFailed || status == jobs.StatusDead {
		s.log.WarnContext(ctx, "weir: a run has ended without success", "run", c.Run, "kind", c.Kind, "status", status, "code", res.code)
	}
	return t
}

var hows = map[fencing.Event]string{
	fencing.Succeed: "succeeded", fencing.Refuse: "refused", fencing.FailTry: "failed", fencing.Snooze: "snoozed",
	fencing.Release: "released", fencing.Cancel: "canceled",
}

// tryError is what River shows of a failed try: codes only. The text of an error may hold personal data, and it may
// hold bytes that stop River's whole completion batch; it is on the run's page.
type tryError struct {
	run  uuid.UUID
	code string
}

func (e *tryError) Error() string {
	return fmt.Sprintf("%s (see run %s)", e.code, e.run)
}

// minRetry keeps River from falling back to its own retry policy, which it does for a time that has passed.
const minRetry = 100 * time.Millisecond

// answer translates it for River.
func (t tried) answer(next *time.Duration) error {
	if !t.written {
		return nil
	}
	failure := &tryError{run: t.run, code: t.result.code}
	*next = max(t.ended.DueIn, minRetry)
	switch {
	case t.ended.Terminal && t.canceledInRiver:
		return river.JobCancel(&tryError{run: t.run, code: fencing.CodeCanceledInRiver})
	case t.result.event == fencing.Succeed, t.result.event == fencing.Release:
		return nil
	case t.ended.Terminal:
		return river.JobCancel(failure)
	case t.result.event == fencing.Snooze:
		return river.JobSnooze(*next)
	default:
		return failure
	}
}

// claimFailed answers River when PostgreSQL did not. A claim whose answer was lost may have been made: then nobody
// works the run until its lease has run out, which the reaper sees; the doorbell has done its part.
func (s *Service) claimFailed(ctx context.Context, run uuid.UUID, k *workKind, err error) error {
	dropReadOnly(s.pool, err)
	if inDoubt(err) {
		s.notClaimed(ctx, run, k, "unanswered")
		s.log.WarnContext(ctx, "weir: a claim was not answered", "run", run, "error", err)
		return nil
	}
	s.notClaimed(ctx, run, k, "database")
	s.log.WarnContext(ctx, "weir: a claim was refused by the database", "run", run, "error", err)
	return river.JobSnooze(jitter(2 * time.Second))
}

var reasons = map[fencing.Reason]string{
	fencing.ReasonUnknown: "unknown", fencing.ReasonTerminal: "terminal", fencing.ReasonOwned: "owned",
	fencing.ReasonNotDue: "not_due", fencing.ReasonSuspect: "suspect", fencing.ReasonWaits: "waits", fencing.ReasonRaced: "raced",
	fencing.ReasonBlocked: "blocked",
}

func (s *Service) answerUnclaimed(ctx context.Context, job *rivertype.JobRow, run uuid.UUID, k *workKind, st fencing.Standing) error {
	s.notClaimed(ctx, run, k, reasons[st.Reason])
	switch st.Reason {
	case fencing.ReasonBlocked:
		return s.block(ctx, job, run, "this process lacks "+strings.Join(st.Lacks, ", "))
	case fencing.ReasonNotDue:
		return river.JobSnooze(max(st.DueIn, minRetry))
	case fencing.ReasonSuspect, fencing.ReasonRaced:
		return river.JobSnooze(jitter(time.Second))
	case fencing.ReasonUnknown, fencing.ReasonTerminal, fencing.ReasonOwned, fencing.ReasonWaits:
	}
	return nil
}

func (s *Service) notClaimed(ctx context.Context, run uuid.UUID, k *workKind, reason string) {
	s.cfg.Observer.Observe(ctx, RunNotClaimed{Run: jobs.RunID(run), Kind: k.kind, Reason: reason})
}

func (s *Service) takeSuspectSlot() bool {
	select {
	case s.suspects <- struct{}{}:
		return true
	default:
		return false
	}
}

func (s *Service) giveSuspectSlot() { <-s.suspects }

// jitter spreads what would otherwise come back all at once: half of d to one and a half.
func jitter(d time.Duration) time.Duration { return d/2 + rand.N(d) }
