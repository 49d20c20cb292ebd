package workerstest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weirqueue/weir/internal/fencing"
	"github.com/weirqueue/weir/jobs"
	"github.com/weirqueue/weir/workers"
)

// scenario is something that may happen to a run.
type scenario struct {
	name string
	play func(ctx context.Context, x *scene) error
}

func (s *suite) scenarios() []scenario {
	list := []scenario{
		{"nothing happens", func(ctx context.Context, x *scene) error { return x.nothing(ctx) }},
		{"duplicate doorbells", func(ctx context.Context, x *scene) error { return x.duplicateDoorbells(ctx) }},
		{"retry of a finished run", func(ctx context.Context, x *scene) error { return x.retryOfFinished(ctx) }},
	}
	for i, step := range s.steps {
		add := func(name string, play func(ctx context.Context, x *scene) error) {
			list = append(list, scenario{fmt.Sprintf("step %d %s/%s", i, step.Name, name), play})
		}
		add("takeover before", func(ctx context.Context, x *scene) error { return x.takeover(ctx, i, false) })
		add("takeover inside", func(ctx context.Context, x *scene) error { return x.takeover(ctx, i, true) })
		if i < len(s.steps)-1 {
			add("takeover after", func(ctx context.Context, x *scene) error { return x.handover(ctx, i) })
		}
		add("heartbeat lost", func(ctx context.Context, x *scene) error { return x.partition(ctx, i) })
		add("crash before the receipt", func(ctx context.Context, x *scene) error { return x.crash(ctx, i) })
		add("receipt committed, answer lost", func(ctx context.Context, x *scene) error { return x.unknown(ctx, i, cutCommitted) })
		add("receipt lost on its way", func(ctx context.Context, x *scene) error { return x.unknown(ctx, i, cutUnsent) })
		if step.Effect == jobs.Transactional {
			add("reaper between fence and commit", func(ctx context.Context, x *scene) error { return x.slowCommit(ctx, i) })
		}
		for _, more := range s.more {
			add(more.name, func(ctx context.Context, x *scene) error { return more.play(ctx, x, i) })
		}
	}
	return list
}

func (x *scene) nothing(ctx context.Context) error {
	if _, err := x.start(ctx, "first", pass); err != nil {
		return err
	}
	return x.enqueue(ctx)
}

// duplicateDoorbells rings for the run while one process works it and another is idle.
func (x *scene) duplicateDoorbells(ctx context.Context) error {
	g := x.hold(0, false)
	if _, err := x.begin(ctx, g); err != nil {
		return err
	}
	if _, err := x.start(ctx, "second", pass); err != nil {
		return err
	}
	if err := x.ring(ctx, 5); err != nil {
		return err
	}
	err := x.rec.await(ctx, "the second process heard a doorbell", func() bool {
		return x.rec.count("second", func(e workers.Event) bool { _, ok := e.(workers.RunNotClaimed); return ok }) > 0
	})
	g.release()
	return err
}

// retryOfFinished rings for a run that has ended, and has River retry its job, as River UI's button does.
func (x *scene) retryOfFinished(ctx context.Context) error {
	if _, err := x.start(ctx, "first", pass); err != nil {
		return err
	}
	if err := x.enqueue(ctx); err != nil {
		return err
	}
	run, err := x.client.Wait(ctx, x.run)
	if err != nil {
		return err
	}
	if run.DoorbellID != nil {
		if _, err := x.river.JobRetry(ctx, *run.DoorbellID); err != nil {
			return err
		}
	}
	if err := x.ring(ctx, 2); err != nil {
		return err
	}
	return x.rec.await(ctx, "the finished run answered", func() bool { return x.rec.count("first", isAnswered) >= 2 })
}

// takeover replaces the owner before or inside a step, and then lets it go on: what it writes must be refused.
func (x *scene) takeover(ctx context.Context, step int, inside bool) error {
	x.twice = step
	// Whoever asks before the replaced owner has issued learns that nothing is there.
	x.mayFail = !inside && x.steps[step].Effect == jobs.Reconciled
	g := x.hold(step, inside)
	if _, err := x.begin(ctx, g); err != nil {
		return err
	}
	if _, err := x.start(ctx, "second", pass); err != nil {
		return err
	}
	if err := x.expire(ctx); err != nil {
		return err
	}
	// The second may wait for rows that the first has locked, so it need not have finished.
	if err := x.replaced(ctx); err != nil {
		return err
	}
	g.release()
	return x.refused(ctx)
}

