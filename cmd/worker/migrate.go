package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"text/tabwriter"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weirqueue/weir/internal/settings"
	"github.com/weirqueue/weir/migrations"
)

// MigrateCommand is `worker migrate`.
type MigrateCommand struct {
	Up     MigrateUpCommand     `cmd:"" help:"Apply River's and Weir's migrations. Safe when many start at once."`
	Down   MigrateDownCommand   `cmd:"" help:"Undo Weir's newest migration; undoing the first deletes Weir's tables with all that is in them."`
	Status MigrateStatusCommand `cmd:"" help:"List the migrations and whether they are applied."`
}

type migrateSettings struct {
	settings.Database `embed:""`
	settings.Log      `embed:""`
	Timeout           time.Duration `name:"timeout" default:"5m" help:"How long to wait for others that migrate, and for the migrations."`
}

func (m *migrateSettings) prepare(ctx context.Context) (context.Context, context.CancelFunc, migrations.Options, error) {
	if err := settings.ValidateMigrate(m.Database, m.Log); err != nil {
		return nil, nil, migrations.Options{}, err
	}
	log := settings.NewLogger(m.Log, os.Stderr)
	slog.SetDefault(log)
	ctx, cancel := context.WithTimeout(ctx, m.Timeout)
	return ctx, cancel, migrations.Options{RiverSchema: m.RiverSchema, Logger: log}, nil
}

// MigrateUpCommand is `worker migrate up`.
type MigrateUpCommand struct {
	migrateSettings `embed:""`
}

// Run applies what is not applied yet.
func (c *MigrateUpCommand) Run(ctx context.Context) error {
	ctx, cancel, opts, err := c.prepare(ctx)
	if err != nil {
		return err
	}
	defer cancel()
	return migrations.Up(ctx, c.URL, opts)
}

// MigrateDownCommand is `worker migrate down`.
type MigrateDownCommand struct {
	migrateSettings `embed:""`
	Force           bool `name:"force" help:"Also where there are runs that are not finished: they may be deleted."`
}

// Run undoes Weir's newest migration.
func (c *MigrateDownCommand) Run(ctx context.Context) error {
	ctx, cancel, opts, err := c.prepare(ctx)
	if err != nil {
		return err
	}
	defer cancel()
	if !c.Force {
		if err := refuseLiveRuns(ctx, c.URL); err != nil {
			return err
		}
	}
	return migrations.Down(ctx, c.URL, opts)
}

// refuseLiveRuns keeps a slip of the hand from deleting work that is still to be done.
func refuseLiveRuns(ctx context.Context, url string) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return nil //nolint:nilerr // migrating says better why a database cannot be reached
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	var exists, live bool
	if err := conn.QueryRow(ctx, "select to_regclass('weir.run') is not null").Scan(&exists); err != nil || !exists {
		return err
	}
	if err := conn.QueryRow(ctx, "select exists (select from weir.run where finished_at is null)").Scan(&live); err != nil {
		return fmt.Errorf("look for runs that are not finished: %w", err)
	}
	if live {
		return errors.New("there are runs that are not finished, and undoing a migration may delete them: stop the enqueuers and wait, or say --force")
	}
	return nil
}

// MigrateStatusCommand is `worker migrate status`.
type MigrateStatusCommand struct {
	migrateSettings `embed:""`
}

// Run lists the migrations.
func (c *MigrateStatusCommand) Run(ctx context.Context) error {
	ctx, cancel, opts, err := c.prepare(ctx)
	if err != nil {
		return err
	}
	defer cancel()
	list, err := migrations.Status(ctx, c.URL, opts)
	if err != nil {
		return err
	}
	t := tabwriter.NewWriter(os.Stdout, 0, 4, 2, ' ', 0)
	fmt.Fprintln(t, "SOURCE\tVERSION\tNAME\tAPPLIED")
	for _, m := range list {
		applied := "no"
		if m.Applied {
			applied = "yes"
		}
		fmt.Fprintf(t, "%s\t%d\t%s\t%s\n", m.Source, m.Version, m.Name, applied)
	}
	return t.Flush()
}
