// Package jobs is what an application imports to hand work to Weir: enqueue in its own transaction, look at what
// happened, cancel, redrive.
//
//	client, err := jobs.NewClient(pool, nil)
//	…
//	res, err := client.NotifyTx(ctx, tx, jobs.Notification{
//		To:      []jobs.Recipient{jobs.Email("ada@example.com")},
//		Subject: "Your order",
//		Text:    "It is on its way.",
//	}, &jobs.Opts{IdempotencyKey: "order-4711-shipped"})
//
// What is enqueued in a transaction exists if, and only if, that transaction commits. The work itself is done by the
// processes of package workers, which this package never imports.
//
// # Transactions
//
// Methods that end in Tx use the caller's transaction and never commit it. Under READ COMMITTED, which is PostgreSQL's
// default, none of Weir's own statements raises an error of conflict in it: an idempotency key that is taken is an
// answer, not an error of SQL. An enqueue may wait for another transaction that is using the same key, and two
// transactions that each enqueue several keys in different orders can deadlock (40P01), as with any rows. Under
// REPEATABLE READ and SERIALIZABLE a key that was taken meanwhile gives 40001, and the caller tries its transaction
// again.
//
// # Tables
//
// They are made by `worker migrate up`, or by migrations.Up. Without them every call fails with PostgreSQL's 42P01,
// undefined_table.
//
// # Poolers
//
// A Client works through a transaction pooler such as PgBouncer; use pgx's QueryExecModeExec or
// QueryExecModeSimpleProtocol there. Workers and migrations need a direct connection.
//
// database/sql is not supported.
package jobs
