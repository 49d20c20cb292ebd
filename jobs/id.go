package jobs

import (
	"database/sql/driver"
	"fmt"

	"github.com/google/uuid"
)

// RunID names a run. It is a UUIDv7, so ids sort by the time of enqueueing, as the enqueuer's clock had it. The zero
// value names no run.
type RunID uuid.UUID

// NotificationID names a notification. The zero value names none.
type NotificationID uuid.UUID

// ParseRunID reads the canonical text form of a run id. The error is an *InvalidError.
func ParseRunID(s string) (RunID, error) {
	id, err := uuid.Parse(s)
	if err != nil || len(s) != 36 {
		return RunID{}, invalid("RunID", s, "a UUID such as 01890a5d-ac96-774b-bcce-b302099a8057")
	}
	return RunID(id), nil
}

// String is the canonical text form.
func (id RunID) String() string { return uuid.UUID(id).String() }

// String is the canonical text form.
func (id NotificationID) String() string { return uuid.UUID(id).String() }

// MarshalText makes ids readable in JSON and logs.
func (id RunID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// MarshalText makes ids readable in JSON and logs.
func (id NotificationID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText is the counterpart of MarshalText.
func (id *RunID) UnmarshalText(text []byte) (err error) {
	*id, err = ParseRunID(string(text))
	return err
}

// Scan reads an id from a uuid column.
func (id *RunID) Scan(src any) error { return (*uuid.UUID)(id).Scan(src) }

// Value writes an id to a uuid column.
func (id RunID) Value() (driver.Value, error) { return id.String(), nil }

func newID() (uuid.UUID, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return id, fmt.Errorf("jobs: make an id: %w", err)
	}
	return id, nil
}
