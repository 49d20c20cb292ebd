package desk

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// What only the handler knows of.
var (
	errUserMismatch    = errors.New("desk: somebody else has signed in")
	errVersionRequired = errors.New("desk: content without the version that it is based on")
	errMediaType       = errors.New("desk: the body must be application/json in UTF-8, and not compressed")
	errIncomplete      = errors.New("desk: the body did not arrive as a whole")
)

type rateError struct{ wait time.Duration }

func (e *rateError) Error() string { return "desk: too many requests" }

type methodError struct {
	methods map[string]func(*Handler) endpoint
}

func (e *methodError) Error() string { return "desk: the method is not one of this path" }

func (e *methodError) allow() string {
	var list []string
	for m := range e.methods {
		list = append(list, m)
	}
	slices.Sort(list)
	return strings.Join(list, ", ")
}

// failure is an answer that is not a success.
type failure struct {
	status  int
	Code    string            `json:"code"`
	Message string            `json:"message"`
	Fields  map[string]string `json:"fields,omitempty"`
	Current *Current          `json:"current,omitempty"`
}

// plain are the errors that carry nothing.
var plain = []struct {
	err     error
	status  int
	code    string
	message string
}{
	{ErrUnauthenticated, http.StatusUnauthorized, "unauthenticated", "Sign in, and ask again."},
	{errUserMismatch, http.StatusUnauthorized, "user_mismatch", "Somebody else has signed in. Sign in as the user whose document this is."},
	{ErrForbidden, http.StatusForbidden, "forbidden", "You may not do this."},
	{ErrNotFound, http.StatusNotFound, "not_found", "There is no such file or folder."},
	{ErrUnknownSave, http.StatusNotFound, "unknown_save", "The file has no such save."},
	{ErrDeleted, http.StatusGone, "file_deleted", "The file is deleted. It can be restored."},
	{ErrSaveIDReused, http.StatusUnprocessableEntity, "save_id_reused", "This save id was used for another request. A new save needs a new id."},
	{ErrSchemaOutdated, http.StatusUnprocessableEntity, "schema_outdated", "This page is of another version than the server. Load it again."},
	{ErrFolderNotFound, http.StatusConflict, "folder_not_found", "There is no such folder to put it into."},
	{ErrFolderExists, http.StatusConflict, "folder_exists", "There is a folder of that name already."},
	{ErrFolderNotEmpty, http.StatusConflict, "folder_not_empty", "The folder is not empty."},
	{ErrFolderCycle, http.StatusConflict, "folder_cycle", fmt.Sprintf("A folder cannot be in itself, nor more than %d deep.", MaxFolderDepth)},
	{errVersionRequired, http.StatusPreconditionRequired, "version_required", "Content needs expectedVersion, or If-Match: the version that it is based on."},
	{errMediaType, http.StatusUnsupportedMediaType, "unsupported_media_type", "The body must be application/json in UTF-8, and not compressed."},
	{errIncomplete, http.StatusRequestTimeout, "incomplete", "The request did not arrive as a whole. Send it again."},
}

func failureOf(err error) failure {
	var (
		conflict *ConflictError
		large    *TooLargeError
		limited  *rateError
		method   *methodError
	)
	for _, p := range plain {
		if errors.Is(err, p.err) {
			return failure{status: p.status, Code: p.code, Message: p.message}
		}
	}
	switch {
	case errors.As(err, &conflict):
		return failure{status: http.StatusConflict, Code: "version_conflict", Message: "Another version is stored. Nothing was changed.", Current: &conflict.Current}
	case errors.As(err, &large):
		return failure{
			status: http.StatusRequestEntityTooLarge, Code: "too_large", Message: "This is too large to be stored.",
			Fields: map[string]string{large.Field: fmt.Sprintf("must be at most %d %s, and has %d", large.Bound, large.Unit, large.Size)},
		}
	case errors.As(err, &limited):
		return failure{status: http.StatusTooManyRequests, Code: "rate_limited", Message: "Too many requests. Wait as long as Retry-After says."}
	case errors.As(err, &method):
		return failure{status: http.StatusMethodNotAllowed, Code: "method_not_allowed", Message: "This path takes " + method.allow() + "."}
	case errors.Is(err, ErrInvalid):
		return failure{status: http.StatusBadRequest, Code: "invalid", Message: "The request cannot be understood.", Fields: fieldsOf(err)}
	case isOutage(err):
		return failure{status: http.StatusServiceUnavailable, Code: "unavailable", Message: "The database does not answer. What was sent may have been stored or not; sending a save again is safe."}
	}
	return failure{status: http.StatusInternalServerError, Code: "internal", Message: "Something went wrong here. The log of this server says what."}
}

