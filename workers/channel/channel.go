// Package channel is the seam between a delivery and the outside world: a Channel carries one message to one address
// and says, by the error that it returns, what is known about the outcome.
//
// Weir guarantees that one owner at a time sends a delivery and that its outcome is recorded once. It cannot make the
// outside effect exactly-once: a process may die after the provider took the message and before the record was
// written. Effect declares what a channel does about that.
package channel

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Effect declares what happens to a message whose outcome is unknown.
type Effect string

const (
	// AtLeastOnce sends again. The duplicate is accepted, and carries the same MessageID.
	AtLeastOnce Effect = "at_least_once"
	// Idempotent sends again with the same IdempotencyKey, which the provider honours.
	Idempotent Effect = "idempotent"
)

// Message is one notification for one address, or a part of one. Everything in it is the same on every try.
type Message struct {
	// RunID is the delivery's run, in UUID form.
	RunID string
	// IdempotencyKey is "<run id>:<step index>": the key to hand to a provider that takes one.
	IdempotencyKey string
	// Address is where to send: an email address, a chat id, whatever the channel understands.
	Address string
	Subject string
	Text    string
	// HTML is an alternative to Text. Empty means text only.
	HTML string
	// Part and Parts say which part of a message this is that was too long for its channel, from 1 on: "2 of 3". A
	// part's Text is what it carries, the subject in front of the first one; Subject and HTML are empty. A message that
	// is whole is 1 of 1. Parts are sent in their order, each when the one before it has its receipt.
	Part, Parts int
	// CreatedAt is when the notification was written, by the database's clock. A channel that stamps a date uses
	// this one, so that a message sent twice is the same message.
	CreatedAt time.Time
}

// Sent is what the provider said when it took a message.
type Sent struct {
	// ExternalRef is the provider's own reference, or the Message-ID. It is stored in the receipt; at most 500 bytes.
	ExternalRef string
}

// Channel sends messages. Send is called by many goroutines at once.
type Channel interface {
	// Effect says what an unknown outcome means for this channel. It must be constant.
	Effect() Effect
	// Send delivers m and returns when the outcome is known, or when ctx ends. It must return soon after ctx ends:
	// by then the lease may be gone, and another process may be sending the same message.
	//
	// A nil error means that the provider took the message. An error made by Refused, Temporary, Throttled,
	// Misconfigured or NotSent says that it did not; any other error, a panic included, means that nobody knows.
	Send(ctx context.Context, m Message) (Sent, error)
}

// ErrNotSent says that nothing reached the outside. See NotSent.
var ErrNotSent = errors.New("channel: nothing was sent")

// Class says what a failed Send means.
type Class int

const (
	// ClassUnknown: nobody knows whether the message was taken. It is a failed try.
	ClassUnknown Class = iota
	// ClassTemporary: the provider said no for now. It is a failed try.
	ClassTemporary
	// ClassRefused: the provider refused this message for good. The delivery fails.
	ClassRefused
	// ClassThrottled: the provider asked to come back later. No failure is counted.
	ClassThrottled
	// ClassMisconfigured: our own credentials or settings are wrong. No failure is counted; operators are told.
	ClassMisconfigured
)

// Error is a classified failure of Send: the message was surely not taken.
type Error struct {
	Class Class
	// After is how long the provider asked to wait; 0 means that it did not say.
	After time.Duration
	// Code is a short, stable, machine-readable reason such as "smtp_550_5.1.1". It holds no personal data: logs,
	// metrics and River see the code, never the text of Err.
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

// Is makes every classified failure match ErrNotSent: a classified failure is a definite one.
func (e *Error) Is(target error) bool { return target == ErrNotSent }

// Refused says that the provider refused the message for good. The delivery ends as failed.
func Refused(code string, err error) error { return &Error{Class: ClassRefused, Code: code, Err: err} }

// Temporary says that the provider did not take the message this time. It counts as a failed try.
func Temporary(code string, err error) error {
	return &Error{Class: ClassTemporary, Code: code, Err: err}
}

// Throttled says that the provider wants to be asked later, after d at the soonest; 0 leaves the time to the back-off.
// It counts no failure, up to the delivery's throttle limit.
func Throttled(d time.Duration, code string, err error) error {
	return &Error{Class: ClassThrottled, After: d, Code: code, Err: err}
}

// Misconfigured says that our own settings are at fault: a wrong password, a certificate that does not match. The
// delivery stays pending and is tried again later; no failure is counted, so a bad deploy does not kill a backlog.
func Misconfigured(code string, err error) error {
	return &Error{Class: ClassMisconfigured, Code: code, Err: err}
}

// NotSent says that err happened before anything reached the outside: a refused connection, or a context that ended
// before the message left. It counts as a failed try, but a delivery that is interrupted by a shutdown can be handed
// to another process at once.
func NotSent(code string, err error) error {
	return &Error{Class: ClassTemporary, Code: code, Err: fmt.Errorf("%w: %w", ErrNotSent, err)}
}
