package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
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

// ErrNotSucceeded: the run has ended, and not well. The error is a *NotSucceededError.
var ErrNotSucceeded = errors.New("jobs: the run did not succeed")

// NotSucceededError says how a run ended that has no result.
type NotSucceededError struct {
	Run    RunID
	Status Status
	// Code and Message are the run's.
	Code, Message string
}

func (e *NotSucceededError) Error() string {
	why := e.Message
	if e.Code != "" && !strings.HasPrefix(why, e.Code) { // the text of a refusal begins with its code
		why = strings.TrimSuffix(e.Code+": "+why, ": ")
	}
	return strings.TrimSuffix(fmt.Sprintf("jobs: run %s is %s: %s", e.Run, e.Status, why), ": ")
}

// Is makes it match ErrNotSucceeded.
func (e *NotSucceededError) Is(target error) bool { return target == ErrNotSucceeded }

// WaitOutput waits as Wait does, and decodes what the run's last step returned:
//
//	receipt, err := jobs.WaitOutput[shop.Receipt](ctx, client, id)
//
// It returns a *NotSucceededError when the run ended otherwise, and an error that wraps encoding/json's when the output
// is not an O. A run without an output, as a delivery is, has the zero O. For the outputs of other steps see Receipt.Decode.
func WaitOutput[O any](ctx context.Context, c *Client, id RunID) (O, error) {
	var out O
	run, err := c.Wait(ctx, id)
	if err != nil {
		return out, err
	}
	if run.Status != StatusSucceeded && run.Status != StatusSent {
		return out, &NotSucceededError{Run: id, Status: run.Status, Code: run.ErrorCode, Message: run.ErrorMessage}
	}
	return out, decodeOutput(fmt.Sprintf("run %s", id), run.Output, &out)
}

// Decode decodes the step's output into what into points to. A step without an output leaves it as it is.
func (r Receipt) Decode(into any) error {
	return decodeOutput(fmt.Sprintf("step %q", r.StepName), r.Output, into)
}

func decodeOutput(whose string, output json.RawMessage, into any) error {
	if len(output) == 0 {
		return nil
	}
	if err := json.Unmarshal(output, into); err != nil {
		return fmt.Errorf("jobs: output of %s: %w", whose, err)
	}
	return nil
}
