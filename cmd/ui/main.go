// Command ui serves River UI at /river and Weir's pages at /.
//
//	DATABASE_URL=postgres://… go run ./cmd/ui
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kong"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weirqueue/weir/desk"
	"github.com/weirqueue/weir/internal/settings"
	"github.com/weirqueue/weir/internal/ui"
	"github.com/weirqueue/weir/jobs"
	"github.com/weirqueue/weir/workers/tool/desktool"
)

func main() {
	var given ui.Settings
	kong.Parse(&given, kong.Name("ui"), kong.Description("Weir's pages at /, and River UI at /river."), kong.Exit(settings.Exit))
	resolved, err := given.Resolve()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	logger := resolved.Logger(os.Stdout)
	settings.WarnOfUnknown(logger, os.Environ(), settings.Worker{}, ui.Settings{})
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err = run(ctx, resolved, logger)
	stop()
	if err != nil {
		logger.Error("Ended", "error", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, r *ui.Resolved, logger *slog.Logger) error {
	// The listener comes first: what it refuses should not wait for a database.
	listener, err := ui.Listen(r.Host, r.Port, r.Auth)
	if err != nil {
		return err
	}
	pool, err := pgxpool.NewWithConfig(ctx, r.Pool)
	if err != nil {
		return errors.Join(fmt.Errorf("make the pool: %w", err), listener.Close())
	}
	defer pool.Close()
	documents, err := desk.NewStore(pool)
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	client, err := jobs.NewClient(pool, &jobs.Config{
		Schema: r.Schema, BranchQueue: r.BranchQueue, PlanQueue: r.PlanQueue, Tools: desktool.New(documents).Declarations(), Logger: logger,
	})
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	server, err := ui.New(ui.Config{Pool: pool, Jobs: client, Schema: r.Schema, Auth: r.Auth, Viewers: r.Viewers, Logger: logger})
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	logger.InfoContext(ctx, "Serving", "url", "http://"+listener.Addr().String())
	err = server.Serve(ctx, listener)
	logger.InfoContext(ctx, "Stopped")
	return err
}
