// Command order is a shop in one process: it places an order in a transaction of its own, carries it out in three
// steps, and prints the receipts. See README.md.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weirqueue/weir/jobs"
	"github.com/weirqueue/weir/migrations"
	"github.com/weirqueue/weir/workers"
	"github.com/weirqueue/weir/workers/drill"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	var err error
	if len(os.Args) > 1 && os.Args[1] == "drill" {
		err = drill.Main(ctx, os.Args[1:], drill.Of(orderDrill()))
	} else {
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		err = run(ctx, os.Getenv("DATABASE_URL"))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, url string) error {
	if url == "" {
		return errors.New("DATABASE_URL is not set: see README.md for one command that gives you a database")
	}
	if err := migrations.Up(ctx, url, migrations.Options{}); err != nil { // what `worker migrate up` does
		return err
	}
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return err
	}
	defer pool.Close()
	if err := createTables(ctx, pool); err != nil {
		return err
	}
	provider := startProvider()
	defer provider.Close()
	out := provider.outside()

	fleet, err := workers.New(pool, &workers.Config{
		Kinds: []workers.Binding{BindOrder(workers.KindConfig{}, out)}, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return err
	}
	fleetCtx, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- fleet.Run(fleetCtx) }()
	err = order(ctx, pool, provider)
	stop()
	return errors.Join(err, <-done)
}

func order(ctx context.Context, pool *pgxpool.Pool, outside *provider) error {
	client, err := jobs.NewClient(pool, nil)
	if err != nil {
		return err
	}
	o := Order{Number: int(time.Now().Unix()), Item: "pen", Count: 3, Cents: 450, Mail: "ada@example.com"}
	var placed *jobs.EnqueueResult
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) (err error) { // the order and its run: both or neither
		placed, err = client.EnqueueTx(ctx, tx, OrderKind.Of(o), &jobs.Opts{IdempotencyKey: fmt.Sprint("order-", o.Number)})
		return err
	})
	if err != nil {
		return err
	}
	finished, err := client.Wait(ctx, placed.Run.ID)
	if err != nil {
		return err
	}
	receipts, err := client.Receipts(ctx, finished.ID)
	if err != nil {
		return err
	}
	fmt.Printf("order %d: %s %s\n", o.Number, finished.Status, finished.ErrorCode)
	for _, r := range receipts {
		fmt.Printf("  %-8s %-14s %-3s %s\n", r.StepName, r.Effect, r.Outcome, r.Output)
	}
	fmt.Printf("mails to %s: %d\n", o.Mail, outside.mailsTo(o.Mail))
	return nil
}
