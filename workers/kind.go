package workers

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/weirqueue/weir/internal/operation"
	"github.com/weirqueue/weir/internal/receipts"
	"github.com/weirqueue/weir/jobs"
)

// KindConfig configures how a process works the runs of one kind of the application's own. The zero value means the
// defaults.
type KindConfig struct {
	// Queue is the River queue. Defaults to the kind's.
	Queue string
	// MaxWorkers is how many runs this process works at once. Defaults to 20; 1 to 10,000.
	MaxWorkers int
	// Lease is how long this process owns a run without renewing. Defaults to 2 min; 1 s to 1 h.
	Lease time.Duration
	// StepTime is how long one step may take: its context ends then, and the lease is not renewed any more. It is also
	// the bound on every statement of a transactional step. Defaults to the lease; at most 24 h.
	StepTime time.Duration
	// Backoff spaces failed tries. Defaults to 5 s doubling to 10 min.
	Backoff Backoff
}

func (c KindConfig) withDefaults(queue string) KindConfig {
	def(&c.Queue, queue)
	def(&c.MaxWorkers, 20)
	def(&c.Lease, 2*time.Minute)
	def(&c.StepTime, c.Lease)
	def(&c.Backoff.First, 5*time.Second)
	def(&c.Backoff.Max, max(10*time.Minute, c.Backoff.First))
	return c
}

// Binding is a kind with the functions that carry it out; see Bind.
type Binding struct {
	name  string
	cfg   KindConfig
	steps []boundStep
	need  string
	// decode reads a payload for one call of a function.
	decode func(json.RawMessage) (any, error)
	err    error
}

type boundStep struct {
	receipts.Step
	impl stepImpl
}

// Bind joins a kind with its functions, in the order of its steps; each is made by Transactional, Statement, Idempotent,
// AtLeastOnce or Reconciled, and must have the name and the effect that the kind declares. A mistake is reported by
// New or Register, together with all others.
func Bind[T any](kind *jobs.Kind[T], cfg KindConfig, steps ...StepFunc[T]) Binding {
	if kind == nil {
		return Binding{err: fmt.Errorf("%w: Bind: the kind is nil", ErrInvalidConfig)}
	}
	b := Binding{name: kind.Name(), cfg: cfg.withDefaults(kind.Queue())}
	b.decode = func(raw json.RawMessage) (any, error) {
		var payload T
		err := json.Unmarshal(raw, &payload)
		return payload, err
	}
	declared := kind.Steps()
	var faults []error
	if len(declared) != len(steps) {
		faults = append(faults, fmt.Errorf("%w: Bind(%s): the kind declares %d steps, and %d functions are given", ErrInvalidConfig, b.name, len(declared), len(steps)))
	}
	frozen := make([]operation.Step, len(declared))
	for i, d := range declared {
		frozen[i] = operation.Step{Name: d.Name, Effect: string(d.Effect)}
		if i >= len(steps) {
			continue
		}
		s := steps[i]
		if s.name != d.Name || s.effect != d.Effect {
			faults = append(faults, fmt.Errorf("%w: Bind(%s): the function of step %d is %q (%s): must be %q (%s), as the kind declares",
				ErrInvalidConfig, b.name, i, s.name, s.effect, d.Name, d.Effect))
		} else if s.noFunc {
			faults = append(faults, fmt.Errorf("%w: Bind(%s): function %d, of %s, is nil", ErrInvalidConfig, b.name, i, s.name))
		}
		b.steps = append(b.steps, boundStep{
			Step: receipts.Step{Index: i, Name: d.Name, Effect: receipts.Effect(d.Effect)}, impl: s.impl,
		})
	}
	b.need = operation.Need(b.name, frozen)
	b.err = errors.Join(faults...)
	return b
}

func (b Binding) validate() error {
	if b.err != nil {
		return b.err
	}
	if b.name == "" {
		return fault("Kinds", "Binding{}", "made by Bind")
	}
	var faults []error
	field := "Kinds." + b.name
	between := func(name string, v, low, high time.Duration) {
		if v < low || v > high {
			faults = append(faults, fault(field+"."+name, v, fmt.Sprintf("from %s to %s", low, high)))
		}
	}
	if !queueName.MatchString(b.cfg.Queue) || len(b.cfg.Queue) > 64 {
		faults = append(faults, fault(field+".Queue", b.cfg.Queue, "lower-case letters and digits, joined by - or _, at most 64 bytes"))
	}
	if b.cfg.MaxWorkers < 1 || b.cfg.MaxWorkers > 10_000 {
		faults = append(faults, fault(field+".MaxWorkers", b.cfg.MaxWorkers, "from 1 to 10000"))
	}
	between("Lease", b.cfg.Lease, minLease, maxLease)
	between("StepTime", b.cfg.StepTime, 100*time.Millisecond, 24*time.Hour)
	between("Backoff.First", b.cfg.Backoff.First, time.Millisecond, 24*time.Hour)
	between("Backoff.Max", b.cfg.Backoff.Max, b.cfg.Backoff.First, 30*24*time.Hour)
	return errors.Join(faults...)
}
