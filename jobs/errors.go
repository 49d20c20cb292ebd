package jobs

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// Conditions that a caller branches on, with errors.Is.
var (
	// ErrInvalid: the input was refused before anything was written. The error is an *InvalidError, or several joined.
	ErrInvalid = errors.New("jobs: invalid input")
	// ErrNotFound: there is no such run. It may have been cleaned away.
	ErrNotFound = errors.New("jobs: not found")
	// ErrKeyReused: the idempotency key belongs to another payload. The error is a *KeyReusedError.
	ErrKeyReused = errors.New("jobs: the idempotency key was used for something else")
	// ErrState: the run's status does not allow what was asked. The error is a *StateError.
	ErrState = errors.New("jobs: the run's status does not allow it")
	// ErrIsolation: the transaction's isolation level is one that cannot work.
	ErrIsolation = errors.New("jobs: isolation level")
)

// InvalidError names the field that was refused, its value, and what would have been accepted.
type InvalidError struct {
	Field string
	Value string
	Bound string
}

func (e *InvalidError) Error() string {
	return fmt.Sprintf("jobs: %s = %q: must be %s", e.Field, e.Value, e.Bound)
}

// Is makes it match ErrInvalid.
func (e *InvalidError) Is(target error) bool { return target == ErrInvalid }

// maxShownValue bounds what an error repeats of a value.
const maxShownValue = 80

func invalid(field, value, bound string) error {
	value = strings.ToValidUTF8(value, "\uFFFD")
	if len(value) > maxShownValue {
		cut := maxShownValue
		for !utf8.RuneStart(value[cut]) {
			cut--
		}
		value = value[:cut] + "…"
	}
	return &InvalidError{Field: field, Value: value, Bound: bound}
}

// KeyReusedError says whose key it is.
type KeyReusedError struct {
	Kind string
	Key  string
	// Run is what the key stands for: a run, or for notifications the notification's id.
	Run RunID
}

func (e *KeyReusedError) Error() string {
	return fmt.Sprintf("jobs: idempotency key %q of kind %s was used for another payload, by %s", e.Key, e.Kind, e.Run)
}

// Is makes it match ErrKeyReused.
func (e *KeyReusedError) Is(target error) bool { return target == ErrKeyReused }

// StateError says how the run stands that did not allow an operation.
type StateError struct {
	Run    RunID
	Op     string // cancel, redrive, erase
	Status Status
	Detail string
}

func (e *StateError) Error() string {
	s := fmt.Sprintf("jobs: cannot %s run %s: its status is %s", e.Op, e.Run, e.Status)
	if e.Detail != "" {
		s += " (" + e.Detail + ")"
	}
	return s
}

// Is makes it match ErrState.
func (e *StateError) Is(target error) bool { return target == ErrState }
