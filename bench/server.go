package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weirqueue/weir/internal/postgres"
	"github.com/weirqueue/weir/migrations"
)

// poolSize is the same for all: about four connections a core were fastest.
const poolSize = 8

// options are how a bench runs.
type options struct {
	quick, statements bool
	rounds            int
	only, heap        string
	// scale multiplies the number of operations of everything; tests make it tiny.
	scale float64
	// careless leaves out what only figures need: waiting for the disk, and for PostgreSQL's own statistics.
	careless bool
}

// bench is a server that waits for the disk, as a real one does.
type bench struct {
	options
	server   *postgres.Server
	progress io.Writer // nil: nobody is told
	wire     wire
	n        int // databases made so far
}

// template is a migrated database that the others are copied from.
const template = "bench_template"

func start(ctx context.Context, opts options) (*bench, error) {
	settings := map[string]string{"shared_buffers": bufferSize, "max_wal_size": "4GB", "track_activities": "on"}
	if !opts.careless {
		settings["fsync"], settings["synchronous_commit"] = "on", "on"
	}
	if opts.statements {
		settings["shared_preload_libraries"], settings["pg_stat_statements.track_planning"] = "pg_stat_statements", "on"
	}
	server, err := postgres.Start(ctx, postgres.Options{Ephemeral: true, Durable: !opts.careless, Settings: settings})
	if err != nil {
		return nil, err
	}
	b := &bench{options: opts, server: server}
	err = server.CreateDatabase(ctx, template)
	if err == nil {
		err = migrations.Up(ctx, server.URL(template), migrations.Options{})
	}
	if err != nil {
		b.close()
		return nil, err
	}
	return b, nil
}

const bufferSize = "512MB"

func (b *bench) close() { _ = b.server.Close() }

// contest is something that is measured: so many operations in a round. prepare makes what n of them need, in a database of
// the round's own; what it returns is timed.
type contest struct {
	name    string
	ops     int
	prepare prepare
	// wire says what an operation costs on the wire where it is not this process that talks to PostgreSQL.
	wire *perOp
}

type prepare func(ctx context.Context, pool *pgxpool.Pool, n int) (do func(context.Context) error, err error)

// perOp is what an operation costs on the wire.
type perOp struct{ trips, statements float64 }

// warmUp is how many operations go before the clock starts, on the same connections: a session that is new plans and
// loads what one that is a second old has.
const warmUp = 3000

// result is one round.
type result struct {
	Rate       float64 `json:"rate"`
	Client     float64 `json:"client_cpu_us_per_op"`
	Server     float64 `json:"server_cpu_us_per_op"`
	Commits    float64 `json:"commits_per_op"`
	Trips      float64 `json:"round_trips_per_op"`
	Statements float64 `json:"statements_per_op"`
	WAL        float64 `json:"wal_bytes_per_op"`
}

// database makes a migrated database of its own.
func (b *bench) database(ctx context.Context) (url string, drop func(), err error) {
	b.n++
	name := fmt.Sprintf("bench_%d", b.n)
	if err := b.server.CopyDatabase(ctx, name, template); err != nil {
		return "", nil, err
	}
	drop = func() { _ = b.server.DropDatabase(context.WithoutCancel(ctx), name) }
	return b.server.URL(name), drop, nil
}

func (b *bench) connect(ctx context.Context, url string) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	cfg.MaxConns, cfg.ConnConfig.DialFunc = poolSize, b.wire.dial
	return pgxpool.NewWithConfig(ctx, cfg)
}

// scaled is a number of operations, rows or samples as the options want it.
func (b *bench) scaled(n int) int {
	if b.scale > 0 {
		n = int(float64(n) * b.scale)
	}
	return max(n, 20)
}

// round runs a contest once, in a fresh database.
func (b *bench) round(ctx context.Context, c contest) (r result, err error) {
	url, drop, err := b.database(ctx)
	if err != nil {
		return r, err
	}
	defer drop()
	return b.roundIn(ctx, url, c)
}

