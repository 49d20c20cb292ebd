package desk

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// Conditions that a caller branches on, with errors.Is. None of them has written anything.
var (
	// ErrInvalid: the input was refused. The error is an *InvalidError, or several joined.
	ErrInvalid = errors.New("desk: invalid input")
	// ErrNotFound: the owner has no such file or folder. Whether somebody else has is not said.
	ErrNotFound = errors.New("desk: not found")
	// ErrDeleted: the file is deleted. Restore brings it back.
	ErrDeleted = errors.New("desk: the file is deleted")
	// ErrConflict: the save was based on another version than the stored one. The error is a *ConflictError.
	ErrConflict = errors.New("desk: another version is stored")
	// ErrSaveIDReused: the save id belongs to another request of the same file.
	ErrSaveIDReused = errors.New("desk: the save id was used for something else")
	// ErrUnknownSave: the file has no save of this id, or has it no longer.
	ErrUnknownSave = errors.New("desk: unknown save")
	// ErrSchemaOutdated: the content has a schema that this server does not write. The client must be reloaded.
	ErrSchemaOutdated = errors.New("desk: the schema of the content is not the server's")
	// ErrFolderNotFound: the owner has no such folder to put something into.
	ErrFolderNotFound = errors.New("desk: there is no such folder")
	// ErrFolderExists: there is a folder of that name in the same place.
	ErrFolderExists = errors.New("desk: there is a folder of that name already")
	// ErrFolderNotEmpty: the folder holds files or folders.
	ErrFolderNotEmpty = errors.New("desk: the folder is not empty")
	// ErrFolderCycle: the folder would end up in itself, or too deep.
	ErrFolderCycle = errors.New("desk: a folder cannot be moved there")
	// ErrNotMigrated: the tables are not there. `worker migrate up` makes them.
	ErrNotMigrated = errors.New("the database has no tables of documents, or older ones: run `worker migrate up` first")
)

// What Identify may answer; see HandlerConfig.
var (
	// ErrUnauthenticated: nobody proved to be a user.
	ErrUnauthenticated = errors.New("desk: not signed in")
	// ErrForbidden: the user may not do this.
	ErrForbidden = errors.New("desk: not allowed")
)

// InvalidError names the field that was refused, its value, and what would have been accepted.
type InvalidError struct {
	Field string
	Value string
	Bound string
}

func (e *InvalidError) Error() string {
	return fmt.Sprintf("desk: %s = %q: must be %s", e.Field, e.Value, e.Bound)
}

// Is makes it match ErrInvalid.
func (e *InvalidError) Is(target error) bool { return target == ErrInvalid }

// TooLargeError says by how much content is too large.
type TooLargeError struct {
	Field string
	Size  int64
	Unit  string // bytes, or characters
	Bound int64
}

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("desk: %s: %d %s are too many: must be at most %d", e.Field, e.Size, e.Unit, e.Bound)
}

// Is makes it match ErrInvalid.
func (e *TooLargeError) Is(target error) bool { return target == ErrInvalid }

// ConflictError says what is stored instead of the version that the save was based on.
type ConflictError struct {
	File    FileID
	Current Current
}

// Current is the stored version of a file, and the save that made it.
type Current struct {
	Version   int64     `json:"version"`
	Rev       SaveID    `json:"rev"`
	SaveID    SaveID    `json:"saveId"`
	WriterID  *WriterID `json:"writerId"` // null: the file's creation
	UpdatedAt time.Time `json:"updatedAt"`
}

func (e *ConflictError) Error() string {
	return fmt.Sprintf("desk: file %s is at version %d, made by save %s", e.File, e.Current.Version, e.Current.Rev)
}

// Is makes it match ErrConflict.
func (e *ConflictError) Is(target error) bool { return target == ErrConflict }

// maxShownValue bounds what an error repeats of a value.
const maxShownValue = 80

func invalid(field, value, bound string) error {
	return &InvalidError{Field: field, Value: shorten(value), Bound: bound}
}

func shorten(value string) string {
	value = strings.ToValidUTF8(value, "\uFFFD")
	if len(value) <= maxShownValue {
		return value
	}
	cut := maxShownValue
	for !utf8.RuneStart(value[cut]) {
		cut--
	}
	return value[:cut] + "…"
}
