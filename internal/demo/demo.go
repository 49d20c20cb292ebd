// Package demo is `worker demo`: the whole of Weir with nothing set up by hand. A private PostgreSQL, a mail server in
// this process, real worker processes of which one is killed in the middle of a delivery and another one in the middle of
// an approved plan, and a check that everything ended as the contract says.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weirqueue/weir/desk"
	"github.com/weirqueue/weir/internal/postgres"
	"github.com/weirqueue/weir/internal/smtpsink"
	"github.com/weirqueue/weir/jobs"
	"github.com/weirqueue/weir/migrations"
	"github.com/weirqueue/weir/workers/tool/desktool"
)

// Options of a demo.
type Options struct {
	// DatabaseURL is an existing database. Empty: a private PostgreSQL with a database of its own, dropped afterwards.
	DatabaseURL string
	RiverSchema string
	// Workers is how many worker processes there are; at least 2.
	Workers int
	// Progress is told what happens, as lines of text; WorkerLogs gets the logs of the workers.
	Progress, WorkerLogs io.Writer
	Logger               *slog.Logger
}

// The demo uses leases of seconds, so that one can watch a takeover.
const (
	lease = 2 * time.Second
	// queue is the demo's own: on a database that somebody uses, its workers must not take that one's mail.
	queue    = "weir_demo"
	deadline = 90 * time.Second
)

// Demo is a running demo.
type Demo struct {
	opts   Options
	server *postgres.Server // nil on an existing database
	dbName string
	pool   *pgxpool.Pool
	client *jobs.Client
	sink   *smtpsink.Sink
	script *script
	fleet  *fleet
	url    string

	documents *desk.Store
	branches  branches // none on an existing database
}

// Start sets everything up: database, migrations, mail server, workers. Call Close.
func Start(ctx context.Context, opts Options) (_ *Demo, err error) {
	d := &Demo{opts: opts, url: opts.DatabaseURL, script: newScript()}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.Close())
		}
	}()
	if d.url == "" {
		if err := d.startPostgres(ctx); err != nil {
			return nil, err
		}
	} else {
		d.say("using the database of DATABASE_URL, in a queue of the demo's own; its runs and documents stay there")
	}
	d.say("migrating the database")
	if err := migrations.Up(ctx, d.url, migrations.Options{RiverSchema: opts.RiverSchema, Logger: opts.Logger}); err != nil {
		return nil, err
	}
	if d.pool, err = pgxpool.New(ctx, d.url); err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	if d.documents, err = desk.NewStore(d.pool); err != nil {
		return nil, err
	}
	if d.client, err = jobs.NewClient(d.pool, &jobs.Config{
		Schema: opts.RiverSchema, DeliveryQueue: queue, BranchQueue: branchQueue, PlanQueue: planQueue,
		Tools: desktool.New(d.documents).Declarations(), Logger: opts.Logger,
	}); err != nil {
		return nil, err
	}
	if d.sink, err = smtpsink.Start(smtpsink.Config{Behaviour: d.script.behave}); err != nil {
		return nil, err
	}
	d.say("a mail server listens on %s", d.sink.Addr())
	return d, d.startFleet()
}

func (d *Demo) startPostgres(ctx context.Context) (err error) {
	d.say("starting a private PostgreSQL")
	if d.server, err = postgres.Start(ctx, postgres.Options{Name: "demo"}); err != nil {
		return err
	}
	d.dbName = fmt.Sprintf("demo_%d_%d", os.Getpid(), time.Now().UnixNano())
	if err := d.server.CreateDatabase(ctx, d.dbName); err != nil {
		d.dbName = ""
		return err
	}
	d.url = d.server.URL(d.dbName)
	return d.makeBranches(ctx)
}

func (d *Demo) startFleet() (err error) {
	host, port, err := net.SplitHostPort(d.sink.Addr())
	if err != nil {
		return err
	}
	if d.fleet, err = newFleet(d.workerEnv(host, port), d.opts.WorkerLogs); err != nil {
		return err
	}
	for range max(d.opts.Workers, 2) {
		pid, err := d.fleet.spawn()
		if err != nil {
			return err
		}
		d.say("worker process %d is up", pid)
	}
	return nil
}

