package workerstest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weirqueue/weir/jobs"
)

// soon is within which a Send must return when its context has ended.
const soon = 2 * time.Second

// endedBefore gives a Send a context that has ended, as a process that was frozen before it does. Somebody else sends
// the message by then, so this one must not.
// taken asks the provider how many times it has the step's message; nil is nobody to ask.
func (x *scene) endedBefore(ctx context.Context, step int, taken func(ctx context.Context, run jobs.RunID, step int) (int, error)) error {
	x.twice = step
	g := x.hold(step, false)
	first, err := x.begin(ctx, g)
	if err != nil {
		return err
	}
	if _, err := x.start(ctx, "second", pass); err != nil {
		return err
	}
	first.link.pause(false)
	defer first.link.resume()
	if err := x.reaped(ctx); err != nil {
		return err
	}
	if err := x.replaced(ctx); err != nil {
		return err
	}
	before := 0
	if taken != nil {
		if err := x.sentBySecond(ctx, step); err != nil {
			return err
		}
		if before, err = taken(ctx, x.run, step); err != nil {
			return err
		}
	}
	g.release()
	sendErr, err := x.returned(ctx, step)
	if err != nil {
		return err
	}
	if sendErr == nil {
		return errors.New("Send was called with a context that had ended, and sent all the same")
	}
	if taken != nil {
		after, err := taken(ctx, x.run, step)
		if err != nil {
			return err
		}
		if after > before {
			return fmt.Errorf("Send was called with a context that had ended, and sent all the same, although it returned %w", sendErr)
		}
	}
	first.link.resume()
	return x.refused(ctx)
}

// sentBySecond waits until the second process's call of the step has returned: what the provider takes afterwards is of
// the first's.
func (x *scene) sentBySecond(ctx context.Context, step int) error {
	return x.rec.await(ctx, "the second process had sent", func() bool {
		for _, c := range x.rec.calls {
			if c.process == "second" && c.Step == step && c.ended {
				return true
			}
		}
		return false
	})
}

// silent has the provider say nothing while the lease runs out under a Send that waits for it.
func (x *scene) silent(ctx context.Context, step int, silence func() (end func())) error {
	x.twice = step
	g := x.hold(step, false)
	first, err := x.begin(ctx, g)
	if err != nil {
		return err
	}
	end := silence()
	first.link.pause(false)
	defer first.link.resume()
	g.release()
	sendErr, err := x.returned(ctx, step)
	end()
	if err != nil {
		return err
	}
	if sendErr == nil {
		return errors.New("Send reported a message as sent while the provider was silent")
	}
	if _, err := x.start(ctx, "second", pass); err != nil {
		return err
	}
	if err := x.reaped(ctx); err != nil {
		return err
	}
	first.link.resume()
	return x.refused(ctx)
}

// returned waits until the context of the first process's call of the step has ended, and then, a short time, until the
// call has returned. It returns what Send did.
func (x *scene) returned(ctx context.Context, step int) (sendErr, err error) {
	var c *call
	if err := x.rec.await(ctx, "the first process was in the step", func() bool {
		for _, other := range x.rec.calls {
			if other.process == "first" && other.Step == step {
				c = other
				return true
			}
		}
		return false
	}); err != nil {
		return nil, err
	}
	select {
	case <-c.gone:
	case <-ctx.Done():
		return nil, fmt.Errorf("the context of the replaced owner's Send did not end: %w", context.Cause(ctx))
	}
	short, cancel := context.WithTimeout(ctx, soon)
	defer cancel()
	if x.rec.await(short, "Send returned", func() bool { return c.ended }) != nil {
		return nil, fmt.Errorf("Send had not returned %s after the end of its context", soon)
	}
	return c.err, nil
}
