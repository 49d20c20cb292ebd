package main

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weirqueue/weir/jobs"
	"github.com/weirqueue/weir/workers"
)

// Order is the payload: what is frozen when an order is placed.
type Order struct {
	Number int    `json:"number"`
	Item   string `json:"item"`
	Count  int    `json:"count"`
	Cents  int    `json:"cents"`
	Mail   string `json:"mail"`
}

// OrderKind is all that whoever places orders needs to import.
var OrderKind = jobs.MustKind[Order]("order", jobs.KindConfig{Steps: []jobs.Step{
	{Name: "charge", Effect: jobs.Idempotent},     // the provider honours our key
	{Name: "reserve", Effect: jobs.Transactional}, // our own tables
	{Name: "mail", Effect: jobs.AtLeastOnce},      // a second mail is bearable
}})

// Charge is what the step charge leaves for the steps after it.
type Charge struct {
	Payment string `json:"payment"`
}

// Outside is what the steps need beside the database.
type Outside struct {
	Payments *Payments
	Mails    *Mails
}

// BindOrder joins the kind with its functions.
func BindOrder(cfg workers.KindConfig, out Outside) workers.Binding {
	return workers.Bind(OrderKind, cfg,
		workers.Idempotent("charge", func(ctx context.Context, in *workers.In[Order]) (Charge, error) {
			payment, err := out.Payments.Charge(ctx, in.Key, in.Payload.Cents)
			return Charge{Payment: payment}, err
		}),
		workers.Transactional("reserve", func(ctx context.Context, tx pgx.Tx, in *workers.In[Order]) (int, error) {
			var left int
			err := tx.QueryRow(ctx, `update stock set left_over = left_over - $2 where item = $1 and left_over >= $2 returning left_over`,
				in.Payload.Item, in.Payload.Count).Scan(&left)
			if err == pgx.ErrNoRows {
				return 0, workers.Refuse("out_of_stock", fmt.Errorf("fewer than %d of %s", in.Payload.Count, in.Payload.Item))
			}
			if err != nil {
				return 0, err
			}
			_, err = tx.Exec(ctx, `insert into reservation (order_number, item, count) values ($1, $2, $3)`,
				in.Payload.Number, in.Payload.Item, in.Payload.Count)
			return left, err
		}),
		workers.AtLeastOnce("mail", func(ctx context.Context, in *workers.In[Order]) (string, error) {
			var c Charge
			if err := in.Output("charge", &c); err != nil {
				return "", err
			}
			text := fmt.Sprintf("Order %d is on its way. Payment: %s.", in.Payload.Number, c.Payment)
			return text, out.Mails.Send(ctx, in.Payload.Mail, text)
		}),
	)
}

// createTables makes the application's own tables. There is no unique key on reservation, on purpose: that there is one
// for each order is the receipts' doing.
func createTables(ctx context.Context, pool *pgxpool.Pool) error {
	_, err := pool.Exec(ctx, `
create table if not exists stock (item text primary key, left_over int not null check (left_over >= 0));
create table if not exists reservation (order_number int not null, item text not null, count int not null);
insert into stock values ('pen', 1000000) on conflict do nothing`)
	return err
}
