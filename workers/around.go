package workers

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/weirqueue/weir/jobs"
)

// StepCall is one call of a step's function.
type StepCall struct {
	Kind   string
	Run    jobs.RunID
	Step   int
	Name   string
	Effect jobs.Effect
	// Attempt is the fencing token of the try.
	Attempt int64
	// Asking says that it is the asking function of a Reconciled step.
	Asking bool
}

// Around returns the binding with around wrapped about every call of its steps' functions, for tracing and for tests.
// around must call next once, or not at all, and return what it returned, or an error. What next returns is the step's
// output, or the SQL of a Statement; for an asking function that found nothing it is nil. Of a transactional step only
// the function is inside: its commit comes after around has returned.
func (b Binding) Around(around func(ctx context.Context, call StepCall, next func(context.Context) (any, error)) (any, error)) Binding {
	steps := make([]boundStep, len(b.steps))
	for i, s := range b.steps {
		call := StepCall{Kind: b.name, Step: i, Name: s.Name, Effect: jobs.Effect(s.Effect)}
		at := func(in callIn) StepCall {
			call := call
			call.Run, call.Attempt = in.run, in.attempt
			return call
		}
		inner := s.impl
		if inner.live != nil {
			s.impl.live = func(ctx context.Context, tx pgx.Tx, in callIn) (any, error) {
				return around(ctx, at(in), func(ctx context.Context) (any, error) { return inner.live(ctx, tx, in) })
			}
		}
		if inner.statement != nil {
			s.impl.statement = func(ctx context.Context, in callIn) (SQL, error) {
				out, err := around(ctx, at(in), func(ctx context.Context) (any, error) { return inner.statement(ctx, in) })
				sql, _ := out.(SQL) // an error comes with none
				return sql, err
			}
		}
		if inner.act != nil {
			s.impl.act = func(ctx context.Context, in callIn) (any, error) {
				return around(ctx, at(in), func(ctx context.Context) (any, error) { return inner.act(ctx, in) })
			}
		}
		if inner.ask != nil {
			s.impl.ask = func(ctx context.Context, in callIn) (out any, found bool, err error) {
				asking := at(in)
				asking.Asking = true
				out, err = around(ctx, asking, func(ctx context.Context) (any, error) {
					value, ok, err := inner.ask(ctx, in)
					if found = ok && err == nil; !found {
						return nil, err
					}
					return value, nil
				})
				return out, found && err == nil, err
			}
		}
		steps[i] = s
	}
	b.steps = steps
	return b
}
