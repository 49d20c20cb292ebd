package workers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/riverqueue/river"

	"github.com/weirqueue/weir/internal/fencing"
	"github.com/weirqueue/weir/internal/receipts"
	"github.com/weirqueue/weir/internal/reset"
	"github.com/weirqueue/weir/jobs"
	"github.com/weirqueue/weir/workers/branch"
)

// resetWorker carries out branch resets: issue once, then one poll a claim.
type resetWorker struct {
	service *Service
	kind    workKind
}

func (s *Service) addResets(workers *river.Workers) error {
	w := &resetWorker{service: s}
	cfg := s.cfg.Branches
	var offers []string
	for _, name := range slices.Sorted(maps.Keys(cfg.Providers)) {
		offers = append(offers, reset.Need(name))
	}
	w.kind = workKind{
		kind: jobs.KindBranchReset, lease: cfg.Lease, stepTime: cfg.StepTime, offers: offers,
		backoff: Backoff{First: cfg.PollFirst, Max: cfg.PollMax}, do: w.run,
	}
	return s.addKind(workers, &w.kind, 2*cfg.StepTime+2*cfg.Lease+time.Minute)
}

// resetTry is one claim of a reset.
type resetTry struct {
	*try
	cfg      BranchConfig
	payload  reset.Payload
	provider branch.Provider
	// issue is the receipt of the call as this claim found it.
	issue           receipts.Receipt
	cancelRequested bool
}

// issued is what the receipt of an issue holds: enough for any process to go on with.
type issued struct {
	Operations []reset.Operation `json:"operations"`
	// Since is when it was issued or adopted, by the database's clock.
	Since   time.Time `json:"since"`
	Adopted bool      `json:"adopted,omitempty"`
}

func (w *resetWorker) run(ctx context.Context, held *fencing.Held, c *fencing.Claimed) result {
	s := w.service
	payload, err := reset.Decode(c.Payload, c.Digest)
	if err != nil {
		return result{step: reset.Issue, event: fencing.Refuse, outcome: receipts.Failed, code: "payload_unreadable", err: err, notSent: true}
	}
	t := &resetTry{
		try: &try{service: s, kind: &w.kind, held: held, claimed: c, outputs: map[string]json.RawMessage{}},
		cfg: s.cfg.Branches, payload: payload,
		provider: s.cfg.Branches.Providers[payload.Provider], // there: the claim asked for it
	}
	list, err := receipts.List(ctx, s.pool, c.Run)
	if err == nil {
		t.cancelRequested, err = reset.CancelRequested(ctx, s.pool, c.Run)
	}
	if err != nil {
		return interrupted(reset.Issue, "database", err)
	}
	for _, r := range list {
		if r.Step.Index == reset.Issue.Index {
			t.issue = r
		}
	}
	res, _ := guarded(reset.Issue, func() (result, bool) {
		if t.issue.Outcome != receipts.OK {
			return t.begin(ctx), true
		}
		var is issued
		if err := json.Unmarshal(t.issue.Output, &is); err != nil {
			return t.ends("receipt_unreadable", err), true
		}
		return t.poll(ctx, is), true
	})
	if res.code == "panic" && t.issue.Outcome != "" && t.issue.Outcome != receipts.Failed {
		res.outcome = "" // what the receipt says of the issue stands
	}
	return res
}

func (t *resetTry) reset() branch.Reset {
	run, attempt, held, pool := t.claimed.Run, t.held.Attempt(), t.held, t.service.pool
	return branch.Reset{
		RunID: run.String(), Attempt: attempt, Branch: t.payload.Branch, Project: t.payload.Project,
		Target: t.payload.Target, Parent: t.payload.Parent, PointInTime: t.payload.PointInTime, RequestedAt: t.claimed.CreatedAt,
		StillMine: func(ctx context.Context) error {
			owned, err := reset.Owns(ctx, pool, run, attempt)
			switch {
			case err != nil:
				return err
			case !owned || !held.Alive():
				return fencing.ErrLeaseLost
			}
			return ctx.Err()
		},
	}
}

