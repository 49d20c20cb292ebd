// Package migrations brings a database to the schema that this version of Weir needs: River's own migrations, then
// Weir's.
//
// Any number of processes may migrate at once: they take turns. Migrations are additive for one minor version, so that
// the processes of the version before go on working while a new one is rolled out.
package migrations

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/pressly/goose/v3"
	"github.com/riverqueue/river/rivermigrate"
)

// Options are the same for all that this package does to a database.
type Options struct {
	// RiverSchema is where River's tables are. Up makes the schema if it is not there. Defaults to empty: the first
	// schema of the search_path that exists, as River has it.
	RiverSchema string

	// Logger is told what was applied and rolled back. Defaults to none.
	Logger *slog.Logger
}

func (o Options) withDefaults() Options {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

// Up applies what is not applied yet, and nothing when all is. It waits for another process that migrates the same
// database, as long as ctx allows. Each migration is a transaction, so after an error it can be called again.
//
// It fails with [ErrPooler] through a transaction pooler, with [ErrReadOnly] on a standby that lacks a migration, and
// with [ErrUnreachable] when there is no server to talk to.
func Up(ctx context.Context, databaseURL string, opts Options) error {
	opts = opts.withDefaults()
	return locked(ctx, databaseURL, opts, func(ctx context.Context, s *session) error {
		if opts.RiverSchema != "" {
			if err := s.createSchema(ctx, opts.RiverSchema); err != nil {
				return err
			}
		}
		river, err := s.migrateRiver(ctx, opts.Logger, rivermigrate.DirectionUp, nil)
		if err != nil {
			return err
		}
		if err := s.createSchema(ctx, "weir"); err != nil {
			return err
		}
		results, err := s.weir.Up(ctx)
		if err == nil && river+len(results) == 0 {
			opts.Logger.InfoContext(ctx, "migrations: all are applied already")
		}
		return s.report(ctx, opts.Logger, results, err)
	})
}

// ErrNewer: a migration is to be rolled back that this version of Weir does not have.
var ErrNewer = errors.New("the database has a migration that this version of Weir does not know: " +
	"roll back with the newer version that applied it")

// Down rolls back the newest of Weir's migrations that is applied, and with it the data that it made room for. When
// none is, it does nothing. It never touches River's. It fails with [ErrNewer] when a newer version of Weir was here.
func Down(ctx context.Context, databaseURL string, opts Options) error {
	opts = opts.withDefaults()
	return locked(ctx, databaseURL, opts, func(ctx context.Context, s *session) error {
		exists, err := tableExists(ctx, s.pool, versionTable)
		if err != nil {
			return err
		}
		var result *goose.MigrationResult
		if exists {
			result, err = s.weir.Down(ctx)
		}
		if !exists || errors.Is(err, goose.ErrNoNextVersion) {
			opts.Logger.InfoContext(ctx, "migrations: none of Weir's is applied, there is nothing to roll back")
			return nil
		}
		if result == nil {
			return s.report(ctx, opts.Logger, nil, err)
		}
		return s.report(ctx, opts.Logger, []*goose.MigrationResult{result}, err)
	})
}

// DownAll removes everything: all runs, receipts and documents, and River's tables with all jobs, also those that are
// not Weir's. The schema weir goes too, unless there is something in it that is not from a migration, which is an error.
// A schema for River stays.
func DownAll(ctx context.Context, databaseURL string, opts Options) error {
	opts = opts.withDefaults()
	return locked(ctx, databaseURL, opts, func(ctx context.Context, s *session) error {
		exists, err := tableExists(ctx, s.pool, versionTable)
		if err != nil {
			return err
		}
		if exists {
			results, err := s.weir.DownTo(ctx, 0)
			if err := s.report(ctx, opts.Logger, results, err); err != nil {
				return err
			}
			// One transaction: when the schema cannot go, the table stays too, and DownAll can be called again.
			if _, err := s.pool.Exec(ctx, "drop table "+versionTable+"; drop schema weir"); err != nil {
				return fmt.Errorf("remove schema weir: %w%s", err, detail(err))
			}
		}
		_, err = s.migrateRiver(ctx, opts.Logger, rivermigrate.DirectionDown, &rivermigrate.MigrateOpts{TargetVersion: -1})
		return err
	})
}

// detail is what PostgreSQL adds to an error, such as the names of the objects that are in the way.
func detail(err error) string {
	if refused := (*pgconn.PgError)(nil); errors.As(err, &refused) && refused.Detail != "" {
		return ": " + refused.Detail
	}
	return ""
}

// migrateRiver says how many it has migrated.
func (s *session) migrateRiver(ctx context.Context, log *slog.Logger, to rivermigrate.Direction, opts *rivermigrate.MigrateOpts) (done int, err error) {
	result, err := s.river.Migrate(ctx, to, opts)
	if err != nil {
		return 0, fmt.Errorf("River's migrations: %w", err)
	}
	for _, v := range result.Versions {
		logMigration(ctx, log, SourceRiver, string(to), int64(v.Version), v.Name, v.Duration)
	}
	return len(result.Versions), nil
}

// report logs what goose did and says what it could not do.
func (s *session) report(ctx context.Context, log *slog.Logger, done []*goose.MigrationResult, err error) error {
	var partial *goose.PartialError
	if errors.As(err, &partial) {
		done = partial.Applied
	}
	for _, r := range done {
		logMigration(ctx, log, SourceWeir, r.Direction, r.Source.Version, nameOf(r.Source.Path), r.Duration)
	}
	switch {
	case err == nil:
		return nil
	case partial != nil:
		return fmt.Errorf("Weir's migration %s: %w", partial.Failed.Source.Path, partial.Err)
	case errors.Is(err, goose.ErrVersionNotFound):
		return ErrNewer
	default:
		return fmt.Errorf("Weir's migrations: %w", err)
	}
}
