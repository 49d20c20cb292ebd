// Package drill lets anybody check what Weir promises: it breaks real worker processes, their connections and their
// database under load, and then reads from the records whether every promise was kept.
package drill

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weirqueue/weir/internal/faultproxy"
	"github.com/weirqueue/weir/internal/postgres"
	"github.com/weirqueue/weir/jobs"
	"github.com/weirqueue/weir/migrations"
	"github.com/weirqueue/weir/workers"
)

// Options of a drill.
type Options struct {
	// DatabaseURL is an existing database, which gets a schema weir_drill for that time. Empty: a private PostgreSQL.
	DatabaseURL string
	RiverSchema string
	// Duration is how long things are broken. What is under way then may end afterwards.
	Duration time.Duration
	// Workers is how many processes there are, at least 2; half of them are broken at a time, at most.
	Workers int
	Lease   time.Duration
	// Reaper is the interval of the workers' reapers. Defaults to 500 ms.
	Reaper time.Duration
	Seed   uint64
	// Only names faults; empty means all.
	Only []string
	// Other is another build of this program: processes are of one or the other, by turns.
	Other string
	// Args make this program run RunWorker when it is started with a worker's environment.
	Args []string
	// HistoryFile gets every change. Empty: it is kept only when something is broken.
	HistoryFile string
	// Again is how one runs this again, without the seed.
	Again string
	// Progress is told what happens, WorkerLogs gets the workers' logs.
	Progress, WorkerLogs io.Writer
}

func (o Options) stepTime() time.Duration { return o.Lease * 3 / 2 }

// drill is a running drill.
type drill struct {
	opts     Options
	subjects []Subject
	server   *postgres.Server
	pool     *pgxpool.Pool
	fleet    *fleet
	nemesis  *nemesis
	stalls   *stalls
	load     *load
	offset   time.Duration // of the database's clock to this process's
	stay     *stay         // nil on a private PostgreSQL

	saying sync.Mutex
	mu     sync.Mutex
	ended  []string // workers whose end was nobody's doing
}

// Run sets everything up, breaks things for the duration, and checks. It leaves no process behind.
func Run(ctx context.Context, opts Options, subjects []Subject) (_ *Report, err error) {
	if opts.Reaper == 0 {
		opts.Reaper = 500 * time.Millisecond
	}
	d := &drill{opts: opts, subjects: subjects}
	defer func() { err = errors.Join(err, d.close()) }()
	if err := d.setUp(ctx); err != nil {
		return nil, err
	}
	began := time.Now()
	if err := d.play(ctx); err != nil {
		return nil, err
	}
	report := &Report{Seed: opts.Seed, DurationS: time.Since(began).Seconds(), Again: fmt.Sprintf("%s --seed %d", opts.Again, opts.Seed), Faults: d.nemesis.counts}
	if err := d.judge(ctx, report); err != nil {
		return nil, err
	}
	return report, nil
}

// say is called by the lanes of the nemesis, by whoever sees a worker end, and by progress.
func (d *drill) say(format string, args ...any) {
	d.saying.Lock()
	defer d.saying.Unlock()
	fmt.Fprintf(d.opts.Progress, format+"\n", args...)
}

