package workerstest

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weirqueue/weir/jobs"
	"github.com/weirqueue/weir/workers"
)

// subject is what is tested, in the words of the suite: a kind of an application's own, or a channel of deliveries.
type subject struct {
	pool        *pgxpool.Pool
	schema      string
	lease       time.Duration
	kind, queue string
	steps       []jobs.Step
	// succeeded is the status of a run that ended well.
	succeeded jobs.Status
	// outputsVary names Idempotent steps whose output may differ between two calls with the same key.
	outputsVary []string
	// equip adds to the configuration of one process what works the runs, with around about every call. release is called
	// after the process's end; nil is nothing.
	equip func(cfg *workers.Config, around around) (release func() error, err error)
	// task makes the i-th run's.
	task func(i int) task
	// more are scenarios of each step that only such subjects have.
	more []stepScenario
}

// task is one run, from its enqueue to what must be left of it.
type task struct {
	enqueue func(ctx context.Context, client *jobs.Client) (jobs.RunID, error)
	// check looks at the effects of the run, which has succeeded. All of its processes have ended.
	check func(ctx context.Context, run *jobs.Run, receipts []jobs.Receipt, calls []*call) error
}

// stepScenario is something that may happen to a run in one of its steps.
type stepScenario struct {
	name string
	play func(ctx context.Context, x *scene, step int) error
}

func checked(err error) error {
	if err != nil {
		return fmt.Errorf("Check: %w", err)
	}
	return nil
}

const (
	defaultLease = 2 * time.Second
	// stepTimes is how many leases a step may take in the suite.
	stepTimes = 3
)

// tries spaces failed tries: a scenario does not wait for them.
var tries = workers.Backoff{First: 50 * time.Millisecond, Max: 200 * time.Millisecond}

// subject is what a kind is to the suite.
func (c Config[T]) subject() (subject, error) {
	c = c.withDefaults()
	if err := c.validate(); err != nil {
		return subject{}, err
	}
	return subject{
		pool: c.Pool, schema: c.Schema, lease: c.Lease, kind: c.Kind.Name(), queue: c.Kind.Queue(), steps: c.Kind.Steps(),
		succeeded: jobs.StatusSucceeded, outputsVary: c.OutputsVary,
		equip: func(cfg *workers.Config, around around) (func() error, error) {
			cfg.Kinds = []workers.Binding{c.Bind(workers.KindConfig{
				Queue: c.Kind.Queue(), MaxWorkers: 1, Lease: c.Lease, StepTime: stepTimes * c.Lease, Backoff: tries,
			}).Around(around)}
			return nil, nil
		},
		task: func(i int) task {
			payload := c.Payload(i)
			return task{
				enqueue: func(ctx context.Context, client *jobs.Client) (id jobs.RunID, err error) {
					res, err := client.Enqueue(ctx, c.Kind.Of(payload), nil)
					if err == nil {
						id = res.Run.ID
					}
					return id, err
				},
				check: func(ctx context.Context, run *jobs.Run, _ []jobs.Receipt, _ []*call) error {
					return checked(c.Check(ctx, c.Pool, run, payload))
				},
			}
		},
	}, nil
}
