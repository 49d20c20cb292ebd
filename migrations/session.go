package migrations

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

const (
	// lockKey is the advisory lock of this database that whoever migrates it holds ("weir" in ASCII).
	lockKey  = 0x77656972
	lockPoll = 50 * time.Millisecond

	// versionTable is where goose keeps which of Weir's migrations are applied.
	versionTable = "weir.goose_db_version"
)

// session is a database that this process alone migrates, for as long as it has the lock.
type session struct {
	pool  *pgxpool.Pool
	river *rivermigrate.Migrator[pgx.Tx]
	weir  *goose.Provider // makes its version table at the first use: not before the schema is there
}

// locked runs do under the lock that all migrations of the database share.
//
// The lock belongs to a connection of its own, so that migrations which commit, or build an index concurrently, keep it.
// It is asked for again and again instead of waited for: a statement that waits keeps a snapshot, and CREATE INDEX
// CONCURRENTLY in the process that has the lock waits for all snapshots, which is a deadlock.
func locked(ctx context.Context, databaseURL string, opts Options, do func(context.Context, *session) error) (err error) {
	config, err := parse(databaseURL)
	if err != nil {
		return err
	}
	conn, err := dial(ctx, config.ConnConfig)
	if err != nil {
		return err
	}
	// Closing the connection gives the lock up, on every path; PostgreSQL does the same for a killed process.
	defer func() { err = errors.Join(err, hangUp(ctx, conn)) }()
	if err := lock(ctx, conn); err != nil {
		return explain(err)
	}

	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return explain(err)
	}
	defer pool.Close()
	db := stdlib.OpenDBFromPool(pool)
	defer func() { err = errors.Join(err, db.Close()) }()

	s, err := newSession(pool, db, opts)
	if err != nil {
		return err
	}
	return explain(do(ctx, s))
}

func newSession(pool *pgxpool.Pool, db *sql.DB, opts Options) (*session, error) {
	river, err := rivermigrate.New(riverpgxv5.New(pool), &rivermigrate.Config{
		Schema: opts.RiverSchema,
		Logger: slog.New(slog.DiscardHandler), // what it did is logged here, in the same words for both
	})
	if err != nil {
		return nil, err
	}
	weir, err := goose.NewProvider(goose.DialectPostgres, db, files(),
		goose.WithTableName(versionTable), goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return nil, err
	}
	return &session{pool: pool, river: river, weir: weir}, nil
}

func lock(ctx context.Context, conn *pgx.Conn) error {
	tick := time.NewTicker(lockPoll)
	defer tick.Stop()
	for {
		var mine bool
		err := conn.QueryRow(ctx, "select pg_try_advisory_lock($1)", lockKey).Scan(&mine)
		if mine {
			return nil
		}
		if err == nil {
			select {
			case <-ctx.Done():
			case <-tick.C:
			}
		}
		switch {
		case ctx.Err() != nil:
			return fmt.Errorf("wait for another process that migrates this database: %w", context.Cause(ctx))
		case err != nil:
			return fmt.Errorf("lock the migrations: %w", err)
		}
	}
}

// hangUp says goodbye also when ctx is over.
func hangUp(ctx context.Context, conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	return conn.Close(ctx)
}

// createSchema makes a schema unless it is there. "If not exists" alone would ask for the right to create schemas also
// when there is nothing to create.
func (s *session) createSchema(ctx context.Context, name string) error {
	var exists bool
	err := s.pool.QueryRow(ctx, "select exists (select from pg_namespace where nspname = $1)", name).Scan(&exists)
	if err == nil && !exists {
		_, err = s.pool.Exec(ctx, "create schema "+pgx.Identifier{name}.Sanitize())
	}
	if err != nil {
		return fmt.Errorf("create schema %s: %w", name, err)
	}
	return nil
}
