package drill

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/weirqueue/weir/internal/settings"
)

// Command is `worker drill`, and the drill of an application's own program.
type Command struct {
	// Subjects are what can be drilled, made for a seed. Program is how the program is called, and Args make it run
	// this command.
	Subjects func(seed uint64) []Subject `kong:"-"`
	Program  string                      `kong:"-"`
	Args     []string                    `kong:"-"`

	DatabaseURL string            `name:"database-url" env:"DATABASE_URL" placeholder:"URL" help:"An existing database that nothing else works on. It gets a schema weir_drill for that time. Empty: a private PostgreSQL, which is restarted too."`
	RiverSchema string            `name:"river-schema" env:"RIVER_SCHEMA" placeholder:"NAME" help:"The schema of River's tables."`
	Kind        []string          `name:"kind" placeholder:"KIND" help:"Which kinds are put under load. Empty means all."`
	Duration    settings.Duration `name:"duration" default:"60s" help:"How long things are broken."`
	Workers     settings.Int      `name:"workers" default:"4" help:"Worker processes. Half of them are broken at a time, at most."`
	Lease       settings.Duration `name:"lease" default:"2s" help:"The lease of the workers."`
	Seed        uint64            `name:"seed" help:"What chooses the faults. 0 draws one."`
	Fault       []string          `name:"fault" placeholder:"FAULT" help:"Only these faults: ${faults}. Nothing is said then of how many must land."`
	Other       string            `name:"other" placeholder:"PROGRAM" type:"existingfile" help:"Another build of this program: worker processes are of one or the other, by chance."`
	History     string            `name:"history" placeholder:"FILE" help:"Keep every change in this file. Without it they are kept only when something is broken."`
	JSON        bool              `name:"json" help:"Print one JSON object instead of a table."`
}

// Run drills. As a process that a drill has started, it is one of its workers.
func (c *Command) Run(ctx context.Context) error {
	if IsWorker() {
		return RunWorker(ctx, c.Subjects(0))
	}
	if err := settings.ValidateDrill(c.Duration, c.Workers, c.Lease); err != nil {
		return err
	}
	if c.Seed == 0 {
		c.Seed = uint64(rand.Uint32N(1 << 31)) // #nosec G404 -- it is printed
	}
	subjects, err := pick(c.Subjects(c.Seed), c.Kind)
	if err := errors.Join(err, knownFaults(c.Fault), writable(c.History)); err != nil {
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
	report, err := Run(ctx, Options{
		DatabaseURL: c.DatabaseURL, RiverSchema: c.RiverSchema, Duration: c.Duration.Value(), Workers: c.Workers.Value(),
		Lease: c.Lease.Value(), Seed: c.Seed, Only: c.Fault, Other: c.Other, Args: c.Args, HistoryFile: c.History,
		Again: c.again(), Progress: progress, WorkerLogs: logs,
	}, subjects)
	if err != nil {
		return fmt.Errorf("%w (the logs of the workers are in %s)", err, filepath.Clean(logs.Name()))
	}
	if err := c.print(report); err != nil {
		return err
	}
	if !report.OK {
		return fmt.Errorf("drill: %s (the logs of the workers are in %s)", report.verdict(), filepath.Clean(logs.Name()))
	}
	return os.Remove(logs.Name())
}

// again is the command line of this drill without its seed.
func (c *Command) again() string {
	words := []string{c.Program, "--duration", c.Duration.Value().String(), "--workers", strconv.Itoa(c.Workers.Value()), "--lease", c.Lease.Value().String()}
	for _, k := range c.Kind {
		words = append(words, "--kind", k)
	}
	for _, f := range c.Fault {
		words = append(words, "--fault", strconv.Quote(f))
	}
	return strings.Join(words, " ")
}

func (c *Command) print(report *Report) error {
	if !c.JSON {
		fmt.Println()
		return report.Print(os.Stdout)
	}
	enc := json.NewEncoder(os.Stdout)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(report)
}

// Vars are for kong, which shows them in the help.
func Vars() kong.Vars { return kong.Vars{"faults": strings.Join(allFaults(), ", ")} }

func allFaults() []string {
	list := []string{faultRestart}
	for _, family := range families {
		list = append(list, family...)
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// writable finds out before the drill, and not after it, that its history cannot be kept.
func writable(path string) error {
	if path == "" {
		return nil
	}
	f, err := os.OpenFile(filepath.Clean(path), os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return settings.Fault("--history", path, "a file that can be written")
	}
	return f.Close()
}

func knownFaults(names []string) error {
	for _, name := range names {
		if !slices.Contains(allFaults(), name) {
			return settings.Fault("--fault", name, "one of "+strings.Join(allFaults(), ", "))
		}
	}
	return nil
}

// pick returns the subjects with the names; none means all.
func pick(all []Subject, names []string) ([]Subject, error) {
	if len(names) == 0 {
		return all, nil
	}
	var (
		out   []Subject
		known []string
	)
	for _, s := range all {
		known = append(known, s.Name())
		if slices.Contains(names, s.Name()) {
			out = append(out, s)
		}
	}
	for _, name := range names {
		if !slices.Contains(known, name) {
			return nil, settings.Fault("--kind", name, "one of "+strings.Join(known, ", "))
		}
	}
	return out, nil
}