// fieldsOf lists what is wrong with each field: what it must be, never its value, which is the sender's own.
func fieldsOf(err error) map[string]string {
	out := map[string]string{}
	var collect func(error)
	collect = func(err error) {
		if one, ok := err.(*InvalidError); ok { //nolint:errorlint // the tree is walked by hand
			out[one.Field] = "must be " + one.Bound
			return
		}
		switch wrapped := err.(type) { //nolint:errorlint // as above
		case interface{ Unwrap() []error }:
			for _, e := range wrapped.Unwrap() {
				collect(e)
			}
		case interface{ Unwrap() error }:
			collect(wrapped.Unwrap())
		}
	}
	collect(err)
	return out
}

// isOutage reports that the same request may succeed later: connections, resources, shutdowns, deadlocks, a read-only
// server, a schema that is not there yet.
func isOutage(err error) bool {
	var (
		refused *pgconn.PgError
		connect *pgconn.ConnectError
		network net.Error
	)
	if errors.As(err, &refused) {
		switch refused.Code {
		case "40P01", "40001", "55P03", "25006", "3F000", "42P01":
			return true
		}
		class := refused.Code[:min(2, len(refused.Code))]
		return class == "08" || class == "53" || class == "57"
	}
	return errors.As(err, &connect) || errors.As(err, &network) || errors.Is(err, context.DeadlineExceeded) || pgconn.SafeToRetry(err)
}

func (h *Handler) fail(w http.ResponseWriter, r *http.Request, err error) {
	if f := failureOf(err); f.status >= http.StatusInternalServerError {
		h.cfg.Logger.ErrorContext(r.Context(), "Desk: a request failed", "method", r.Method, "status", f.status, "error", err)
	}
	Refuse(w, r, err)
}

// Refuse answers with an error of this package in the API's envelope. It is for what stands in front of a Handler, such
// as authentication: ErrUnauthenticated and ErrForbidden. Any other error is a 500 without details. A body that was not
// read is read first, up to what a Handler takes, so that a browser that still sends it sees the answer and not a
// connection that was reset.
func Refuse(w http.ResponseWriter, r *http.Request, err error) {
	var (
		limited *rateError
		method  *methodError
		f       = failureOf(err)
	)
	if f.status != http.StatusRequestEntityTooLarge && f.status != http.StatusRequestTimeout { // those have read it
		drainRefused(w, r)
	}
	switch {
	case errors.As(err, &limited):
		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(limited.wait.Seconds()))))
	case errors.As(err, &method):
		w.Header().Set("Allow", method.allow())
	case f.status == http.StatusServiceUnavailable:
		w.Header().Set("Retry-After", "1")
	case f.status == http.StatusRequestEntityTooLarge, f.status == http.StatusRequestTimeout:
		w.Header().Set("Connection", "close") // the rest of the body, if there is one, is not wanted
	}
	write(w, f.status, map[string]any{"error": f})
}

// answer sends data in the envelope.
func (c *call) answer(status int, data any) error {
	write(c.w, status, map[string]any{"data": data})
	return nil
}

func write(w http.ResponseWriter, status int, body any) {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false) // content goes out as it is stored
	if err := encoder.Encode(body); err != nil {
		panic(err) // our own types, and content that was checked
	}
	h := w.Header()
	h.Set("Content-Type", "application/json; charset=utf-8")
	h.Set("Content-Length", strconv.Itoa(out.Len())) // so that an answer that was cut off cannot pass for a whole one
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write(out.Bytes()) // a client that left needs no answer
}
