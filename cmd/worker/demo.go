package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sync/errgroup"

	"github.com/weirqueue/weir/internal/demo"
	"github.com/weirqueue/weir/internal/settings"
	"github.com/weirqueue/weir/internal/ui"
)

// DemoCommand is `worker demo`.
type DemoCommand struct {
	DatabaseURL string       `name:"database-url" env:"DATABASE_URL" placeholder:"URL" help:"An existing database. Empty: a private PostgreSQL is started, and its database dropped afterwards."`
	RiverSchema string       `name:"river-schema" env:"RIVER_SCHEMA" placeholder:"NAME" help:"The schema of River's tables."`
	Once        bool         `name:"once" help:"Exit when everything is finished: 0 when all is as the contract says."`
	JSON        bool         `name:"json" help:"Print one JSON object instead of a table."`
	Workers     int          `name:"workers" default:"2" help:"Worker processes, at least 2."`
	Port        settings.Int `name:"port" env:"PORT" default:"8080" help:"Where River UI and Weir's pages are served, on 127.0.0.1."`
}

// Run shows the demo.
func (c *DemoCommand) Run(ctx context.Context) error {
	if err := settings.ValidatePort("PORT", c.Port); err != nil {
		return err
	}
	if c.Workers < 2 || c.Workers > 50 {
		return fmt.Errorf("%w:\n%w", settings.ErrInvalid, settings.Fault("--workers", strconv.Itoa(c.Workers), "a whole number from 2 to 50"))
	}
	progress := io.Writer(os.Stdout)
	if c.JSON {
		progress = os.Stderr
	}
	// Logs would bury what the demo shows; where something fails, they are what one needs.
	logs, err := os.CreateTemp("", "weir-demo-*.log")
	if err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	defer logs.Close()
	log := slog.New(slog.NewTextHandler(logs, nil))
	slog.SetDefault(log)

	listener, err := c.listen(ctx)
	if err != nil {
		return err
	}
	defer listener.Close()

	d, err := demo.Start(ctx, demo.Options{
		DatabaseURL: c.DatabaseURL, RiverSchema: c.RiverSchema, Workers: c.Workers,
		Progress: progress, WorkerLogs: logs, Logger: log,
	})
	if err != nil {
		return c.explain(err, logs)
	}
	err = c.play(ctx, d, listener, progress, log)
	err = errors.Join(err, d.Close())
	if err != nil {
		return c.explain(err, logs)
	}
	return os.Remove(logs.Name())
}

func (c *DemoCommand) explain(err error, logs *os.File) error {
	return fmt.Errorf("demo: %w (the logs of all processes are in %s)", err, filepath.Clean(logs.Name()))
}

func (c *DemoCommand) play(ctx context.Context, d *demo.Demo, listener net.Listener, progress io.Writer, log *slog.Logger) error {
	pages, err := ui.New(ui.Config{Pool: d.Pool(), Jobs: d.Client(), Schema: c.RiverSchema, Logger: log})
	if err != nil {
		return err
	}
	uiCtx, stopUI := context.WithCancel(ctx)
	defer stopUI()
	var group errgroup.Group
	group.Go(func() error { return pages.Serve(uiCtx, listener) })
	fmt.Fprintf(progress, "pages: http://%s/   River UI: http://%s/river/\n", listener.Addr(), listener.Addr())

	report, err := d.Play(ctx)
	switch {
	case err != nil && ctx.Err() != nil:
		err = nil // interrupted: nothing went wrong
	case err == nil:
		err = c.print(report)
	}
	if err == nil && !c.Once && ctx.Err() == nil {
		fmt.Fprintln(progress, "a letter is sent every few seconds; stop with Ctrl-C")
		err = d.Traffic(ctx)
	}
	stopUI()
	err = errors.Join(err, group.Wait())
	if err == nil && c.Once && report != nil && !report.OK {
		return errors.New("not everything is as the contract says")
	}
	return err
}

func (c *DemoCommand) print(report *demo.Report) error {
	if !c.JSON {
		fmt.Println()
		return report.Print(os.Stdout)
	}
	enc := json.NewEncoder(os.Stdout)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(report)
}

// listen opens the port of the pages. A demo that runs once must not fail because something else has it.
func (c *DemoCommand) listen(ctx context.Context) (net.Listener, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(c.Port.Value())))
	if err != nil && c.Once {
		l, err = lc.Listen(ctx, "tcp", "127.0.0.1:0")
	}
	if err != nil {
		return nil, fmt.Errorf("demo: PORT = %d: %w", c.Port.Value(), err)
	}
	return l, nil
}
