package migrations

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
)

// Source says whose migration it is.
type Source string

const (
	SourceRiver Source = "river"
	SourceWeir  Source = "weir"
)

// Migration is one migration, and whether a database has it.
type Migration struct {
	Source  Source
	Version int64
	Name    string // empty for one that is applied but not known: a newer version of Weir or River was here
	Applied bool
}

// Status lists River's migrations and then Weir's, in the order in which they are applied. It takes no lock and writes
// nothing, so it works on a standby too.
func Status(ctx context.Context, databaseURL string, opts Options) (_ []Migration, err error) {
	config, err := parse(databaseURL)
	if err != nil {
		return nil, err
	}
	conn, err := dial(ctx, config.ConnConfig)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, hangUp(ctx, conn)) }()

	riverTable := "river_migration"
	if opts.RiverSchema != "" {
		riverTable = pgx.Identifier{opts.RiverSchema, riverTable}.Sanitize()
	}
	river, err := applied(ctx, conn, riverTable,
		// Before River's version 5 there was no column "line".
		"select version from "+riverTable+" m where coalesce(to_jsonb(m)->>'line', 'main') = 'main' order by version")
	if err != nil {
		return nil, explain(fmt.Errorf("River's migrations: %w", err))
	}
	weir, err := applied(ctx, conn, versionTable,
		"select version_id from "+versionTable+" where is_applied and version_id > 0 order by version_id")
	if err != nil {
		return nil, explain(fmt.Errorf("Weir's migrations: %w", err))
	}
	return slices.Concat(
		merge(SourceRiver, river),
		merge(SourceWeir, weir),
	), nil
}

// merge adds what is applied to what is known.
func merge(source Source, applied []int64) []Migration {
	var all []Migration
	for _, m := range known() {
		if m.Source == source {
			m.Applied = slices.Contains(applied, m.Version)
			all = append(all, m)
		}
	}
	for _, version := range applied {
		if !slices.ContainsFunc(all, func(m Migration) bool { return m.Version == version }) {
			all = append(all, Migration{Source: source, Version: version, Applied: true})
		}
	}
	return all
}

// querier is a connection or a pool.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// applied reads the versions in a version table, none when it is not there.
func applied(ctx context.Context, db querier, table, sql string) ([]int64, error) {
	if exists, err := tableExists(ctx, db, table); err != nil || !exists {
		return nil, err
	}
	rows, err := db.Query(ctx, sql)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[int64])
}

func tableExists(ctx context.Context, db querier, table string) (exists bool, err error) {
	err = db.QueryRow(ctx, "select to_regclass($1) is not null", table).Scan(&exists)
	return exists, err
}

func logMigration(ctx context.Context, log *slog.Logger, source Source, direction string, version int64, name string, took time.Duration) {
	log.InfoContext(ctx, "migrations: done",
		slog.String("source", string(source)),
		slog.String("direction", direction),
		slog.Int64("version", version),
		slog.String("name", name),
		slog.Duration("took", took))
}
