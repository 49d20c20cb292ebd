package drill

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weirqueue/weir/jobs"
	"github.com/weirqueue/weir/workers"
)

// workerEnv holds a workerConfig: a process that has it is a worker of a drill, whatever its arguments say.
const workerEnv = "WEIR_DRILL_WORKER"

// workerConfig is what the parent tells a worker.
type workerConfig struct {
	Name        string            `json:"name"`
	DatabaseURL string            `json:"database_url"`
	RiverSchema string            `json:"river_schema"`
	Limits      Limits            `json:"limits"`
	Reaper      time.Duration     `json:"reaper"`
	Subjects    []string          `json:"subjects"`
	Env         map[string]string `json:"env"`
}

// IsWorker reports whether this process was started by a drill, as one of its workers.
func IsWorker() bool { return os.Getenv(workerEnv) != "" }

// RunWorker is such a process, until SIGTERM.
func RunWorker(ctx context.Context, subjects []Subject) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM)
	defer stop()
	var cfg workerConfig
	if err := json.Unmarshal([]byte(os.Getenv(workerEnv)), &cfg); err != nil {
		return fmt.Errorf("drill: %s: %w", workerEnv, err)
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelInfo})).With("worker", cfg.Name)
	poolConfig, err := pgxpool.ParseConfig(cfg.DatabaseURL)
	if err != nil {
		return errors.New("drill: the worker's database address cannot be read")
	}
	poolConfig.MaxConns = 10
	poolConfig.ConnConfig.ConnectTimeout = 2 * time.Second
	pool, err := pgxpool.NewWithConfig(ctx, poolConfig)
	if err != nil {
		return err
	}
	defer closePool(pool)

	refused := newRefusals(cfg.Name)
	fleetConfig := &workers.Config{
		Schema: cfg.RiverSchema, ReaperInterval: cfg.Reaper, DoorbellGrace: doorbellGrace(cfg.Limits.Lease), MaxReaps: 50,
		ShutdownGrace: cfg.Limits.StepTime, FetchPollInterval: 200 * time.Millisecond, Logger: log, Observer: refused,
	}
	for _, name := range cfg.Subjects {
		for _, s := range subjects {
			if s.Name() == name {
				if err := s.Work(fleetConfig, cfg.Env, cfg.Limits); err != nil {
					return err
				}
			}
		}
	}
	following, endFollowing := context.WithCancel(ctx)
	defer endFollowing()
	go refused.follow(following, cfg.DatabaseURL)
	var current atomic.Pointer[workers.Fleet]
	go tellReady(ctx, &current)
	// A worker that starts in an outage, or behind a partition, waits for its end, as a supervisor would make it.
	var fleet *workers.Fleet
	for {
		if fleet, err = workers.New(pool, fleetConfig); err != nil {
			return err
		}
		current.Store(fleet)
		if err = fleet.Run(ctx); err == nil || ctx.Err() != nil {
			break
		}
		log.Warn("the fleet ended", "error", err)
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	refused.write(ctx, cfg.DatabaseURL)
	return nil
}

// readyFD is the pipe on which a worker says that it works.
const readyFD = 3

// tellReady tells the parent when the fleet works.
func tellReady(ctx context.Context, fleet *atomic.Pointer[workers.Fleet]) {
	pipe := os.NewFile(readyFD, "ready")
	defer pipe.Close()
	for f := fleet.Load(); (f == nil || f.Healthy() != nil) && ctx.Err() == nil; f = fleet.Load() {
		sleep(ctx, 10*time.Millisecond)
	}
	_, _ = pipe.Write([]byte{1}) // the parent may be gone, and then so are we
}

// doorbellGrace is how long the workers let a run be due before they doubt its doorbell.
func doorbellGrace(lease time.Duration) time.Duration { return max(time.Second, lease/2) }

// closePool does not wait for a function that never returns.
func closePool(pool *pgxpool.Pool) {
	done := make(chan struct{})
	go func() { pool.Close(); close(done) }()
	select {
	case <-done:
	case <-time.After(2 * time.Second):
	}
}

// refusals notes what this worker was refused, on a connection of its own and beside the work.
type refusals struct {
	worker string
	queue  chan workers.LeaseLost
}

func newRefusals(worker string) *refusals {
	return &refusals{worker: worker, queue: make(chan workers.LeaseLost, 10_000)}
}

// Observe hears of refusals.
func (r *refusals) Observe(_ context.Context, e workers.Event) {
	if lost, ok := e.(workers.LeaseLost); ok {
		select {
		case r.queue <- lost:
		default: // a drill that has this many proves its point without the rest
		}
	}
}

// follow writes them down until ctx ends.
func (r *refusals) follow(ctx context.Context, url string) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(300 * time.Millisecond):
			r.write(ctx, url)
		}
	}
}

// write empties the queue into weir_drill.refusal. What cannot be written stays for the next time.
func (r *refusals) write(ctx context.Context, url string) {
	var rows [][]any
	for more := true; more; {
		select {
		case l := <-r.queue:
			rows = append(rows, []any{r.worker, uuid.UUID(l.Run), l.Attempt, l.Write})
		default:
			more = false
		}
	}
	if len(rows) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, url)
	if err == nil {
		defer func() { _ = conn.Close(ctx) }()
		_, err = conn.CopyFrom(ctx, pgx.Identifier{"weir_drill", "refusal"}, []string{"worker", "run_id", "attempt", "write"}, pgx.CopyFromRows(rows))
	}
	if err != nil {
		for _, row := range rows {
			id, _ := row[1].(uuid.UUID)
			attempt, _ := row[2].(int64)
			write, _ := row[3].(string)
			r.Observe(ctx, workers.LeaseLost{Run: jobs.RunID(id), Attempt: attempt, Write: write})
		}
	}
}
