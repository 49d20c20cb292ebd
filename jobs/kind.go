package jobs

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"

	"github.com/weirqueue/weir/internal/delivery"
	"github.com/weirqueue/weir/internal/doorbell"
	"github.com/weirqueue/weir/internal/operation"
)

// Effect declares what an unknown outcome of a step means. See docs/concepts.md.
type Effect string

// The effects.
const (
	// Transactional: the effect is in the run's own database and commits with its receipt. It cannot stay unknown.
	Transactional Effect = "transactional"
	// Idempotent: issued again with the same key, which the provider honours.
	Idempotent Effect = "idempotent"
	// AtLeastOnce: issued again; the duplicate is accepted.
	AtLeastOnce Effect = "at_least_once"
	// Reconciled: the provider is asked what happened; never issued again blindly.
	Reconciled Effect = "reconciled"
)

// Limits of kinds and runs.
const (
	MaxSteps        = 100
	MaxPayloadBytes = 1 << 20
	MaxOutputBytes  = 1 << 20
)

// Step declares one step of a kind.
type Step struct {
	// Name is the step's name in receipts, outputs and pages: a lower-case letter, then letters, digits and _, at most 63.
	Name   string
	Effect Effect
}

// KindConfig declares a kind beside its name and payload.
type KindConfig struct {
	// Steps are executed in this order, each at most once successfully. From 1 to 100. The list is frozen into each run
	// when it is enqueued: a worker with another list leaves the run to others.
	Steps []Step
	// MaxAttempts is how many failed tries a run may have. Defaults to 5; 1 to 1,000.
	MaxAttempts int
	// Queue is the River queue. Defaults to "weir_" and the kind's name.
	Queue string
}

// Kind is an operation of the application's own: a name, a payload type and a list of steps. It is immutable, needs no
// worker code, and is bound to functions by package workers.
type Kind[T any] struct {
	name  string
	cfg   KindConfig
	steps []operation.Step
}

var (
	kindName = regexp.MustCompile(`^[a-z][a-z0-9]*(_[a-z0-9]+)*$`)
	stepName = regexp.MustCompile(`^[a-z][a-z0-9_]{0,62}$`)
	builtIn  = map[string]bool{
		KindDelivery: true, KindDelivery + "_chunk": true, keyOfNotifications: true, "plan": true, KindBranchReset: true, "maintenance": true,
	}
)

// NewKind declares a kind. The error is one or more *InvalidError.
func NewKind[T any](name string, cfg KindConfig) (*Kind[T], error) {
	if cfg.MaxAttempts == 0 {
		cfg.MaxAttempts = 5
	}
	if cfg.Queue == "" {
		cfg.Queue = doorbell.QueueOf(name)
	}
	var faults []error
	if len(name) < 2 || len(name) > 50 || !kindName.MatchString(name) {
		faults = append(faults, invalid("Kind.Name", name, "2 to 50 lower-case letters and digits, joined by _"))
	} else if builtIn[name] {
		faults = append(faults, invalid("Kind.Name", name, "a name that is not one of Weir's own"))
	} else {
		faults = append(faults, validateQueue("KindConfig.Queue", cfg.Queue))
	}
	if cfg.MaxAttempts < 1 || cfg.MaxAttempts > MaxFailuresLimit {
		faults = append(faults, invalid("KindConfig.MaxAttempts", strconv.Itoa(cfg.MaxAttempts), fmt.Sprintf("from 1 to %d, or 0 for 5", MaxFailuresLimit)))
	}
	if n := len(cfg.Steps); n < 1 || n > MaxSteps {
		faults = append(faults, invalid("KindConfig.Steps", strconv.Itoa(n)+" steps", fmt.Sprintf("from 1 to %d steps", MaxSteps)))
	}
	seen := map[string]bool{}
	k := &Kind[T]{name: name, cfg: cfg}
	for i, s := range cfg.Steps {
		field := fmt.Sprintf("KindConfig.Steps[%d]", i)
		if !stepName.MatchString(s.Name) {
			faults = append(faults, invalid(field+".Name", s.Name, "a lower-case letter, then letters, digits and _, at most 63"))
		} else if seen[s.Name] {
			faults = append(faults, invalid(field+".Name", s.Name, "different from every other step's"))
		}
		seen[s.Name] = true
		switch s.Effect {
		case Transactional, Idempotent, AtLeastOnce, Reconciled:
		default:
			faults = append(faults, invalid(field+".Effect", string(s.Effect), "transactional, idempotent, at_least_once or reconciled"))
		}
		k.steps = append(k.steps, operation.Step{Name: s.Name, Effect: string(s.Effect)})
	}
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	return k, nil
}

// MustKind is NewKind for a package variable: it panics where NewKind returns an error.
func MustKind[T any](name string, cfg KindConfig) *Kind[T] {
	k, err := NewKind[T](name, cfg)
	if err != nil {
		panic(err)
	}
	return k
}

// Name is the kind's name.
func (k *Kind[T]) Name() string { return k.name }

// Steps are the declared steps.
func (k *Kind[T]) Steps() []Step { return append([]Step(nil), k.cfg.Steps...) }

// Queue is the River queue.
func (k *Kind[T]) Queue() string { return k.cfg.Queue }

// MaxAttempts is the budget of failed tries.
func (k *Kind[T]) MaxAttempts() int { return k.cfg.MaxAttempts }

// Request is a run that is asked for: a kind and a payload. See Kind.Of.
type Request struct {
	kind, queue, need string
	maxAttempts       int
	body, digest      []byte
	asked             []byte // what a key is compared by, where that is not the payload
	err               error
}

// Of makes the request for a run with this payload, for Enqueue. The payload is encoded here and frozen: changing it
// afterwards changes nothing. One that cannot be encoded, or is larger than 1 MiB, is an *InvalidError of the enqueue.
func (k *Kind[T]) Of(payload T) Request {
	r := Request{kind: k.name, queue: k.cfg.Queue, need: operation.Need(k.name, k.steps), maxAttempts: k.cfg.MaxAttempts}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(payload); err != nil {
		r.err = invalid("Payload", fmt.Sprintf("%T", payload), "encodable as JSON: "+err.Error())
		return r
	}
	if b.Len() > MaxPayloadBytes {
		r.err = invalid("Payload", fmt.Sprintf("%d bytes", b.Len()), fmt.Sprintf("at most %d bytes of JSON", MaxPayloadBytes))
		return r
	}
	r.body, r.digest, r.err = operation.Frozen{Kind: k.name, Steps: k.steps, Payload: bytes.TrimSpace(b.Bytes())}.Encode()
	return r
}

// keyDigest is what an idempotency key is compared by: the payload, not the list of steps, which a deploy may change.
func (r Request) keyDigest() ([]byte, error) {
	if r.asked != nil {
		return delivery.Digest(r.asked), nil
	}
	f, err := operation.Decode(r.body, r.digest)
	if err != nil {
		return nil, err
	}
	return delivery.Digest(f.Payload), nil
}
