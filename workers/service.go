package workers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"

	"github.com/weirqueue/weir/internal/doorbell"
	"github.com/weirqueue/weir/internal/fencing"
	"github.com/weirqueue/weir/internal/receipts"
)

// ErrShutdown is the cause with which the contexts of handlers end when a stop outlasts its grace.
var ErrShutdown = errors.New("weir: this process is shutting down")

// releaseTime is what handlers get to return, and their runs to be handed over, after their contexts ended.
const releaseTime = 4 * time.Second

// Service is Weir's part of a process that works River jobs: workers, heartbeats, and the reaper that runs on every
// node. Register puts it into a River client that the application has; a Fleet has its own.
type Service struct {
	pool *pgxpool.Pool
	// simple: the pool's connections use the simple protocol.
	simple bool
	// prepares: they prepare statements, and pipeline them.
	prepares bool
	texts    stepTexts
	cfg      *Config
	log      *slog.Logger
	owner    string

	bells    *doorbell.Bells
	keeper   *fencing.Keeper
	reaper   *fencing.Reaper
	cleaner  *fencing.Cleaner
	sweeper  *doorbell.Sweeper
	resets   *doorbell.Sweeper
	watched  watch // of the upkeep of resets
	canceled *doorbell.Canceled
	suspects chan struct{} // holds one token: a process runs one suspect at a time

	// runs is the parent of every handler's context, beside River's own.
	runs     context.Context
	endRuns  context.CancelCauseFunc
	stopping atomic.Bool
	active   activeRuns

	mu       sync.Mutex
	stopLoop context.CancelFunc
	loops    sync.WaitGroup
	lastGood atomic.Int64 // unix nanoseconds of the last round of upkeep that worked
}

// Register adds Weir's workers to riverWorkers and returns the service that keeps their leases. Call Start before the
// River client's Start, and Stop before its Stop.
//
// Each worker has a finite Timeout of its own. The queues (see Queues: Config.Delivery.Queue, the same with "_bulk" appended
// for the chunks of jobs.NotifyMany, those of the kinds, and "weir_maintenance" and "weir_dbops" where
// PeriodicJobs is used) must be in the River client's Queues; FetchOnlyKnownKinds is recommended where other processes
// share them. No guarantee depends on the River client's periodic jobs or on who is River's leader.
func Register(riverWorkers *river.Workers, pool *pgxpool.Pool, cfg *Config) (*Service, error) {
	if riverWorkers == nil || pool == nil {
		return nil, errors.New("workers: Register: the River workers or the pool is nil")
	}
	c := cfg.withDefaults()
	if err := c.validate(); err != nil {
		return nil, err
	}
	s, err := newService(pool, c)
	if err != nil {
		return nil, err
	}
	if err := s.addWorkers(riverWorkers); err != nil {
		return nil, fmt.Errorf("workers: register with River: %w", err)
	}
	return s, nil
}

func newService(pool *pgxpool.Pool, c *Config) (*Service, error) {
	// Insert-only: it rings, and works nothing.
	ringer, err := river.NewClient(riverpgxv5.New(pool), doorbell.ClientConfig(c.Schema, c.Logger))
	if err != nil {
		return nil, fmt.Errorf("workers: make the River client that rings: %w", err)
	}
	bells := doorbell.New(ringer)
	runs, endRuns := context.WithCancelCause(context.Background())
	mode := pool.Config().ConnConfig.DefaultQueryExecMode
	s := &Service{
		pool: pool, simple: mode == pgx.QueryExecModeSimpleProtocol, prepares: mode == pgx.QueryExecModeCacheStatement, cfg: c, log: c.Logger, owner: fencing.NewOwner(), bells: bells,
		reaper:   &fencing.Reaper{DB: pool, Bells: bells, Settle: receipts.SettleUnknown, MaxReaps: c.MaxReaps, Limit: 500},
		sweeper:  doorbell.NewSweeper(pool, bells, c.DoorbellGrace),
		resets:   doorbell.NewResetSweeper(pool, bells, c.DoorbellGrace),
		canceled: doorbell.NewCanceled(pool, c.Schema),
		cleaner:  newCleaner(pool, c),
		suspects: make(chan struct{}, 1),
		runs:     runs, endRuns: endRuns,
	}
	s.keeper = fencing.NewKeeper(s.dialHeartbeat, c.beat(), s.reportBeat)
	return s, nil
}

