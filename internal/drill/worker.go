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

	said := newNotes(cfg.Name)
	fleetConfig := &workers.Config{
		Schema: cfg.RiverSchema, ReaperInterval: cfg.Reaper, DoorbellGrace: doorbellGrace(cfg.Limits.Lease), MaxReaps: 50,
		ShutdownGrace: cfg.Limits.StepTime, FetchPollInterval: 200 * time.Millisecond, Logger: log, Observer: said,
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
	go said.follow(following, cfg.DatabaseURL)
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
	said.write(ctx, cfg.DatabaseURL)
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

// notes is what this worker has to say, written on a connection of its own and beside the work.
type notes struct {
	worker string
	queue  chan note
}

type note struct {
	table string
	row   []any
}

// noted are the tables of notes, and their columns.
var noted = map[string][]string{
	"refusal":   {"worker", "run_id", "attempt", "write"},
	"late_beat": {"worker", "at"},
}

func newNotes(worker string) *notes {
	return &notes{worker: worker, queue: make(chan note, 10_000)}
}

// Observe hears of refusals, and of heartbeats that came to nothing.
func (n *notes) Observe(_ context.Context, e workers.Event) {
	switch e := e.(type) {
	case workers.LeaseLost:
		n.add(note{"refusal", []any{n.worker, uuid.UUID(e.Run), e.Attempt, e.Write}})
	case workers.Heartbeat:
		if e.Err != nil {
			n.add(note{"late_beat", []any{n.worker, time.Now()}})
		}
	}
}

func (n *notes) add(this note) {
	select {
	case n.queue <- this:
	default: // a drill that has this many proves its point without the rest
	}
}

// follow writes them down until ctx ends.
func (n *notes) follow(ctx context.Context, url string) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(300 * time.Millisecond):
			n.write(ctx, url)
		}
	}
}

// write empties the queue. What cannot be written stays for the next time.
func (n *notes) write(ctx context.Context, url string) {
	rows := map[string][][]any{}
	for more := true; more; {
		select {
		case this := <-n.queue:
			rows[this.table] = append(rows[this.table], this.row)
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
	}
	for table, some := range rows {
		if err == nil {
			_, err = conn.CopyFrom(ctx, pgx.Identifier{"weir_drill", table}, noted[table], pgx.CopyFromRows(some))
		}
		if err != nil {
			for _, row := range some {
				n.add(note{table, row})
			}
		}
	}
}
