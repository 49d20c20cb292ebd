package branch

import (
	"errors"
	"time"
)

// ErrNotCancelable: the provider has no way to stop an operation.
var ErrNotCancelable = errors.New("branch: the provider cannot stop an operation")

// Class says what an error of a provider means.
type Class int

const (
	// ClassUnknown: nobody knows.
	ClassUnknown Class = iota
	// ClassLater: the provider did not take the call, and may later.
	ClassLater
	// ClassRefused: the provider did not take the call, and never will.
	ClassRefused
	// ClassMisconfigured: our own credentials or settings are wrong. Operators are told, and the reset waits.
	ClassMisconfigured
	// ClassGone: the provider has no record of the operation any more.
	ClassGone
	// ClassNotApplied: the reset surely did not happen, and will not.
	ClassNotApplied
)

// Error is a classified failure of a provider's method.
type Error struct {
	Class Class
	// After is how long the provider asked to wait; 0 means that it did not say.
	After time.Duration
	// Code is a short, stable, machine-readable reason without secrets, such as "neon_423".
	Code string
	Err  error
}

func (e *Error) Error() string {
	if e.Err == nil {
		return e.Code
	}
	return e.Err.Error()
}

func (e *Error) Unwrap() error { return e.Err }

// Later says that the provider did not take the call and may in d; 0 leaves the time to the back-off. Of Issue it says
// that the reset surely did not happen.
func Later(d time.Duration, code string, err error) error {
	return &Error{Class: ClassLater, After: d, Code: code, Err: err}
}

// Refused says that the provider will never take the call. Of Issue it says that the reset surely did not happen; the
// run fails with code.
func Refused(code string, err error) error { return &Error{Class: ClassRefused, Code: code, Err: err} }

// Misconfigured says that our own settings are at fault: a key that was revoked. Of Issue it says that the reset surely
// did not happen. The run waits, up to its limit, for somebody to mend them.
func Misconfigured(code string, err error) error {
	return &Error{Class: ClassMisconfigured, Code: code, Err: err}
}

// Gone says that the provider has no record of an operation any more.
func Gone(code string, err error) error { return &Error{Class: ClassGone, Code: code, Err: err} }

// NotApplied says that the reset surely did not happen and never will: whoever was at it has been kept out.
func NotApplied(err error) error {
	return &Error{Class: ClassNotApplied, Code: "not_applied", Err: err}
}
