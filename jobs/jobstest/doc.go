// Package jobstest has assertions for an application's tests: was this notification, or this run, enqueued? They read
// what is in the database, through a pool, a connection or the test's own transaction, which need not be committed, and
// need no worker.
//
//	jobstest.RequireNotified(ctx, t, tx, jobs.Email("ada@example.com"), &jobstest.NotifiedOpts{Subject: "Your order"})
//	jobstest.RequireNotNotified(ctx, t, tx, jobs.Email("bob@example.com"), nil)
//	id := jobstest.RequireEnqueued(ctx, t, tx, OrderKind, OrderPayload{Number: 4711}, nil)
package jobstest
