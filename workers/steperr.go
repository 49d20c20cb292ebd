package workers

import (
	"errors"
	"fmt"
	"time"

	"github.com/weirqueue/weir/workers/channel"
)

// ErrNotSent says that nothing reached the outside. See NotSent.
var ErrNotSent = channel.ErrNotSent

// NotSent wraps an error of an outside step that happened before anything reached the outside. It counts as a failed
// try; a run that is interrupted by a shutdown is handed over at once, and a Reconciled step may be issued again.
func NotSent(err error) error { return fmt.Errorf("%w: %w", ErrNotSent, err) }

// RefusedError ends a run: trying again would not help.
type RefusedError struct {
	// Code is a short, stable, machine-readable reason without personal data, such as "card_declined". River, logs and
	// metrics see it, and never the text of Err.
	Code string
	Err  error
}

func (e *RefusedError) Error() string { return fmt.Sprintf("%s: %v", e.Code, e.Err) }
func (e *RefusedError) Unwrap() error { return e.Err }

// Is makes it match ErrNotSent: what was refused did not happen.
func (e *RefusedError) Is(target error) bool { return target == ErrNotSent }

// Refuse ends the run as failed, with code: the step was refused for good, and had no effect.
func Refuse(code string, err error) error { return &RefusedError{Code: code, Err: err} }

// LaterError puts a run off.
type LaterError struct {
	After time.Duration
	Err   error
}

func (e *LaterError) Error() string { return fmt.Sprintf("in %s: %v", e.After, e.Err) }
func (e *LaterError) Unwrap() error { return e.Err }

// Is makes it match ErrNotSent: what is put off did not happen.
func (e *LaterError) Is(target error) bool { return target == ErrNotSent }

// Later puts the run off without counting a failure: the step had no effect yet, and is tried again after d. err may be
// nil.
func Later(d time.Duration, err error) error {
	if err == nil {
		err = errors.New("put off")
	}
	return &LaterError{After: d, Err: err}
}

// Errors of a transactional step that broke its rules. Each is a failed try; nothing of the step was committed.
var (
	// ErrStepTx: the step tried to end its transaction by itself.
	ErrStepTx = errors.New("weir: a step must not end its own transaction: Weir commits it together with fence and receipt")
	// ErrStepTxEnded: the step did end its transaction, behind Weir's back. What it committed before is committed.
	ErrStepTxEnded = errors.New("weir: the step ended its own transaction; what it did before that is committed without a receipt")
	// ErrStepTxFailed: a statement failed, and its error was not returned.
	ErrStepTxFailed = errors.New("weir: a statement of the step failed, and its error was not returned")
	// ErrStepTxBusy: rows of a query were left unread.
	ErrStepTxBusy = errors.New("weir: the step left rows of a query open: read or close them")
	// ErrNoRows: the statement of a step touched nothing.
	ErrNoRows = errors.New("weir: the step's statement touched no row")
	// ErrOutput: the step's output cannot be stored.
	ErrOutput = errors.New("weir: the step's output must be JSON of at most 1 MiB that PostgreSQL can store")
)