func (d *Demo) workerEnv(smtpHost, smtpPort string) []string {
	pgtemplate := ""
	if d.branches.target != "" {
		pgtemplate = d.server.URL("postgres")
	}
	return []string{
		"WEIR_PGTEMPLATE_URL=" + pgtemplate, "WEIR_PGTEMPLATE_PROTECTED=", "WEIR_PGTEMPLATE_EVICT_PARENT=false", "WEIR_PGTEMPLATE_PATIENCE=5s",
		"WEIR_NEON_API_KEY=", "WEIR_NEON_API_KEY_FILE=", "WEIR_BRANCH_QUEUE=" + branchQueue, "WEIR_BRANCH_WORKERS=5",
		"WEIR_BRANCH_LEASE=" + lease.String(), "WEIR_BRANCH_STEP_TIME=30s", "WEIR_BRANCH_POLL_FIRST=300ms", "WEIR_BRANCH_POLL_MAX=1s",
		"WEIR_BRANCH_LIMIT=1h", "WEIR_BRANCH_FAILED_LIMIT=10m", "WEIR_BRANCH_ASK_WAIT=10s",
		"WEIR_PLAN_QUEUE=" + planQueue, "WEIR_PLAN_WORKERS=5", "WEIR_PLAN_LEASE=" + lease.String(), "WEIR_PLAN_STEP_TIME=20s",
		"DATABASE_URL=" + d.url, "RIVER_SCHEMA=" + d.opts.RiverSchema,
		"WEIR_HTTP_ADDR=127.0.0.1:0", "WEIR_POOL_SIZE=4", "WEIR_LOG_FORMAT=text", "WEIR_LOG_LEVEL=info",
		"WEIR_DELIVERY_QUEUE=" + queue, "WEIR_DELIVERY_WORKERS=20",
		"WEIR_DELIVERY_LEASE=" + lease.String(), "WEIR_DELIVERY_STEP_TIME=20s",
		"WEIR_DELIVERY_BACKOFF_FIRST=300ms", "WEIR_DELIVERY_BACKOFF_MAX=1s", "WEIR_DELIVERY_THROTTLE_LIMIT=1h",
		"WEIR_REAPER_INTERVAL=500ms", "WEIR_DOORBELL_GRACE=2s", "WEIR_MAX_REAPS=5", "WEIR_SHUTDOWN_GRACE=2s",
		"WEIR_RETENTION=168h", "WEIR_KEY_RETENTION=720h", "WEIR_FETCH_POLL_INTERVAL=200ms",
		"WEIR_SMTP_HOST=" + smtpHost, "WEIR_SMTP_PORT=" + smtpPort, "WEIR_SMTP_FROM=weir@example.com",
		"WEIR_SMTP_USERNAME=", "WEIR_SMTP_PASSWORD=", "WEIR_SMTP_PASSWORD_FILE=", "WEIR_SMTP_TLS=none",
		"WEIR_SMTP_HELO=demo.localhost", "WEIR_SMTP_SEND_TIMEOUT=10s", "WEIR_SMTP_MAX_CONNS=10",
	}
}

// Pool is the demo's database.
func (d *Demo) Pool() *pgxpool.Pool { return d.pool }

// Client is a client on the demo's database.
func (d *Demo) Client() *jobs.Client { return d.client }

// Close stops the workers, then the mail server, then PostgreSQL.
func (d *Demo) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	var errs []error
	if d.fleet != nil {
		d.fleet.stop(ctx, 10*time.Second)
	}
	if d.sink != nil {
		errs = append(errs, d.sink.Close())
	}
	if d.pool != nil {
		d.pool.Close()
	}
	if d.server != nil {
		if d.dbName != "" {
			for _, name := range append(d.branches.names(), d.dbName) {
				errs = append(errs, d.server.DropDatabase(ctx, name))
			}
		}
		errs = append(errs, d.server.Close())
	}
	return errors.Join(errs...)
}

func (d *Demo) say(format string, args ...any) {
	fmt.Fprintf(d.opts.Progress, format+"\n", args...)
}

func plural(n int, word string) string {
	if n == 1 {
		return "1 " + word
	}
	return strconv.Itoa(n) + " " + word + "s"
}
