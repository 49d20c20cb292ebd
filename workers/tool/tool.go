// Package tool joins the tools that plans may call with the functions that carry the calls out.
//
// A tool is declared once, as a *jobs.Tool, which whoever proposes plans has too. In the worker's process it is bound to
// its function by Transactional, Outside or Reconciled, and handed to workers.Config.Tools. A worker without a tool, or
// with another declaration of it, leaves plans that need it to others.
package tool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/weirqueue/weir/jobs"
)

// Call is one call of a tool.
type Call struct {
	Run jobs.RunID
	// Step is the call's position in its plan, from 0.
	Step int
	// Key is "<run id>:<step>": the idempotency key to hand to a provider. It is the same whoever carries the plan on.
	Key string
	// Owner is on whose behalf the plan is carried out.
	Owner string
	// Args are the arguments as they were approved, and as the tool's schema allows. Numbers have every digit.
	Args json.RawMessage
}

// Tool is a declaration with its function; see Transactional, Outside and Reconciled.
type Tool struct {
	decl     *jobs.Tool
	transact func(ctx context.Context, tx pgx.Tx, call Call) (any, error)
	act      func(ctx context.Context, call Call) (any, error)
	ask      func(ctx context.Context, call Call) (any, bool, error)
}

// Transactional binds a tool whose effect is in the run's own database. What f does in tx, the receipt with what it returns,
// and the fence commit together, once. tx refuses Commit and Rollback. f may be called again, with the same call, when the
// outcome of the COMMIT was unknown and turned out to be none. An error ends the plan: nothing of the step is committed.
func Transactional(decl *jobs.Tool, f func(ctx context.Context, tx pgx.Tx, call Call) (any, error)) Tool {
	return Tool{decl: decl, transact: f}
}

// Outside binds a tool with the effect jobs.Idempotent or jobs.AtLeastOnce. f is called with no transaction open. An error
// ends the plan, and leaves the step's outcome unknown unless it matches workers.ErrNotSent or is made by Refuse.
func Outside(decl *jobs.Tool, f func(ctx context.Context, call Call) (any, error)) Tool {
	return Tool{decl: decl, act: f}
}

// Reconciled binds a tool with the effect jobs.Reconciled. issue is called only under the claim that wrote `started`; in
// every other case ask is, which says whether the call was carried out, and what it returned.
func Reconciled(decl *jobs.Tool, issue func(ctx context.Context, call Call) (any, error), ask func(ctx context.Context, call Call) (out any, found bool, err error)) Tool {
	return Tool{decl: decl, act: issue, ask: ask}
}

// Decl is the declaration.
func (t Tool) Decl() *jobs.Tool { return t.decl }

// Functions are those that carry a call out: transact alone, act alone, or act with ask.
func (t Tool) Functions() (
	transact func(ctx context.Context, tx pgx.Tx, call Call) (any, error),
	act func(ctx context.Context, call Call) (any, error),
	ask func(ctx context.Context, call Call) (any, bool, error),
) {
	return t.transact, t.act, t.ask
}

// Validate says what is wrong with the binding.
func (t Tool) Validate() error {
	if t.decl == nil {
		return errors.New("a tool without a declaration")
	}
	var ok bool
	switch e := t.decl.Effect(); e {
	case jobs.Transactional:
		ok = t.transact != nil
	case jobs.Idempotent, jobs.AtLeastOnce:
		ok = t.act != nil && t.ask == nil
	case jobs.Reconciled:
		ok = t.act != nil && t.ask != nil
	}
	if !ok {
		return fmt.Errorf("tool %s: its effect is %s, and the function that it is bound to is of another, or nil", t.decl.Name(), t.decl.Effect())
	}
	return nil
}

// RefusedError ends a plan with a code of the tool's.
type RefusedError struct {
	// Code is a short, stable, machine-readable reason without personal data. Logs and metrics see it, never Err's text.
	Code string
	Err  error
}

func (e *RefusedError) Error() string { return fmt.Sprintf("%s: %v", e.Code, e.Err) }
func (e *RefusedError) Unwrap() error { return e.Err }

// Refuse ends the plan as failed, with code: the call surely had no effect.
func Refuse(code string, err error) error { return &RefusedError{Code: code, Err: err} }
