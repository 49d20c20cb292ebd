package workerstest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"

	"github.com/weirqueue/weir/internal/doorbell"
	"github.com/weirqueue/weir/internal/fencing"
	"github.com/weirqueue/weir/jobs"
)

// suite is one conformance run of a subject.
type suite struct {
	subject
	client *jobs.Client
	river  *river.Client[pgx.Tx]
	runs   int

	takeovers, refusals, resolved int
}

func newSuite(sub subject) (*suite, error) {
	quiet := slog.New(slog.DiscardHandler)
	client, err := jobs.NewClient(sub.pool, &jobs.Config{Schema: sub.schema, Logger: quiet})
	if err != nil {
		return nil, err
	}
	riverClient, err := river.NewClient(riverpgxv5.New(sub.pool), &river.Config{Schema: sub.schema, Logger: quiet})
	if err != nil {
		return nil, err
	}
	return &suite{subject: sub, client: client, river: riverClient}, nil
}

// run runs every scenario as a subtest, one after the other.
func (s *suite) run(t *testing.T) {
	t.Helper()
	s.runAll(t, s.scenarios())
}

func (s *suite) runAll(t *testing.T, list []scenario) {
	t.Helper()
	for _, sc := range list {
		t.Run(sc.name, func(t *testing.T) {
			if err := s.play(t.Context(), sc); err != nil {
				t.Error(err)
			}
		})
	}
	t.Logf("workerstest: %d takeovers, %d writes of replaced owners refused, %d unknown commits resolved",
		s.takeovers, s.refusals, s.resolved)
}

// scene is one scenario while it is played.
type scene struct {
	*suite
	rec       *record
	processes []*process
	gates     []*gate
	run       jobs.RunID
	task      task
	// twice is the step whose function may be called again; -1 is none.
	twice int
	// mayFail says that the run may end as failed with outcome_unknown.
	mayFail bool
}

const patience = 45 * time.Second

// play plays a scenario and looks at what is left of it.
func (s *suite) play(ctx context.Context, sc scenario) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	x := &scene{suite: s, rec: newRecord(), task: s.task(s.runs), twice: -1}
	s.runs++
	err := sc.play(ctx, x)
	var run *jobs.Run
	if err == nil {
		run, err = x.client.Wait(ctx, x.run)
	}
	if err != nil {
		err = fmt.Errorf("%w (%w)", err, x.why())
	}
	for _, g := range x.gates {
		g.release()
	}
	for _, p := range x.processes {
		p.quit()
	}
	for _, p := range x.processes {
		err = errors.Join(err, p.shutDown())
	}
	if err == nil {
		err = x.verify(ctx, run)
	}
	s.takeovers += x.heard("", isReaped) + x.heard("", isReleased)
	s.refusals += x.heard("", isRefused)
	s.resolved += x.heard("", isResolved)
	if err != nil {
		return fmt.Errorf("run %s: %w", x.run, err)
	}
	return nil
}

// start adds a process to the fleet.
func (x *scene) start(ctx context.Context, name string, wrap around) (*process, error) {
	p, err := startProcess(ctx, &x.subject, name, x.rec, wrap)
	if err != nil {
		return nil, err
	}
	x.processes = append(x.processes, p)
	failed := func() bool { return len(p.done) > 0 }
	err = x.rec.await(ctx, "the "+name+" process works", func() bool { return x.rec.count(name, isRound) > 0 || failed() })
	if err == nil && failed() {
		err = fmt.Errorf("the %s process did not start", name) // shutDown says why
	}
	return p, err
}

func (x *scene) hold(step int, after bool) *gate {
	g := newGate(step, after)
	x.gates = append(x.gates, g)
	return g
}

func (x *scene) enqueue(ctx context.Context) error {
	var err error
	x.run, err = x.task.enqueue(ctx, x.client)
	return err
}

// begin starts the first process, enqueues the run, and waits until it is held at g.
func (x *scene) begin(ctx context.Context, g *gate) (*process, error) {
	first, err := x.start(ctx, "first", g.around)
	if err != nil {
		return nil, err
	}
	if err := x.enqueue(ctx); err != nil {
		return nil, err
	}
	select {
	case <-g.reached:
		return first, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("step %d was not reached: %w", g.step, x.why())
	}
}

// why says what the run looks like when it did not get where it should.
func (x *scene) why() error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	run, err := x.client.Get(ctx, x.run)
	if err != nil {
		return err
	}
	return fmt.Errorf("it is %s, attempt %d, %d failures, %d reaps, owned: %t%s",
		run.Status, run.Attempt, run.Failures, run.Reaps, run.LeaseExpiresAt != nil, endOf(run))
}

// expire ends the lease of the run's owner, as if the owner had been frozen for that long, until somebody has reaped
// it: a heartbeat that comes in between renews it.
func (x *scene) expire(ctx context.Context) error {
	run, err := x.client.Get(ctx, x.run)
	if err != nil {
		return err
	}
	for {
		_, err := x.pool.Exec(ctx, `update weir.run set lease_expires_at = clock_timestamp() - interval '1 ms'
			where id = $1 and attempt = $2 and lease_expires_at is not null`, uuid.UUID(x.run), run.Attempt)
		if err != nil {
			return err
		}
		short, cancel := context.WithTimeout(ctx, x.lease/8)
		err = x.reaped(short)
		cancel()
		if err == nil || ctx.Err() != nil {
			return err
		}
		// The reaper's own answer may be lost, and its event with it: the attempt says as much.
		if now, err := x.client.Get(ctx, x.run); err != nil || now.Attempt != run.Attempt {
			return err
		}
	}
}

func (x *scene) reaped(ctx context.Context) error {
	return x.rec.await(ctx, "the lease was reaped", func() bool { return x.rec.count("", isReaped) > 0 })
}

// replaced waits until the second process has begun the step, or something after it, or the run has ended.
func (x *scene) replaced(ctx context.Context) error {
	for {
		short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
		err := x.rec.await(short, "somebody else went on", func() bool {
			for _, c := range x.rec.calls {
				if c.process == "second" {
					return true
				}
			}
			return false
		})
		cancel()
		if err == nil || ctx.Err() != nil {
			return err
		}
		if run, err := x.client.Get(ctx, x.run); err != nil || run.Terminal() {
			return err
		}
	}
}

// refused waits until the first process has learned that its write does not count.
func (x *scene) refused(ctx context.Context) error {
	return x.rec.await(ctx, "the replaced owner's write was refused", func() bool { return x.rec.count("first", isRefused) > 0 })
}

// ring rings n doorbells more for the run.
func (x *scene) ring(ctx context.Context, n int) error {
	return pgx.BeginFunc(ctx, x.pool, func(tx pgx.Tx) error {
		rung := make([]fencing.Rung, n)
		for i := range rung {
			rung[i] = fencing.Rung{Run: uuid.UUID(x.run), Kind: x.kind, Queue: x.queue, Priority: 1}
		}
		_, err := doorbell.New(x.river).Ring(ctx, tx, rung)
		return err
	})
}
