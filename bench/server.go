package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weirqueue/weir/internal/postgres"
	"github.com/weirqueue/weir/migrations"
)

// poolSize is the same for all: about four connections a core were fastest.
const poolSize = 8

// bench is a server that waits for the disk, as a real one does.
type bench struct {
	server *postgres.Server
	quick  bool
	n      int
}

func start(ctx context.Context, quick bool) (*bench, error) {
	server, err := postgres.Start(ctx, postgres.Options{
		Ephemeral: true, Durable: true,
		Settings: map[string]string{
			"fsync": "on", "synchronous_commit": "on", "shared_buffers": "512MB", "max_wal_size": "4GB", "track_activities": "on",
		},
	})
	if err != nil {
		return nil, err
	}
	return &bench{server: server, quick: quick}, nil
}

func (b *bench) close() { _ = b.server.Close() }

// size is how many operations a round has.
func (b *bench) size(full int) int {
	if b.quick {
		return full / 3
	}
	return full
}

// contest is something that is measured. prepare makes what a round needs, in a database of its own; go is timed.
type contest struct {
	name    string
	prepare func(ctx context.Context, b *bench, pool *pgxpool.Pool) (ops int, do func(context.Context) error, err error)
}

// result is one round.
type result struct {
	Rate      float64 `json:"rate"`
	CPU       float64 `json:"cpu_us_per_op"`
	Commits   float64 `json:"commits_per_op"`
	WAL       float64 `json:"wal_bytes_per_op"`
	Ops       int     `json:"ops"`
	DurationS float64 `json:"duration_s"`
}

// database makes a migrated database of its own.
func (b *bench) database(ctx context.Context) (url string, drop func(), err error) {
	b.n++
	name := fmt.Sprintf("bench_%d", b.n)
	if err := b.server.CreateDatabase(ctx, name); err != nil {
		return "", nil, err
	}
	url = b.server.URL(name)
	drop = func() { _ = b.server.DropDatabase(context.WithoutCancel(ctx), name) }
	return url, drop, migrations.Up(ctx, url, migrations.Options{})
}

func connect(ctx context.Context, url string) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	cfg.MaxConns = poolSize
	return pgxpool.NewWithConfig(ctx, cfg)
}

// round runs a contest once, in a fresh database.
func (b *bench) round(ctx context.Context, c contest) (r result, err error) {
	url, drop, err := b.database(ctx)
	if err != nil {
		return r, err
	}
	defer drop()
	pool, err := connect(ctx, url)
	if err != nil {
		return r, err
	}
	defer pool.Close()
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	ops, do, err := c.prepare(ctx, b, pool)
	if err != nil {
		return r, err
	}
	if _, err := pool.Exec(ctx, "vacuum analyze"); err != nil {
		return r, err
	}
	if _, err := pool.Exec(ctx, "checkpoint"); err != nil {
		return r, err
	}
	before, err := look(ctx, pool)
	if err != nil {
		return r, err
	}
	began := time.Now()
	if err := do(ctx); err != nil {
		return r, err
	}
	took := time.Since(began)
	after, err := look(ctx, pool)
	if err != nil {
		return r, err
	}
	n := float64(ops)
	return result{
		Rate: n / took.Seconds(), Ops: ops, DurationS: took.Seconds(), CPU: (after.cpu - before.cpu).Seconds() * 1e6 / n,
		Commits: float64(after.commits-before.commits) / n, WAL: float64(after.wal-before.wal) / n,
	}, nil
}

// state is what PostgreSQL and the machine have counted so far.
type state struct {
	cpu          time.Duration
	commits, wal int64
}

func look(ctx context.Context, pool *pgxpool.Pool) (s state, err error) {
	time.Sleep(1100 * time.Millisecond) // PostgreSQL's sessions report what they did once a second at the latest
	if _, err := pool.Exec(ctx, "select pg_stat_clear_snapshot()"); err != nil {
		return s, err
	}
	err = pool.QueryRow(ctx, "select xact_commit, pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint from pg_stat_database where datname = current_database()").
		Scan(&s.commits, &s.wal)
	if err != nil {
		return s, err
	}
	s.cpu, err = machineCPU()
	return s, err
}

// machineCPU is what the whole machine has worked: this process and PostgreSQL, where nothing else runs.
func machineCPU() (time.Duration, error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(strings.SplitN(string(text), "\n", 2)[0])
	if len(fields) < 8 {
		return 0, errors.New("/proc/stat has no line cpu")
	}
	var ticks int64
	for _, i := range []int{1, 2, 3, 6, 7} { // user, nice, system, irq, softirq
		n, err := strconv.ParseInt(fields[i], 10, 64)
		if err != nil {
			return 0, err
		}
		ticks += n
	}
	return time.Duration(ticks) * time.Second / 100, nil
}
