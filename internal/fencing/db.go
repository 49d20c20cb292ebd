package fencing

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// DB is what a single statement runs on: a pool, a connection or a transaction.
type DB interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// Beginner is what a transaction begins on.
type Beginner interface {
	BeginTx(ctx context.Context, opts pgx.TxOptions) (pgx.Tx, error)
}

// Causes that a run's context ends with.
var (
	// ErrLeaseLost: somebody else owns the run, or may. Nothing that is written under the old attempt counts.
	ErrLeaseLost = errors.New("weir: the lease is lost")
	// ErrStepDeadline: the step took longer than it declared.
	ErrStepDeadline = errors.New("weir: the step's declared time is over")
)

// Outcome of a statement whose connection failed.
type Outcome int

const (
	// Refused: PostgreSQL answered, and nothing was written.
	Refused Outcome = iota
	// NotSent: the statement never left this process.
	NotSent
	// Unknown: it was sent and no answer came. It may have committed, or may still.
	Unknown
)

// OutcomeOf says what an error means for a statement that commits by itself, or for a COMMIT.
func OutcomeOf(err error) Outcome {
	var pgErr *pgconn.PgError
	switch {
	case errors.As(err, &pgErr):
		// FATAL errors of class 57P and 08 end the session; when they arrive in the place of an answer, the
		// statement was rolled back, except that a shutdown may strike between the commit and its answer.
		if pgErr.SeverityUnlocalized == "FATAL" || pgErr.SeverityUnlocalized == "PANIC" {
			return Unknown
		}
		return Refused
	case pgconn.SafeToRetry(err):
		return NotSent
	default:
		return Unknown
	}
}

// IsTransient reports a refusal that says nothing about the run: a deadlock, a serialization failure or a lock timeout.
// It burns no budget.
func IsTransient(err error) bool {
	switch sqlState(err) {
	case "40P01", "40001", "55P03":
		return true
	}
	return false
}

// IsReadOnly reports that the server takes no writes: a standby, or a primary that was demoted. The connection is of
// no more use.
func IsReadOnly(err error) bool { return sqlState(err) == "25006" }

func sqlState(err error) string {
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) {
		return pgErr.Code
	}
	return ""
}

// RollbackQuietly ends tx on every path. Its own context, because the caller's may be the reason for the rollback.
func RollbackQuietly(ctx context.Context, tx pgx.Tx) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTimeout)
	defer cancel()
	_ = tx.Rollback(ctx) // a transaction that is closed already, or a connection that is gone: both are rolled back
}
