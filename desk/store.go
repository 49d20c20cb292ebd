package desk

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Store keeps documents in the schema desk. It is safe for concurrent use and holds no goroutine: there is nothing to
// close.
type Store struct{ pool *pgxpool.Pool }

// NewStore makes a store on pool. It does not connect.
func NewStore(pool *pgxpool.Pool) (*Store, error) {
	if pool == nil {
		return nil, errors.New("desk: NewStore: the pool is nil")
	}
	return &Store{pool: pool}, nil
}

// db is what a single statement runs on: the pool or a caller's transaction.
type db interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// statement is SQL with named parameters. Its text never changes, so that a connection prepares it once.
type statement struct{ name, sql string }

// statements is all of them, for tests. It is filled while the package initialises.
var statements []statement

func compile(name, sql string) statement {
	s := statement{name, strings.TrimSpace(sql)}
	statements = append(statements, s)
	return s
}

// args are the values of a statement's parameters. A missing one is an error: it would be sent as NULL, and a guard on
// NULL matches nothing.
type args = pgx.StrictNamedArgs

// first runs a statement and scans its first row; false means that there is none.
func first(ctx context.Context, on db, s statement, a args, into ...any) (bool, error) {
	err := on.QueryRow(ctx, s.sql, a).Scan(into...)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return false, nil
	case err != nil:
		return false, wrap(s, err)
	}
	return true, nil
}

// inTx runs do in a transaction of its own.
func (s *Store) inTx(ctx context.Context, do func(pgx.Tx) error) error {
	return pgx.BeginFunc(ctx, s.pool, do)
}

// violates reports that a statement was refused by a constraint.
func violates(err error, constraint string) bool {
	var refused *pgconn.PgError
	return errors.As(err, &refused) && refused.ConstraintName == constraint
}

// given refuses a transaction that a caller forgot to begin.
func given(tx pgx.Tx) error {
	if tx == nil {
		return invalid("tx", "nil", "a transaction that has begun")
	}
	return nil
}

func wrap(s statement, err error) error {
	if err == nil {
		return nil
	}
	var refused *pgconn.PgError
	if errors.As(err, &refused) && (refused.Code == "42P01" || refused.Code == "3F000") {
		return fmt.Errorf("desk: %s: %w: %w", s.name, ErrNotMigrated, err)
	}
	return fmt.Errorf("desk: %s: %w", s.name, err)
}
