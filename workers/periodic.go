package workers

import (
	"context"
	"errors"
	"time"

	"github.com/riverqueue/river"

	"github.com/weirqueue/weir/internal/doorbell"
	"github.com/weirqueue/weir/internal/fencing"
	"github.com/weirqueue/weir/jobs"
)

// maintenanceQueue is the queue of the periodic jobs.
const maintenanceQueue = "weir_maintenance"

type cleanArgs struct{}

func (cleanArgs) Kind() string { return "clean-finished-runs" }

// cleanWorker deletes finished runs after their retention.
type cleanWorker struct {
	river.WorkerDefaults[cleanArgs]
	service *Service
}

func (w *cleanWorker) Timeout(*river.Job[cleanArgs]) time.Duration { return 10 * time.Minute }

func (w *cleanWorker) Work(ctx context.Context, _ *river.Job[cleanArgs]) error {
	s := w.service
	began := time.Now()
	cleaner := fencing.Cleaner{DB: s.pool, Age: s.cfg.Retention, KeepKeys: s.cfg.KeyRetention, Page: 1000}
	n, err := cleaner.Clean(ctx)
	if n > 0 {
		s.log.InfoContext(ctx, "weir: deleted finished runs", "runs", n)
	}
	s.cfg.Observer.Observe(ctx, RunsCleaned{Runs: n, Took: time.Since(began)})
	return err
}

type reclaimArgs struct{}

func (reclaimArgs) Kind() string { return "reclaim-stale-deliveries" }

// reclaimWorker is the upkeep that every node does by itself, once more on River's clock. It is safe beside them.
type reclaimWorker struct {
	river.WorkerDefaults[reclaimArgs]
	service *Service
}

func (w *reclaimWorker) Work(ctx context.Context, _ *river.Job[reclaimArgs]) error {
	_, err := w.service.reaper.Reap(ctx)
	return err
}

func (s *Service) addWorkers(w *river.Workers) error {
	deliveries := newDeliveryWorker(s)
	if err := river.AddWorkerSafely(w, deliveries); err != nil {
		return err
	}
	if err := river.AddWorkerSafely(w, newChunkWorker(deliveries)); err != nil {
		return err
	}
	if err := s.addResets(w); err != nil {
		return err
	}
	for _, b := range s.cfg.Kinds {
		if err := s.addKind(w, b); err != nil {
			return err
		}
	}
	river.AddWorkerArgs(w, stepsArgs{kind: doorbell.RiverKind(jobs.KindPlan)}, newPlanWorker(s))
	if err := errors.Join(river.AddWorkerSafely(w, &healPlansWorker{service: s}), river.AddWorkerSafely(w, &expirePlansWorker{service: s})); err != nil {
		return err
	}
	if err := river.AddWorkerSafely(w, &cleanWorker{service: s}); err != nil {
		return err
	}
	return river.AddWorkerSafely(w, &reclaimWorker{service: s})
}

// PeriodicJobs are for the River client's PeriodicJobs, where an application has its own: they clean finished runs
// every ten minutes, and look for stale deliveries, plans and branch resets every minute beside what each node does by itself. Without them
// finished runs are kept for ever; nothing else depends on them.
func (s *Service) PeriodicJobs() []*river.PeriodicJob {
	opts := func() *river.InsertOpts {
		return &river.InsertOpts{Queue: maintenanceQueue, MaxAttempts: 3, Priority: 1}
	}
	return []*river.PeriodicJob{
		river.NewPeriodicJob(river.PeriodicInterval(10*time.Minute),
			func() (river.JobArgs, *river.InsertOpts) { return cleanArgs{}, opts() },
			&river.PeriodicJobOpts{ID: "clean-finished-runs", RunOnStart: true}),
		river.NewPeriodicJob(river.PeriodicInterval(time.Minute),
			func() (river.JobArgs, *river.InsertOpts) { return reclaimArgs{}, opts() },
			&river.PeriodicJobOpts{ID: "reclaim-stale-deliveries", RunOnStart: true}),
		dbopsPeriodic(),
		river.NewPeriodicJob(river.PeriodicInterval(time.Minute),
			func() (river.JobArgs, *river.InsertOpts) { return healPlansArgs{}, opts() },
			&river.PeriodicJobOpts{ID: "heal-stale-plans", RunOnStart: true}),
		river.NewPeriodicJob(river.PeriodicInterval(time.Minute),
			func() (river.JobArgs, *river.InsertOpts) { return expirePlansArgs{}, opts() },
			&river.PeriodicJobOpts{ID: "expire-plans", RunOnStart: true}),
	}
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
