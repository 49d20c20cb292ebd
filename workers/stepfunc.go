package workers

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/weirqueue/weir/jobs"
)

// In is what a step's function gets.
type In[T any] struct {
	Run jobs.RunID
	// Payload is what was asked for, as it was frozen. Changing it changes nothing for other steps.
	Payload T
	// Step is the step's position, from 0.
	Step int
	// Key is "<run id>:<step>": the idempotency key to hand to a provider. It is the same on every try.
	Key string
	// Attempt is the fencing token under which this try runs. It differs from try to try.
	Attempt int64

	outputs map[string]json.RawMessage
}

// Output decodes what an earlier step returned, as its receipt has it, into the value that into points to. It is an
// error to ask for a step that has no receipt yet.
func (in *In[T]) Output(step string, into any) error {
	raw, ok := in.outputs[step]
	if !ok {
		return fmt.Errorf("step %q has no output yet", step)
	}
	if len(raw) == 0 {
		raw = json.RawMessage("null")
	}
	if err := json.Unmarshal(raw, into); err != nil {
		return fmt.Errorf("output of step %q: %w", step, err)
	}
	return nil
}

// StepFunc is a function for one step of a kind. See Transactional, Statement, Idempotent, AtLeastOnce and Reconciled.
type StepFunc[T any] struct {
	name   string
	effect jobs.Effect
	impl   stepImpl
	noFunc bool // it was made of nil
}

// stepImpl is a step's function without its payload's type.
type stepImpl struct {
	live      func(ctx context.Context, tx pgx.Tx, in callIn) (any, error)
	statement func(ctx context.Context, in callIn) (SQL, error)
	act       func(ctx context.Context, in callIn) (any, error)
	ask       func(ctx context.Context, in callIn) (any, bool, error)
}

// callIn is In before its type is known.
type callIn struct {
	run     jobs.RunID
	payload any
	step    int
	key     string
	attempt int64
	outputs map[string]json.RawMessage
}

func typed[T any](c callIn) *In[T] {
	payload, _ := c.payload.(T) // decoded by the same kind's binding
	return &In[T]{Run: c.run, Payload: payload, Step: c.step, Key: c.key, Attempt: c.attempt, outputs: c.outputs}
}

// Transactional makes a step of statements in the run's own database. They, the receipt with the output, and the fence
// commit together, once: whoever lost the run meanwhile commits none of them. The transaction is READ COMMITTED.
//
// f must use tx for everything that belongs to the step. tx is fit for jobs.Client's methods that end in Tx, and for
// River's. It refuses Commit and Rollback, and their SQL; a savepoint (tx.Begin) is fine. Rows must be read or closed,
// and errors of statements returned. f may be called again by the same process, with the same input, when the outcome
// of the COMMIT was unknown and turned out to be none.
//
// The output is encoded as JSON, at most 1 MiB, before the commit.
func Transactional[T, O any](name string, f func(ctx context.Context, tx pgx.Tx, in *In[T]) (O, error)) StepFunc[T] {
	return StepFunc[T]{name: name, effect: jobs.Transactional, noFunc: f == nil, impl: stepImpl{
		live: func(ctx context.Context, tx pgx.Tx, in callIn) (any, error) { return f(ctx, tx, typed[T](in)) },
	}}
}

// SQL is a statement with its parameters.
type SQL struct {
	// Text is one INSERT, UPDATE, DELETE or SELECT with RETURNING (or columns): its rows, as a JSON array of objects, are the
	// step's output. It has no writing WITH of its own. Its parameters are $1, $2, ….
	Text string
	Args []any
}

// Statement makes a transactional step of a single statement, which f writes down and Weir executes together with fence
// and receipt, in one round trip and one commit. A statement that touches no row is a step that is not ok: the try
// fails. f itself must have no effect.
//
// A statement that has proven quick may share its round trip and its commit with those of other runs that come at the
// same time, each with its own fence and receipt: now() is then the same for all. It cannot make another run fail.
func Statement[T any](name string, f func(ctx context.Context, in *In[T]) (SQL, error)) StepFunc[T] {
	return StepFunc[T]{name: name, effect: jobs.Transactional, noFunc: f == nil, impl: stepImpl{
		statement: func(ctx context.Context, in callIn) (SQL, error) { return f(ctx, typed[T](in)) },
	}}
}

// Idempotent makes a step with an effect outside, at a provider that takes an idempotency key: in.Key. It is issued
// again with the same key when its outcome is unknown. See NotSent and Refuse for its errors.
func Idempotent[T, O any](name string, f func(ctx context.Context, in *In[T]) (O, error)) StepFunc[T] {
	return outside(name, jobs.Idempotent, f)
}

// AtLeastOnce makes a step with an effect outside that is issued again when its outcome is unknown: the duplicate is
// accepted.
func AtLeastOnce[T, O any](name string, f func(ctx context.Context, in *In[T]) (O, error)) StepFunc[T] {
	return outside(name, jobs.AtLeastOnce, f)
}

func outside[T, O any](name string, effect jobs.Effect, f func(ctx context.Context, in *In[T]) (O, error)) StepFunc[T] {
	return StepFunc[T]{name: name, effect: effect, noFunc: f == nil, impl: stepImpl{
		act: func(ctx context.Context, in callIn) (any, error) { return f(ctx, typed[T](in)) },
	}}
}

// Reconciled makes a step with an effect outside that must not happen twice, at a provider that can be asked. issue is
// called only under the claim that wrote `started`, or after a try that surely did nothing (NotSent). In every other
// case ask is called: found adopts what it returns; not found fails the run with the code outcome_unknown, since what
// was issued may still arrive. ask may return an error to be asked again after a back-off.
func Reconciled[T, O any](name string, issue func(ctx context.Context, in *In[T]) (O, error), ask func(ctx context.Context, in *In[T]) (out O, found bool, err error)) StepFunc[T] {
	s := outside(name, jobs.Reconciled, issue)
	s.noFunc = s.noFunc || ask == nil
	s.impl.ask = func(ctx context.Context, in callIn) (any, bool, error) { return ask(ctx, typed[T](in)) }
	return s
}