func (d *drill) setUp(ctx context.Context) (err error) {
	url := d.opts.DatabaseURL
	if url == "" {
		d.say("starting a private PostgreSQL")
		// A commit that was answered must outlive an immediate stop.
		d.server, err = postgres.Start(ctx, postgres.Options{Ephemeral: true, Settings: map[string]string{"synchronous_commit": "on"}})
		if err != nil {
			return err
		}
		if err := d.server.CreateDatabase(ctx, "drill"); err != nil {
			return err
		}
		url = d.server.URL("drill")
	}
	quiet := slog.New(slog.DiscardHandler)
	if err := migrations.Up(ctx, url, migrations.Options{RiverSchema: d.opts.RiverSchema, Logger: quiet}); err != nil {
		return err
	}
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return errors.New("drill: DATABASE_URL is not a PostgreSQL URL or keyword/value string")
	}
	cfg.MaxConns = 12
	cfg.ConnConfig.RuntimeParams["application_name"] = "weir drill"
	if d.pool, err = pgxpool.NewWithConfig(ctx, cfg); err != nil {
		return err
	}
	if d.server == nil {
		if d.stay, err = moveIn(ctx, d.pool, d.opts.RiverSchema); err != nil {
			return err
		}
	}
	if err := install(ctx, d.pool); err != nil {
		return err
	}
	var now time.Time
	if err := d.pool.QueryRow(ctx, "select clock_timestamp()").Scan(&now); err != nil {
		return err
	}
	d.offset = time.Until(now)
	client, err := jobs.NewClient(d.pool, &jobs.Config{
		Schema: d.opts.RiverSchema, PlanQueue: planQueue, Tools: []*jobs.Tool{noteTool, chargeTool, shipTool}, Logger: quiet,
	})
	if err != nil {
		return err
	}
	d.load = &load{pool: d.pool, client: client, subjects: d.subjects, outstanding: 3 * d.opts.Workers, say: d.say, failed: map[string]error{}}
	return d.startFleet(ctx, url, cfg)
}

func (d *drill) startFleet(ctx context.Context, url string, cfg *pgxpool.Config) error {
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("drill: find this program: %w", err)
	}
	env := map[string]string{}
	var names []string
	for _, s := range d.subjects {
		more, err := s.Setup(ctx, d.pool)
		if err != nil {
			return err
		}
		for k, v := range more {
			env[k] = v
		}
		names = append(names, s.Name())
	}
	d.fleet = &fleet{
		programs: []string{program}, args: d.opts.Args, database: *cfg.ConnConfig, logs: d.opts.WorkerLogs,
		config: workerConfig{
			RiverSchema: d.opts.RiverSchema, Reaper: d.opts.Reaper, Subjects: names, Env: env,
			Limits: Limits{
				Lease: d.opts.Lease, StepTime: d.opts.stepTime(), MaxWorkers: 3 * d.opts.Workers,
				Backoff: workers.Backoff{First: 100 * time.Millisecond, Max: time.Second},
			},
		},
		unexpected: d.endedByItself,
	}
	if d.opts.Other != "" {
		d.fleet.programs = append(d.fleet.programs, d.opts.Other)
	}
	for i := range d.opts.Workers {
		proxy, err := faultproxy.New(url)
		if err != nil {
			return err
		}
		s := &slot{number: i + 1, proxy: proxy}
		d.fleet.slots = append(d.fleet.slots, s)
		if err := d.fleet.spawn(s, i); err != nil {
			return err
		}
	}
	for _, s := range d.fleet.slots {
		if !s.up(ctx, 30*time.Second) {
			return errors.Join(context.Cause(ctx), fmt.Errorf("drill: worker %s does not come up", s.name()))
		}
	}
	d.nemesis = &nemesis{
		fleet: d.fleet, pool: d.pool, server: d.server, lease: d.opts.Lease, programs: len(d.fleet.programs),
		clock: func() time.Time { return time.Now().Add(d.offset) }, only: map[string]bool{}, say: d.say,
		rng: rand.New(rand.NewPCG(d.opts.Seed, 3)), counts: map[string]int{}, // #nosec G404 -- a seed is to be repeated
	}
	for _, name := range d.opts.Only {
		d.nemesis.only[name] = true
	}
	return nil
}

// play breaks things for the duration, and lets everything end.
func (d *drill) play(ctx context.Context) error {
	d.say("%d workers, leases of %s, seed %d, for %s", d.opts.Workers, d.opts.Lease, d.opts.Seed, d.opts.Duration)
	playing, enough := context.WithTimeout(ctx, d.opts.Duration)
	defer enough()
	told := make(chan struct{})
	go func() { defer close(told); d.progress(playing) }()
	d.stalls = &stalls{clock: d.nemesis.clock}
	broken, loaded, watched := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() { defer close(watched); d.stalls.watch(playing, d.pool) }()
	go func() { defer close(loaded); d.load.run(playing) }()
	go func() { defer close(broken); d.nemesis.run(playing) }()
	<-loaded
	<-broken
	<-watched
	<-told
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	d.nemesis.heal()
	d.say("nothing is broken any more; waiting until every run has ended")
	left, err := d.load.drain(ctx, max(time.Minute, 20*d.opts.Lease))
	if err != nil {
		return err
	}
	if left > 0 {
		d.say("%d runs did not end", left)
	}
	d.fleet.stop(10 * time.Second)
	return ctx.Err()
}

