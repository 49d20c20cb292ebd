package drill

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weirqueue/weir/jobs"
	"github.com/weirqueue/weir/workers"
	"github.com/weirqueue/weir/workers/channel"
)

// Subject is a kind of run that the drill puts under load.
type Subject interface {
	// Name is what --kind calls it; Kind is the kind of its runs.
	Name() string
	Kind() string
	// Setup starts what is outside, in the parent process, and returns what the workers must know to reach it.
	Setup(ctx context.Context, pool *pgxpool.Pool) (env map[string]string, err error)
	Close() error
	// Enqueue asks for the n-th run in the transaction.
	Enqueue(ctx context.Context, tx pgx.Tx, client *jobs.Client, n int64) (jobs.RunID, error)
	// Work adds the subject to a worker's configuration. It is called in the workers' processes, with what Setup returned.
	Work(cfg *workers.Config, env map[string]string, limits Limits) error
	// Check looks at what the runs did, when all is over. Each fault is a sentence.
	Check(ctx context.Context, pool *pgxpool.Pool, records *Records) (Effects, error)
}

// bulk is a subject that can also ask for many runs which share River jobs.
type bulk interface {
	EnqueueMany(ctx context.Context, tx pgx.Tx, client *jobs.Client, first int64, n int) ([]jobs.RunID, error)
}

// proving is a subject that needs more than faults that land to prove something.
type proving interface {
	// Prove says what did not happen.
	Prove(records *Records) []string
}

// Limits are what the workers of a drill are configured with.
type Limits struct {
	Lease, StepTime time.Duration
	MaxWorkers      int
	Backoff         workers.Backoff
}

// Effects are what a subject's runs did, as far as its Check saw.
type Effects struct {
	Count int
	// Duplicates are effects that are there more often than is allowed.
	Duplicates int
	// Wrong are runs whose own check failed. They count as duplicates, since nobody but the check knows more.
	Wrong  int
	Faults []string
}

func (e *Effects) add(o Effects) {
	e.Count += o.Count
	e.Duplicates += o.Duplicates
	e.Wrong += o.Wrong
	e.Faults = append(e.Faults, o.Faults...)
}

// channels adds a channel to a configuration.
func addChannel(cfg *workers.Config, name string, ch channel.Channel) {
	if cfg.Channels == nil {
		cfg.Channels = map[string]channel.Channel{}
	}
	cfg.Channels[name] = ch
}
