// Command withdb runs a command with DATABASE_URL set to a fresh database on a private PostgreSQL, which is gone
// afterwards. With DATABASE_URL set already it only runs the command:
//
//	go run ./internal/postgres/withdb go -C examples/order run .
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"github.com/weirqueue/weir/internal/postgres"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := run(ctx, os.Args[1:])
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit) && exit.ExitCode() > 0:
		os.Exit(exit.ExitCode())
	case err != nil:
		fmt.Fprintln(os.Stderr, "withdb:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, command []string) (err error) {
	if len(command) == 0 {
		return errors.New("usage: withdb COMMAND [ARGUMENT …]")
	}
	url := os.Getenv("DATABASE_URL")
	if url == "" {
		server, startErr := postgres.Start(ctx, postgres.Options{Ephemeral: true})
		if startErr != nil {
			return startErr
		}
		defer func() { err = errors.Join(err, server.Close()) }()
		if err := server.CreateDatabase(ctx, "app"); err != nil {
			return err
		}
		url = server.URL("app")
	}
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.Env = append(os.Environ(), "DATABASE_URL="+url)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	return cmd.Run()
}