// handover ends the owner's process while it is in a step: the step is committed, and another process goes on after it.
func (x *scene) handover(ctx context.Context, step int) error {
	g := x.hold(step, true)
	first, err := x.begin(ctx, g)
	if err != nil {
		return err
	}
	if _, err := x.start(ctx, "second", pass); err != nil {
		return err
	}
	first.quit()
	if err := first.stopping(ctx); err != nil {
		return err
	}
	g.release()
	return x.rec.await(ctx, "the run was handed over", func() bool { return x.rec.count("first", isReleased) > 0 })
}

// partition holds up all that the owner sends. Its step's context must end before somebody else can own the run.
func (x *scene) partition(ctx context.Context, step int) error {
	x.twice = step
	g := x.hold(step, true)
	first, err := x.begin(ctx, g)
	if err != nil {
		return err
	}
	if _, err := x.start(ctx, "second", pass); err != nil {
		return err
	}
	first.link.pause(false)
	if err := x.reaped(ctx); err != nil {
		return err
	}
	if err := x.replaced(ctx); err != nil {
		return err
	}
	g.release()
	first.link.resume()
	if err := x.refused(ctx); err != nil {
		return err
	}
	if !errors.Is(g.cause, fencing.ErrLeaseLost) {
		return fmt.Errorf("the context of the replaced owner's step had not ended, or for another reason: %w", g.cause)
	}
	return nil
}

// crash cuts the owner off for good when its effect is there and its receipt is not.
func (x *scene) crash(ctx context.Context, step int) error {
	x.twice = step
	g := x.hold(step, true)
	first, err := x.begin(ctx, g)
	if err != nil {
		return err
	}
	first.crashed = true
	first.link.die()
	first.quit() // for nobody but this machine, whose memory it still holds
	g.release()
	if _, err := x.start(ctx, "second", pass); err != nil {
		return err
	}
	return x.reaped(ctx)
}

// unknown cuts the connection at the commit of the step's receipt.
func (x *scene) unknown(ctx context.Context, step int, how cut) error {
	// What an outside step knows is kept while it is written again; a transaction that was lost is carried out again.
	if how == cutUnsent && x.steps[step].Effect == jobs.Transactional {
		x.twice = step
	}
	g := x.hold(step, true)
	first, err := x.begin(ctx, g)
	if err != nil {
		return err
	}
	first.link.cutAtNext(how, nil)
	g.release()
	return x.rec.await(ctx, "the unknown outcome was resolved", func() bool { return x.rec.count("first", isResolved) > 0 })
}

// slowCommit lets the owner's lease run out between its fence and its COMMIT: the reaper must wait for it.
func (x *scene) slowCommit(ctx context.Context, step int) error {
	g := x.hold(step, true)
	first, err := x.begin(ctx, g)
	if err != nil {
		return err
	}
	if _, err := x.start(ctx, "second", pass); err != nil {
		return err
	}
	// Without heartbeats the lease ends a while after this; the COMMIT may take one lease, and is held for less.
	first.link.pause(true)
	pause := func(d time.Duration) {
		select {
		case <-time.After(d):
		case <-ctx.Done():
		}
	}
	pause(x.lease / 2)
	held := make(chan struct{})
	rounds := 0
	first.link.cutAtNext(cutHeld, func() {
		before := x.heard("second", isRound)
		pause(x.lease * 7 / 10)
		rounds = x.heard("second", isRound) - before
		close(held)
	})
	g.release()
	select {
	case <-held:
	case <-time.After(2 * x.lease): // a statement step has no COMMIT of its own to hold
		first.link.cutAtNext(cutNone, nil)
		first.link.resume()
		return nil
	}
	first.link.resume()
	if rounds == 0 {
		return errors.New("the reaper of the second process did not look while the commit was slow")
	}
	if _, err := x.client.Wait(ctx, x.run); err != nil {
		return err
	}
	if x.heard("", isReaped) > 0 {
		return errors.New("the reaper took the run away between its fence and its commit")
	}
	return nil
}

func (x *scene) heard(process string, match func(workers.Event) bool) int {
	x.rec.mu.Lock()
	defer x.rec.mu.Unlock()
	return x.rec.count(process, match)
}
