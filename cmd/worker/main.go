// Command worker runs a process of the fleet, migrates the database, and shows a demo of the whole.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kong"

	"github.com/weirqueue/weir/internal/drill"
	"github.com/weirqueue/weir/internal/settings"
)

// CLI is the command line. Each command's struct is also the source of docs/configuration.md.
type CLI struct {
	Run     RunCommand     `cmd:"" help:"Run a process of the fleet until SIGTERM or SIGINT."`
	Migrate MigrateCommand `cmd:"" help:"Bring the database to the schema that this version needs."`
	Demo    DemoCommand    `cmd:"" help:"Show deliveries, a retry, a killed worker and its takeover, with nothing set up by hand."`
	Drill   drill.Command  `cmd:"" help:"Prove the guarantees: real workers under SIGKILL, SIGSTOP and broken connections, then a check of every record."`
}

func main() {
	cli := CLI{Drill: drill.Command{Subjects: drill.Subjects, Program: "worker drill", Args: []string{"drill"}}}
	parser := kong.Must(&cli,
		kong.Name("worker"),
		kong.Description("Weir: background work that leaves the world in a known state when something dies halfway."),
		kong.ShortUsageOnError(),
		kong.Exit(settings.Exit),
		drill.Vars(),
	)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	command, err := parser.Parse(os.Args[1:])
	parser.FatalIfErrorf(err)
	command.BindTo(ctx, (*context.Context)(nil))
	if err := command.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "worker:", err)
		stop()
		if errors.Is(err, settings.ErrInvalid) {
			os.Exit(2)
		}
		os.Exit(1)
	}
}