func (d *drill) progress(ctx context.Context) {
	for {
		sleep(ctx, 5*time.Second)
		if ctx.Err() != nil {
			return
		}
		var done, reaped int
		err := d.pool.QueryRow(ctx, `select count(*) filter (where r.finished_at is not null), (select count(*) from weir.ended_try where how = 'reaped')
			from weir_drill.asked a join weir.run r on r.id = a.run_id`).Scan(&done, &reaped)
		kills, stops, cuts := d.nemesis.tally()
		if err == nil {
			d.say("%6d runs ended, %5d leases reaped, %3d kills, %3d stops, %3d cuts", done, reaped, kills, stops, cuts)
		}
	}
}

// endedByItself notes a worker that crashed, or did not end well when it was asked to.
func (d *drill) endedByItself(worker string, err error) {
	d.say("worker %s ended by itself: %v", worker, err)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ended = append(d.ended, fmt.Sprintf("worker %s ended by itself: %v", worker, err))
}

// provingTime is from when on a subject must have seen what it is there for: before, chance decides.
const provingTime = 30 * time.Second

// judge reads the records, and keeps them when something is broken.
func (d *drill) judge(ctx context.Context, r *Report) (err error) {
	history, err := openHistory(d.opts, d.nemesis.faults)
	if err != nil {
		return err
	}
	records, err := readRecords(ctx, d.pool, d.opts.Lease, history.add)
	if err != nil {
		return errors.Join(err, history.close(false))
	}
	r.Kills, r.Stops, r.Cuts = d.nemesis.tally()
	c := &checker{opts: d.opts, faults: d.nemesis.faults, stalls: d.stalls}
	r.StalledS = d.stalls.total().Seconds()
	if err := c.check(ctx, d.pool, d.subjects, records, r); err != nil {
		return errors.Join(err, history.close(false))
	}
	for _, b := range d.nemesis.broken {
		r.fault("%s", b)
	}
	d.mu.Lock()
	for _, b := range d.ended {
		r.fault("%s", b)
	}
	d.mu.Unlock()
	for _, s := range d.subjects {
		if len(records.Runs(s.Kind())) == 0 {
			r.fault("there was no run of %s: %v", s.Name(), d.load.failed[s.Name()])
		}
	}
	switch {
	case len(d.opts.Only) == 0:
		r.prove(d.opts.Duration)
		for _, s := range d.subjects {
			if p, ok := s.(proving); ok && d.opts.Duration >= provingTime {
				for _, f := range p.Prove(records) {
					r.fault(tooLittle+"%s", f)
				}
			}
		}
	case len(d.nemesis.faults) == 0:
		r.fault("too little landed to prove anything: none of the faults that were asked for")
	}
	r.OK = len(r.Broken) == 0
	keep := !r.OK || d.opts.HistoryFile != ""
	if keep {
		r.History = history.path
	}
	return history.close(keep)
}

func (d *drill) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	var errs []error
	if d.fleet != nil {
		d.fleet.stop(2 * time.Second)
	}
	for _, s := range d.subjects {
		errs = append(errs, s.Close())
	}
	if d.pool != nil {
		if d.stay != nil {
			errs = append(errs, d.stay.moveOut(ctx))
		}
		d.pool.Close()
	}
	if d.server != nil {
		errs = append(errs, d.server.Close())
	}
	return errors.Join(errs...)
}

// Subjects are the built-in ones.
func Subjects(seed uint64) []Subject {
	return []Subject{newDeliveries(seed), newOrders(seed), newResets(seed), newPlans(seed)}
}
