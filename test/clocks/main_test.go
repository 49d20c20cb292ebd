//go:build linux

package clocks_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weirqueue/weir/workers"
	"github.com/weirqueue/weir/workers/channel"
	"github.com/weirqueue/weir/workers/channel/email"
)

const (
	asWorker = "WEIR_TEST_CLOCKS" // the database's URL
	smtpAddr = "WEIR_TEST_SMTP"
	ahead    = "WEIR_TEST_AHEAD" // by how much the process's clock is
)

func TestMain(m *testing.M) {
	if url := os.Getenv(asWorker); url != "" {
		if err := work(url); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

const (
	lease = 3 * time.Second        // enough for a machine that is busy with the other tests
	grace = 500 * time.Millisecond // of doorbells
)

// work is a process of the fleet until SIGTERM.
func work(url string) (err error) {
	offset, err := time.ParseDuration(os.Getenv(ahead))
	if err != nil {
		return err
	}
	if err := setClock(offset); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return err
	}
	defer pool.Close()
	host, port, err := net.SplitHostPort(os.Getenv(smtpAddr))
	if err != nil {
		return err
	}
	n, err := strconv.Atoi(port)
	if err != nil {
		return err
	}
	mail, err := email.New(email.Config{Host: host, Port: n, From: "weir@example.com", TLS: email.TLSNone, SendTimeout: 30 * time.Second})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, mail.Close()) }()
	fleet, err := workers.New(pool, &workers.Config{
		Channels: map[string]channel.Channel{"email": mail},
		Delivery: workers.DeliveryConfig{
			Lease: lease, StepTime: 50 * time.Second, MaxWorkers: 3, // few, so that no process takes all
			Backoff: workers.Backoff{First: 100 * time.Millisecond, Max: 200 * time.Millisecond},
		},
		ReaperInterval: 200 * time.Millisecond, DoorbellGrace: grace, ShutdownGrace: 300 * time.Millisecond,
		FetchPollInterval: 100 * time.Millisecond, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return err
	}
	// What this process takes the time for, and its name among River's leaders.
	if _, err := pool.Exec(ctx, "insert into process (pid, now, river) values ($1, $2, $3)", os.Getpid(), time.Now(), fleet.River().ID()); err != nil {
		return err
	}
	return fleet.Run(ctx)
}
