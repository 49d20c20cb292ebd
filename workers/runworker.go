package workers

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/riverqueue/river"

	"github.com/weirqueue/weir/internal/doorbell"
)

// runArgs are the arguments of a run's own doorbell. A delivery's say more.
type runArgs struct {
	RunID uuid.UUID `json:"run_id"`
	kind  string
	// next is how long from now River should ring again. It travels from Work to NextRetry, which River calls with the
	// same job.
	next time.Duration
}

func (a runArgs) Kind() string { return a.kind }

// runWorker answers the doorbells of one kind: an application's own, plans, or branch resets.
type runWorker struct {
	river.WorkerDefaults[runArgs]
	service *Service
	kind    workKind
	// longest is more than all that one claim may take.
	longest time.Duration
}

// Timeout is finite, since River never rescues a job without one.
func (w *runWorker) Timeout(*river.Job[runArgs]) time.Duration { return w.longest }

// NextRetry passes on when the run is due, by the database's clock, as a delay from now.
func (w *runWorker) NextRetry(job *river.Job[runArgs]) time.Time {
	return time.Now().Add(max(job.Args.next, minRetry))
}

// Work carries the run on.
func (w *runWorker) Work(ctx context.Context, job *river.Job[runArgs]) error {
	return w.service.work(ctx, job.JobRow, job.Args.RunID, &job.Args.next, &w.kind)
}

// addKind registers a kind with River under its own name. It gives kind what its writes go through.
func (s *Service) addKind(workers *river.Workers, kind *workKind, longest time.Duration) (err error) {
	defer func() {
		if p := recover(); p != nil { // River's own function for arguments that carry their kind panics
			err = fmt.Errorf("kind %s: %v", kind.kind, p)
		}
	}()
	kind.writes = s.newWrites(kind)
	river.AddWorkerArgs(workers, runArgs{kind: doorbell.RiverKind(kind.kind)}, &runWorker{service: s, kind: *kind, longest: longest})
	return nil
}
