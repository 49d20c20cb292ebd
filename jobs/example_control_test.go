package jobs_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/weirqueue/weir/jobs"
)

// Cancel ends what has not begun. What the record allows is said by a typed error.
func ExampleClient_Cancel() {
	ctx := context.Background()
	pool, drop := exampleDatabase(ctx)
	defer drop()
	client, err := jobs.NewClient(pool, nil)
	if err != nil {
		panic(err)
	}
	res, err := client.Notify(ctx, jobs.Notification{To: []jobs.Recipient{jobs.Email("ada@example.com")}, Text: "Hello."}, nil)
	if err != nil {
		panic(err)
	}
	id := res.Runs[0].ID
	if err := client.Cancel(ctx, id); err != nil {
		panic(err)
	}
	run, err := client.Get(ctx, id)
	if err != nil {
		panic(err)
	}
	fmt.Println(run.Status, run.ErrorCode)

	var state *jobs.StateError
	if errors.As(client.Redrive(ctx, id), &state) {
		fmt.Println("cannot", state.Op+":", state.Detail)
	}
	// Output:
	// failed canceled
	// cannot redrive: it was canceled
}

// List walks the runs, newest first.
func ExampleClient_List() {
	ctx := context.Background()
	pool, drop := exampleDatabase(ctx)
	defer drop()
	client, err := jobs.NewClient(pool, nil)
	if err != nil {
		panic(err)
	}
	for range 3 {
		n := jobs.Notification{To: []jobs.Recipient{jobs.Email("ada@example.com")}, Text: "Hello."}
		if _, err := client.Notify(ctx, n, nil); err != nil {
			panic(err)
		}
	}
	filter := jobs.Filter{Statuses: []jobs.Status{jobs.StatusPending}, Limit: 2}
	for {
		page, err := client.List(ctx, filter)
		if err != nil {
			panic(err)
		}
		fmt.Println("a page of", len(page.Runs))
		if filter.After = page.Next; page.Next == (jobs.RunID{}) {
			break
		}
	}
	// Output:
	// a page of 2
	// a page of 1
}
