package jobs_test

import (
	"context"
	"fmt"

	"github.com/weirqueue/weir/jobs"
)

// The notification is written in the application's own transaction: it exists if the order does.
func ExampleClient_NotifyTx() {
	ctx := context.Background()
	pool, drop := exampleDatabase(ctx) // a *pgxpool.Pool on a migrated database
	defer drop()

	client, err := jobs.NewClient(pool, nil)
	if err != nil {
		panic(err)
	}
	tx, err := pool.Begin(ctx)
	if err != nil {
		panic(err)
	}
	defer func() { _ = tx.Rollback(ctx) }()

	// … the application's own statements on tx …

	res, err := client.NotifyTx(ctx, tx, jobs.Notification{
		To:      []jobs.Recipient{jobs.Email("ada@example.com")},
		Subject: "Your order",
		Text:    "It is on its way.",
	}, &jobs.Opts{IdempotencyKey: "order-4711-shipped"})
	if err != nil {
		panic(err)
	}
	if err := tx.Commit(ctx); err != nil {
		panic(err)
	}
	fmt.Println(len(res.Runs), res.Runs[0].Status)
	// Output: 1 pending
}

// A request that is repeated, because its answer was lost, finds what the first one made.
func ExampleOpts_idempotencyKey() {
	ctx := context.Background()
	pool, drop := exampleDatabase(ctx)
	defer drop()
	client, err := jobs.NewClient(pool, nil)
	if err != nil {
		panic(err)
	}
	n := jobs.Notification{To: []jobs.Recipient{jobs.Email("ada@example.com")}, Text: "It is on its way."}
	opts := &jobs.Opts{IdempotencyKey: "order-4711-shipped"}
	for range 2 {
		res, err := client.Notify(ctx, n, opts)
		if err != nil {
			panic(err)
		}
		fmt.Println("existing:", res.Existing, "runs:", len(res.Runs))
	}
	n.Text = "Something else."
	_, err = client.Notify(ctx, n, opts)
	fmt.Println("something else:", err != nil)
	// Output:
	// existing: false runs: 1
	// existing: true runs: 1
	// something else: true
}
