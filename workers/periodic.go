package workers

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"

	"github.com/weirqueue/weir/internal/doorbell"
	"github.com/weirqueue/weir/internal/fencing"
)

// maintenanceQueue is the queue of the periodic jobs.
const maintenanceQueue = "weir_maintenance"

// The periodic jobs' names in River.
type (
	cleanArgs       struct{}
	reclaimArgs     struct{}
	healPlansArgs   struct{}
	expirePlansArgs struct{}
)

func (cleanArgs) Kind() string       { return "clean-finished-runs" }
func (reclaimArgs) Kind() string     { return "reclaim-stale-deliveries" }
func (healPlansArgs) Kind() string   { return "heal-stale-plans" }
func (expirePlansArgs) Kind() string { return "expire-plans" }

// upkeepWorker does upkeep on River's clock. But for the cleaning it is what every node does by itself too, and is safe
// beside them: whatever it does is a conditional transition.
type upkeepWorker[T river.JobArgs] struct {
	river.WorkerDefaults[T]
	do func(context.Context) error
	// stop ends when the service has no handler left, or waits for none any more.
	stop context.Context
	// longest bounds a round; the next one goes on. Zero is River's own, a minute.
	longest time.Duration
}

// Timeout is longest.
func (w *upkeepWorker[T]) Timeout(*river.Job[T]) time.Duration { return w.longest }

// Work does a round. A shutdown ends it, and the next round, here or elsewhere, goes on: what it did is committed.
func (w *upkeepWorker[T]) Work(ctx context.Context, _ *river.Job[T]) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(w.stop, cancel)()
	err := w.do(ctx)
	if w.stop.Err() != nil {
		return nil
	}
	return err
}

const (
	cleanEvery = 10 * time.Minute
	// cleanShare bounds what cleaning takes from the fleet; see docs/adr/0014-cleaning-by-deletes.md.
	cleanShare = 0.1
	cleanPage  = 250
)

func newCleaner(pool *pgxpool.Pool, c *Config) *fencing.Cleaner {
	return &fencing.Cleaner{
		DB: pool, Age: c.Retention, AgeOf: c.RetentionOf, KeepKeys: c.KeyRetention,
		Page: cleanPage, Share: cleanShare, Longest: cleanEvery - time.Minute,
	}
}

// clean deletes finished runs after their retention.
func (s *Service) clean(ctx context.Context) error {
	began := time.Now()
	n, err := s.cleaner.Clean(ctx)
	if n > 0 {
		s.log.InfoContext(ctx, "weir: deleted finished runs", "runs", n)
	}
	s.cfg.Observer.Observe(ctx, RunsCleaned{Runs: n, Took: time.Since(began)})
	return err
}

func (s *Service) addWorkers(w *river.Workers) error {
	deliveries := newDeliveryWorker(s)
	errs := []error{
		river.AddWorkerSafely(w, deliveries), river.AddWorkerSafely(w, newChunkWorker(deliveries)),
		s.addResets(w), s.addPlans(w), s.addDBOps(w),
		river.AddWorkerSafely(w, &upkeepWorker[cleanArgs]{do: s.clean, stop: s.runs, longest: cleanEvery}),
		river.AddWorkerSafely(w, &upkeepWorker[reclaimArgs]{do: s.reap, stop: s.runs}),
		river.AddWorkerSafely(w, &upkeepWorker[healPlansArgs]{do: s.reap, stop: s.runs}),
		river.AddWorkerSafely(w, &upkeepWorker[expirePlansArgs]{do: s.expirePlans, stop: s.runs}),
	}
	for _, b := range s.cfg.Kinds {
		errs = append(errs, s.addBinding(w, b))
	}
	return errors.Join(errs...)
}

// PeriodicJobs are for the River client's PeriodicJobs, where an application has its own: they clean finished runs
// every ten minutes, and look for stale deliveries, plans and branch resets every minute beside what each node does by
// itself. Without them finished runs are kept for ever; nothing else depends on them.
func (s *Service) PeriodicJobs() []*river.PeriodicJob {
	return []*river.PeriodicJob{
		periodic(cleanEvery, maintenanceQueue, cleanArgs{}), periodic(time.Minute, maintenanceQueue, reclaimArgs{}),
		periodic(time.Minute, maintenanceQueue, healPlansArgs{}), periodic(time.Minute, maintenanceQueue, expirePlansArgs{}),
		periodic(time.Minute, dbopsQueue, dbopsArgs{}),
	}
}

func periodic(every time.Duration, queue string, args river.JobArgs) *river.PeriodicJob {
	return river.NewPeriodicJob(river.PeriodicInterval(every), func() (river.JobArgs, *river.InsertOpts) {
		return args, &river.InsertOpts{Queue: queue, MaxAttempts: 3, Priority: 1}
	}, &river.PeriodicJobOpts{ID: args.Kind(), RunOnStart: true})
}

// Queues are the River queues that this service works, for the River client's Queues.
func (s *Service) Queues() map[string]river.QueueConfig {
	queues := map[string]river.QueueConfig{maintenanceQueue: {MaxWorkers: 2}, dbopsQueue: {MaxWorkers: 1}}
	if len(s.cfg.Branches.Providers) > 0 {
		queues[s.cfg.Branches.Queue] = river.QueueConfig{MaxWorkers: s.cfg.Branches.MaxWorkers}
	}
	// A process without channels would only keep deliveries from those that have some.
	if len(s.cfg.Channels) > 0 {
		queues[s.cfg.Delivery.Queue] = river.QueueConfig{MaxWorkers: s.cfg.Delivery.MaxWorkers}
		queues[doorbell.ChunkQueue(s.cfg.Delivery.Queue)] = river.QueueConfig{MaxWorkers: chunksAtOnce(s.cfg.Delivery.MaxWorkers)}
	}
	if len(s.cfg.Tools) > 0 {
		q := queues[s.cfg.Plan.Queue]
		queues[s.cfg.Plan.Queue] = river.QueueConfig{MaxWorkers: q.MaxWorkers + s.cfg.Plan.MaxWorkers}
	}
	for _, b := range s.cfg.Kinds {
		q := queues[b.cfg.Queue] // kinds may share a queue
		queues[b.cfg.Queue] = river.QueueConfig{MaxWorkers: q.MaxWorkers + b.cfg.MaxWorkers}
	}
	return queues
}