// Owner is the name under which this process holds leases.
func (s *Service) Owner() string { return s.owner }

// Start checks the database and begins to keep leases and to reap. It returns ErrPooler, ErrNotMigrated or ErrReadOnly
// when this database cannot be worked on. Canceling ctx does not stop the service; Stop does.
func (s *Service) Start(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopLoop != nil || s.stopping.Load() {
		return errors.New("workers: Start: the service was started before")
	}
	if err := checkDatabase(ctx, s.pool, s.cfg.Schema); err != nil {
		return err
	}
	loop, stop := context.WithCancel(context.WithoutCancel(ctx))
	s.stopLoop = stop
	s.lastGood.Store(time.Now().UnixNano())
	s.loops.Go(func() { s.keeper.Run(loop) })
	s.loops.Go(func() { s.maintain(loop) })
	s.log.InfoContext(ctx, "weir: started", "owner", s.owner, "delivery_lease", s.cfg.Delivery.Lease, "reaper_interval", s.cfg.ReaperInterval)
	return nil
}

// Stop lets running handlers finish for the shutdown grace, then ends their contexts with ErrShutdown and hands over
// the runs whose handlers return; a run whose effect may be on its way outside is left to its lease. No new run is
// claimed meanwhile. It returns nil when every handler has returned, ctx's error when ctx ended first, and otherwise an
// error that counts the handlers that would not return: their runs are taken over when their leases have run out.
func (s *Service) Stop(ctx context.Context) error {
	s.stopping.Store(true)
	grace := time.NewTimer(s.cfg.ShutdownGrace)
	defer grace.Stop()
	idle := s.active.wait()
	select {
	case <-idle:
	case <-grace.C:
	case <-ctx.Done():
	}
	s.endRuns(ErrShutdown)
	s.keeper.EndAll(ErrShutdown)
	var err error
	hard := time.NewTimer(releaseTime)
	defer hard.Stop()
	select {
	case <-idle:
	case <-hard.C:
		left := s.keeper.Runs()
		s.log.WarnContext(ctx, "weir: handlers did not return; their runs wait for their leases to run out", "runs", left)
		err = fmt.Errorf("workers: stop: %d handlers did not return", len(left))
	case <-ctx.Done():
		err = ctx.Err()
	}
	s.mu.Lock()
	stop := s.stopLoop
	s.mu.Unlock()
	if stop != nil {
		stop()
		s.loops.Wait()
	}
	return err
}

// Healthy returns nil while this process gets its upkeep done: it is an error when no round of reaping and sweeping
// has worked for some time, which means that the database does not answer.
func (s *Service) Healthy() error {
	limit := max(6*s.cfg.ReaperInterval, 10*time.Second)
	last := s.lastGood.Load()
	switch {
	case last == 0:
		return errors.New("workers: not started")
	case s.stopping.Load():
		return errors.New("workers: stopping")
	case time.Since(time.Unix(0, last)) > limit:
		return fmt.Errorf("workers: no upkeep of runs has worked for more than %s", limit)
	}
	return nil
}

// Held is how many runs this process owns now.
func (s *Service) Held() int { return s.keeper.Len() }

// activeRuns counts handlers.
type activeRuns struct {
	mu   sync.Mutex
	idle []chan struct{}
	busy int
}

// enter counts a worker before it claims; leave ends it.
func (a *activeRuns) enter() {
	a.mu.Lock()
	a.busy++
	a.mu.Unlock()
}

func (a *activeRuns) leave() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.busy--; a.busy == 0 {
		for _, c := range a.idle {
			close(c)
		}
		a.idle = nil
	}
}

// wait returns a channel that is closed when no worker is in.
func (a *activeRuns) wait() <-chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	c := make(chan struct{})
	if a.busy == 0 {
		close(c)
	} else {
		a.idle = append(a.idle, c)
	}
	return c
}
