package workerstest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weirqueue/weir/workers"
)

// around is what a scenario does to the calls of one process.
type around func(ctx context.Context, call workers.StepCall, next func(context.Context) (any, error)) (any, error)

// call is one call of a step's function, as the suite saw it.
type call struct {
	workers.StepCall
	process string
	// gone is closed when the call's context has ended.
	gone  <-chan struct{}
	out   any
	err   error
	ended bool
}

// happening is what a process's observer heard.
type happening struct {
	process string
	event   workers.Event
}

// record is what happened in a scenario.
type record struct {
	mu      sync.Mutex
	calls   []*call
	heard   []happening
	changed chan struct{}
}

func newRecord() *record { return &record{changed: make(chan struct{})} }

func (r *record) change(do func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	do()
	close(r.changed)
	r.changed = make(chan struct{})
}

// await waits until cond, which is called with the record locked, is true.
func (r *record) await(ctx context.Context, what string, cond func() bool) error {
	for {
		r.mu.Lock()
		ok, changed := cond(), r.changed
		r.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waited in vain until %s: %w", what, context.Cause(ctx))
		case <-changed:
		}
	}
}

// keep returns wrap with every call of the process kept in the record.
func (r *record) keep(process string, wrap around) around {
	return func(ctx context.Context, sc workers.StepCall, next func(context.Context) (any, error)) (any, error) {
		c := &call{StepCall: sc, process: process, gone: ctx.Done()}
		r.change(func() { r.calls = append(r.calls, c) })
		out, err := wrap(ctx, sc, next)
		r.change(func() { c.out, c.err, c.ended = out, err, true })
		return out, err
	}
}

// count counts events of a process, or of all, that match.
func (r *record) count(process string, match func(workers.Event) bool) int {
	n := 0
	for _, h := range r.heard {
		if (process == "" || h.process == process) && match(h.event) {
			n++
		}
	}
	return n
}

func isReaped(e workers.Event) bool   { _, ok := e.(workers.RunReaped); return ok }
func isRefused(e workers.Event) bool  { _, ok := e.(workers.LeaseLost); return ok }
func isResolved(e workers.Event) bool { _, ok := e.(workers.DoubtResolved); return ok }
func isRound(e workers.Event) bool    { _, ok := e.(workers.MaintenanceDone); return ok }

func isReleased(e workers.Event) bool {
	ended, ok := e.(workers.TryEnded)
	return ok && ended.How == "released"
}

func isAnswered(e workers.Event) bool {
	not, ok := e.(workers.RunNotClaimed)
	return ok && not.Reason == "terminal"
}

// process is one process of the fleet: its own binding, pool and way to the database, and nothing that it shares with
// the others but the database and what is outside.
type process struct {
	name  string
	link  *link
	pool  *pgxpool.Pool
	fleet *workers.Fleet
	quit  context.CancelFunc
	done  chan error
	// release lets go of what the process was equipped with, after its end; nil is nothing.
	release func() error
	// crashed: its end is not looked at.
	crashed bool
}

func startProcess(ctx context.Context, sub *subject, name string, rec *record, wrap around) (*process, error) {
	poolConfig := sub.pool.Config()
	conn := poolConfig.ConnConfig
	p := &process{name: name, link: &link{dialer: conn.DialFunc}, done: make(chan error, 1)}
	conn.DialFunc = p.link.dial
	conn.TLSConfig, conn.Fallbacks = nil, nil // the link reads what is sent
	poolConfig.MaxConns, poolConfig.MinConns = 6, 0
	var err error
	if p.pool, err = pgxpool.NewWithConfig(ctx, poolConfig); err != nil {
		return nil, err
	}
	cfg := &workers.Config{
		Schema: sub.schema, Logger: slog.New(slog.DiscardHandler),
		ReaperInterval: 100 * time.Millisecond, DoorbellGrace: 500 * time.Millisecond, FetchPollInterval: 100 * time.Millisecond,
		ShutdownGrace: 2 * time.Second,
		Observer: workers.ObserverFunc(func(_ context.Context, e workers.Event) {
			rec.change(func() { rec.heard = append(rec.heard, happening{name, e}) })
		}),
	}
	p.release, err = sub.equip(cfg, rec.keep(name, wrap))
	if err == nil {
		p.fleet, err = workers.New(p.pool, cfg)
	}
	if err != nil {
		p.pool.Close()
		return nil, errors.Join(err, p.letGo())
	}
	runCtx, quit := context.WithCancel(context.WithoutCancel(ctx))
	p.quit = quit
	go func() {
		err := p.fleet.Run(runCtx)
		rec.change(func() { p.done <- err })
	}()
	return p, nil
}

// stopping waits until the process takes no new work, after quit.
func (p *process) stopping(ctx context.Context) error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for p.fleet.Healthy() == nil {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
	return nil
}

// shutDown ends the process and closes its pool. A function that ignores its context is an error.
func (p *process) shutDown() error {
	p.quit()
	var err error
	select {
	case err = <-p.done:
	case <-time.After(20 * time.Second):
		return fmt.Errorf("the %s process did not end", p.name)
	}
	closed := make(chan struct{})
	go func() { p.pool.Close(); close(closed) }()
	select {
	case <-closed:
	case <-time.After(10 * time.Second):
		return fmt.Errorf("the %s process still uses a connection: a step's function has not returned", p.name)
	}
	if err := p.letGo(); err != nil {
		return fmt.Errorf("the %s process: %w", p.name, err)
	}
	if err != nil && !p.crashed {
		return fmt.Errorf("the %s process: %w", p.name, err)
	}
	return nil
}

func (p *process) letGo() error {
	if p.release == nil {
		return nil
	}
	return p.release()
}

func pass(ctx context.Context, _ workers.StepCall, next func(context.Context) (any, error)) (any, error) {
	return next(ctx)
}

// gate holds the first call of one step up, before or after the user's function.
type gate struct {
	step    int
	after   bool
	reached chan struct{}
	open    chan struct{}
	passed  sync.Once
	opened  sync.Once
	// cause is why the call's context had ended when it was let through.
	cause error
}

func newGate(step int, after bool) *gate {
	return &gate{step: step, after: after, reached: make(chan struct{}), open: make(chan struct{})}
}

func (g *gate) around(ctx context.Context, call workers.StepCall, next func(context.Context) (any, error)) (any, error) {
	if call.Step != g.step {
		return next(ctx)
	}
	if g.after {
		out, err := next(ctx)
		g.wait(ctx)
		return out, err
	}
	g.wait(ctx)
	return next(ctx)
}

func (g *gate) wait(ctx context.Context) {
	g.passed.Do(func() {
		close(g.reached)
		<-g.open
		g.cause = context.Cause(ctx)
	})
}

func (g *gate) release() { g.opened.Do(func() { close(g.open) }) }
