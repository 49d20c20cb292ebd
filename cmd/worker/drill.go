package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/weirqueue/weir/internal/drill"
	"github.com/weirqueue/weir/internal/settings"
)

// DrillCommand is `worker drill`.
type DrillCommand struct {
	DatabaseURL string            `name:"database-url" env:"DATABASE_URL" placeholder:"URL" help:"An existing database that nothing else works on. It gets a schema weir_drill for that time. Empty: a private PostgreSQL, which is restarted too."`
	RiverSchema string            `name:"river-schema" env:"RIVER_SCHEMA" placeholder:"NAME" help:"The schema of River's tables."`
	Kind        []string          `name:"kind" placeholder:"KIND" help:"Which kinds are put under load: delivery, order. Empty means all."`
	Duration    settings.Duration `name:"duration" default:"60s" help:"How long things are broken."`
	Workers     settings.Int      `name:"workers" default:"4" help:"Worker processes. Half of them are broken at a time, at most."`
	Lease       settings.Duration `name:"lease" default:"2s" help:"The lease of the workers."`
	Seed        uint64            `name:"seed" help:"What chooses the faults. 0 draws one."`
	Fault       []string          `name:"fault" placeholder:"FAULT" help:"Only these faults. Nothing is said then of how many must land."`
	Other       string            `name:"other" placeholder:"PROGRAM" type:"existingfile" help:"Another build of this program: worker processes are of one or the other, by chance."`
	History     string            `name:"history" placeholder:"FILE" help:"Keep every change in this file. Without it they are kept only when something is broken."`
	JSON        bool              `name:"json" help:"Print one JSON object instead of a table."`
}

// Run drills. As a process that a drill has started, it is one of its workers.
func (c *DrillCommand) Run(ctx context.Context) error {
	if drill.IsWorker() {
		subjects, err := drill.Subjects(0)
		if err != nil {
			return err
		}
		return drill.RunWorker(ctx, subjects)
	}
	if err := settings.ValidateDrill(c.Duration, c.Workers, c.Lease); err != nil {
		return err
	}
	if c.Seed == 0 {
		c.Seed = uint64(rand.Uint32N(1 << 31)) // #nosec G404 -- it is printed
	}
	subjects, err := drill.Subjects(c.Seed, c.Kind...)
	if err != nil {
		return fmt.Errorf("%w:\n%w", settings.ErrInvalid, err)
	}
	progress := io.Writer(os.Stdout)
	if c.JSON {
		progress = os.Stderr
	}
	logs, err := os.CreateTemp("", "weir-drill-*.log")
	if err != nil {
		return fmt.Errorf("drill: %w", err)
	}
	defer logs.Close()
	report, err := drill.Run(ctx, drill.Options{
		DatabaseURL: c.DatabaseURL, RiverSchema: c.RiverSchema, Duration: c.Duration.Value(), Workers: c.Workers.Value(),
		Lease: c.Lease.Value(), Seed: c.Seed, Only: c.Fault, Other: c.Other, Args: []string{"drill"}, HistoryFile: c.History,
		Again: c.again(), Progress: progress, WorkerLogs: logs,
	}, subjects)
	if err != nil {
		return fmt.Errorf("%w (the logs of the workers are in %s)", err, filepath.Clean(logs.Name()))
	}
	if err := c.print(report); err != nil {
		return err
	}
	if !report.OK {
		return fmt.Errorf("drill: not everything is as the contract says (the logs of the workers are in %s)", filepath.Clean(logs.Name()))
	}
	return os.Remove(logs.Name())
}

// again is the command line of this drill without its seed.
func (c *DrillCommand) again() string {
	words := []string{"worker drill", "--duration", c.Duration.Value().String(), "--workers", strconv.Itoa(c.Workers.Value()), "--lease", c.Lease.Value().String()}
	for _, k := range c.Kind {
		words = append(words, "--kind", k)
	}
	for _, f := range c.Fault {
		words = append(words, "--fault", strconv.Quote(f))
	}
	return strings.Join(words, " ")
}

func (c *DrillCommand) print(report *drill.Report) error {
	if !c.JSON {
		fmt.Println()
		return report.Print(os.Stdout)
	}
	enc := json.NewEncoder(os.Stdout)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(report)
}
