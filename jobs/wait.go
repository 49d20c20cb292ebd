package jobs

import (
	"context"
	"fmt"
	"time"
)

const (
	firstWait   = 50 * time.Millisecond
	longestWait = time.Second
)

// Wait returns the run when it is terminal. It asks the database again and again, first after 50 ms and at most once a
// second, so it works through a pooler and costs no connection in between. When ctx ends first, it returns the run as
// it was seen last, with ctx's error. A run that does not exist is ErrNotFound.
func (c *Client) Wait(ctx context.Context, id RunID) (*Run, error) {
	pause := firstWait
	timer := time.NewTimer(pause)
	defer timer.Stop()
	var last *Run
	for {
		run, err := c.Get(ctx, id)
		if err != nil {
			if ctx.Err() != nil {
				return last, fmt.Errorf("jobs: wait for run %s: %w", id, context.Cause(ctx))
			}
			return last, err
		}
		if run.Terminal() {
			return run, nil
		}
		last = run
		timer.Reset(pause)
		select {
		case <-ctx.Done():
			return last, fmt.Errorf("jobs: wait for run %s: %w", id, context.Cause(ctx))
		case <-timer.C:
		}
		pause = min(pause*3/2, longestWait)
	}
}
