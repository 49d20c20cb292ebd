package workers

import (
	"context"
	"time"
)

// crew carries out functions on goroutines that have done so before: their stacks have grown, and to grow one costs as much
// as the rest of a short delivery. It holds no goroutine for longer than crewIdle once there is nothing to do.
type crew struct{ work chan func() }

const crewIdle = time.Second

func newCrew() *crew { return &crew{work: make(chan func())} }

// do carries out f, at once. Goroutines that wait for more end with ctx.
func (c *crew) do(ctx context.Context, f func()) {
	select {
	case c.work <- f:
	default:
		go c.member(ctx, f)
	}
}

func (c *crew) member(ctx context.Context, f func()) {
	idle := time.NewTimer(crewIdle)
	defer idle.Stop()
	for {
		f()
		idle.Reset(crewIdle)
		select {
		case f = <-c.work:
		case <-idle.C:
			return
		case <-ctx.Done():
			return
		}
	}
}