// begin issues the reset, or asks what became of it where somebody else may have.
func (t *resetTry) begin(ctx context.Context) result {
	never := t.issue.Outcome == "" || t.issue.Outcome == receipts.Failed
	if never && t.cancelRequested {
		return result{step: reset.Issue, event: fencing.Cancel, code: fencing.CodeCanceled, err: errors.New("canceled before it was issued"), notSent: true}
	}
	if never && t.issue.Outcome == receipts.Failed && t.claimed.Now.Sub(t.claimed.CreatedAt) > t.cfg.Limit {
		return result{
			step: reset.Issue, event: fencing.Refuse, outcome: receipts.Failed, code: "not_accepted", notSent: true,
			err: fmt.Errorf("the provider did not take the reset within %s", t.cfg.Limit),
		}
	}
	began, res, stop := t.start(ctx, boundStep{Step: reset.Issue})
	if stop {
		if res.code == fencing.CodeCanceled {
			res.event = fencing.Cancel
		}
		if !never {
			res.outcome = "" // somebody else's started or unknown stays
		}
		return res
	}
	if !began {
		return t.ask(ctx)
	}
	ops, err := t.provider.Issue(ctx, t.reset())
	if err != nil {
		return t.notIssued(err)
	}
	return t.adopted(ctx, ops, false)
}

// notIssued reads an error of Issue.
func (t *resetTry) notIssued(err error) result {
	res := result{step: reset.Issue, event: fencing.Snooze, outcome: receipts.Unknown, code: "issue_unanswered", err: err, delay: t.pause(0)}
	var e *branch.Error
	if !errors.As(err, &e) {
		return res
	}
	switch e.Class {
	case branch.ClassLater:
		res.outcome, res.notSent, res.delay = receipts.Failed, true, max(t.pause(t.claimed.Now.Sub(t.claimed.CreatedAt)), e.After)
	case branch.ClassRefused, branch.ClassNotApplied:
		res.outcome, res.notSent, res.event = receipts.Failed, true, fencing.Refuse
	case branch.ClassMisconfigured:
		res.outcome, res.notSent, res.delay = receipts.Failed, true, t.cfg.PollMax
		t.misconfigured(e.Code)
	case branch.ClassUnknown, branch.ClassGone:
		return res
	}
	res.code = e.Code
	return res
}

// ask finds out what became of an issue that somebody else began.
func (t *resetTry) ask(ctx context.Context) result {
	since := t.claimed.Now.Sub(t.issue.RecordedAt)
	ops, found, err := t.provider.Find(ctx, t.reset())
	var e *branch.Error
	switch {
	case err == nil && found:
		return t.adopted(ctx, ops, true)
	case errors.As(err, &e) && e.Class == branch.ClassNotApplied:
		return t.ends("not_applied", err)
	case err == nil && since >= t.cfg.AskWait:
		return t.ends("outcome_unknown", fmt.Errorf("an earlier try may have issued the reset, and the provider has not shown it within %s", t.cfg.AskWait))
	case err != nil && since >= t.cfg.Limit:
		return t.ends("outcome_unknown", fmt.Errorf("the provider could not be asked within %s: %w", t.cfg.Limit, err))
	case err == nil:
		return t.later("asking", errors.New("the provider does not know of the reset yet"), min(t.pause(since), t.cfg.AskWait-since+minRetry))
	}
	return t.failedLook(err, t.pause(since))
}

// ends fails the reset without a word about whether it was issued: its receipt stays as it is.
func (t *resetTry) ends(code string, err error) result {
	return result{step: reset.Issue, event: fencing.Refuse, code: code, err: err, notSent: true}
}

// later looks again after a pause; no failure is counted.
func (t *resetTry) later(code string, err error, after time.Duration) result {
	return result{step: reset.Issue, event: fencing.Snooze, code: code, err: err, delay: max(after, minRetry), notSent: true}
}

// failedLook is a look that did not work: it says nothing about the reset.
func (t *resetTry) failedLook(err error, after time.Duration) result {
	code := "provider"
	var e *branch.Error
	if errors.As(err, &e) {
		code = e.Code
		after = max(after, e.After)
		if e.Class == branch.ClassMisconfigured {
			t.misconfigured(e.Code)
		}
	}
	return t.later(code, err, after)
}

func (t *resetTry) misconfigured(code string) {
	ctx := context.Background()
	t.service.log.ErrorContext(ctx, "weir: a provider of branches refuses our settings; its resets wait", "provider", t.payload.Provider, "code", code)
	t.service.cfg.Observer.Observe(ctx, Misconfigured{Run: jobs.RunID(t.claimed.Run), Channel: t.payload.Provider, Code: clean(code, maxCode)})
}

// pause grows with the age of what is waited for, so that a quick reset is seen soon and a slow one costs little.
func (t *resetTry) pause(age time.Duration) time.Duration {
	return jitter(min(max(age/8, t.cfg.PollFirst), t.cfg.PollMax))
}