// roundIn runs a contest once, in a database that is there.
func (b *bench) roundIn(ctx context.Context, url string, c contest) (r result, err error) {
	pool, err := b.connect(ctx, url)
	if err != nil {
		return r, err
	}
	defer pool.Close()
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	ops := b.scaled(c.ops)
	if b.quick {
		ops = max(ops/2, 20)
	}
	do, err := c.prepare(ctx, pool, min(warmUp, ops/4))
	if err == nil {
		err = do(ctx)
	}
	if err != nil {
		return r, err
	}
	if do, err = c.prepare(ctx, pool, ops); err != nil {
		return r, err
	}
	for _, sql := range []string{"vacuum analyze", "checkpoint"} {
		if _, err := pool.Exec(ctx, sql); err != nil {
			return r, err
		}
	}
	if err := b.watchStatements(ctx, pool); err != nil {
		return r, err
	}
	before, err := b.look(ctx, pool)
	if err != nil {
		return r, err
	}
	began := time.Now()
	if err := do(ctx); err != nil {
		return r, err
	}
	took := time.Since(began)
	after, err := b.look(ctx, pool)
	if err != nil {
		return r, err
	}
	if err := b.sayStatements(ctx, pool, c.name, ops); err != nil {
		return r, err
	}
	n := float64(ops)
	r = result{
		Rate: n / took.Seconds(), Client: (after.client - before.client).Seconds() * 1e6 / n, Server: (after.server - before.server).Seconds() * 1e6 / n,
		Commits: float64(after.commits-before.commits) / n, WAL: float64(after.wal-before.wal) / n,
		Trips: float64(after.trips-before.trips) / n, Statements: float64(after.statements-before.statements) / n,
	}
	if c.wire != nil {
		r.Trips, r.Statements = c.wire.trips, c.wire.statements
	}
	return r, nil
}

// state is what PostgreSQL and this process have counted so far.
type state struct {
	client, server    time.Duration
	commits, wal      int64
	trips, statements int64
}

func (b *bench) look(ctx context.Context, pool *pgxpool.Pool) (s state, err error) {
	if err := b.reported(ctx, pool); err != nil {
		return s, err
	}
	if _, err := pool.Exec(ctx, "select pg_stat_clear_snapshot()"); err != nil {
		return s, err
	}
	var dir string
	err = pool.QueryRow(ctx, `select xact_commit, pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint, current_setting('data_directory')
		from pg_stat_database where datname = current_database()`).Scan(&s.commits, &s.wal, &dir)
	if err != nil {
		return s, err
	}
	s.trips, s.statements = b.wire.trips.Load(), b.wire.statements.Load()
	// The children that have ended are pgbench's.
	for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		var use syscall.Rusage
		if err := syscall.Getrusage(who, &use); err != nil {
			return s, err
		}
		s.client += time.Duration(use.Utime.Nano() + use.Stime.Nano())
	}
	s.server, err = serverCPU(dir)
	return s, err
}

// reported waits until PostgreSQL's sessions have told its statistics what they did. The pool's are asked to, others have once
// they are gone; those that stay do so once a second.
func (b *bench) reported(ctx context.Context, pool *pgxpool.Pool) error {
	for _, conn := range pool.AcquireAllIdle(ctx) {
		_, err := conn.Exec(ctx, "select pg_stat_force_next_flush()")
		conn.Release()
		if err != nil {
			return err
		}
	}
	const patience = 1100 * time.Millisecond
	for began := time.Now(); !b.careless && time.Since(began) < patience; pause(ctx, 20*time.Millisecond) {
		var sessions int32
		if err := pool.QueryRow(ctx, "select count(*) from pg_stat_activity where datname = current_database() and backend_type = 'client backend'").
			Scan(&sessions); err != nil {
			return err
		}
		if sessions <= pool.Stat().TotalConns() {
			return nil
		}
	}
	return nil
}

// serverCPU is what all processes of a PostgreSQL have worked: those that are there, which have its data directory as their
// own, and those that its postmaster has seen end.
func serverCPU(dir string) (time.Duration, error) {
	text, err := os.ReadFile(filepath.Join(dir, "postmaster.pid"))
	if err != nil {
		return 0, err
	}
	postmaster, _, _ := strings.Cut(string(text), "\n")
	dirs, err := filepath.Glob("/proc/[0-9]*/cwd")
	if err != nil {
		return 0, err
	}
	var ticks int64
	for _, link := range dirs {
		if at, err := os.Readlink(link); err != nil || at != dir {
			continue
		}
		stat, err := os.ReadFile(filepath.Join(filepath.Dir(link), "stat"))
		if err != nil {
			continue // it has just ended
		}
		pid, rest, _ := strings.Cut(string(stat), " (")
		fields := strings.Fields(rest[strings.LastIndex(rest, ")")+1:])
		upTo := 13 // its own, user and system
		if pid == postmaster {
			upTo = 15 // and those of the children that it waited for
		}
		for _, field := range fields[11:upTo] {
			n, err := strconv.ParseInt(field, 10, 64)
			if err != nil {
				return 0, err
			}
			ticks += n
		}
	}
	return time.Duration(ticks) * time.Second / 100, nil
}
