package workers

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
)

// Fleet is one process of the fleet, with a River client of its own. As many as wanted run side by side.
type Fleet struct {
	*Service
	client *river.Client[pgx.Tx]
}

// New makes a process of the fleet on pool, which must lead to PostgreSQL directly. It does not connect; Run does.
// Heartbeats use a connection of their own beside the pool.
func New(pool *pgxpool.Pool, cfg *Config) (*Fleet, error) {
	if pool == nil {
		return nil, errors.New("workers: New: the pool is nil")
	}
	c := cfg.withDefaults()
	riverWorkers := river.NewWorkers()
	s, err := Register(riverWorkers, pool, c)
	if err != nil {
		return nil, err
	}
	client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{
		Schema:              c.Schema,
		Workers:             riverWorkers,
		Queues:              s.Queues(),
		PeriodicJobs:        s.PeriodicJobs(),
		FetchCooldown:       c.FetchCooldown,
		FetchPollInterval:   c.FetchPollInterval,
		FetchOnlyKnownKinds: true,
		Logger:              c.Logger,
	})
	if err != nil {
		return nil, fmt.Errorf("workers: make the River client: %w", err)
	}
	return &Fleet{Service: s, client: client}, nil
}

// River is the fleet's River client.
func (f *Fleet) River() *river.Client[pgx.Tx] { return f.client }

// Run works until ctx ends, then stops as Service.Stop says, and returns nil. It returns an error when it could not
// start, or when handlers did not return in time. A Fleet runs once.
func (f *Fleet) Run(ctx context.Context) error {
	if err := f.Start(ctx); err != nil {
		return err
	}
	// River's own hard stop, which an ended Start context would be, ends handlers' contexts at once.
	if err := f.client.Start(context.WithoutCancel(ctx)); err != nil {
		return errors.Join(fmt.Errorf("workers: start River: %w", err), f.Stop(context.WithoutCancel(ctx)))
	}
	<-ctx.Done()
	return f.shutDown(context.WithoutCancel(ctx))
}

// completionTime is what River gets to write the completions of handlers that have returned.
const completionTime = 2 * time.Second

func (f *Fleet) shutDown(ctx context.Context) error {
	f.log.InfoContext(ctx, "weir: stopping", "held", f.Held(), "grace", f.cfg.ShutdownGrace)
	// River stops fetching now, and returns when the handlers have.
	riverCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	stopped := make(chan error, 1)
	go func() { stopped <- f.client.Stop(riverCtx) }()

	err := f.Stop(ctx)
	timer := time.NewTimer(completionTime)
	defer timer.Stop()
	select {
	case rerr := <-stopped:
		return errors.Join(err, rerr)
	case <-timer.C:
		cancel()
		<-stopped //nolint:errcheck // the timeout says more
		return errors.Join(err, errors.New("workers: River did not stop in time"))
	}
}
