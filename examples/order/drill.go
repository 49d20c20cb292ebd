package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weirqueue/weir/workers"
	"github.com/weirqueue/weir/workers/drill"
)

const envProvider = "provider"

// orderDrill proves the kind under real faults: `order drill`. Its worker processes reach the provider of the parent.
func orderDrill() drill.Config[Order] {
	var outside *provider
	return drill.Config[Order]{
		Kind: OrderKind,
		Bind: func(cfg workers.KindConfig, env drill.Env) (workers.Binding, error) {
			return BindOrder(cfg, outsideAt(env[envProvider])), nil
		},
		Payload: func(n int64) Order {
			return Order{Number: int(n), Item: "pen", Count: 1, Cents: 150, Mail: fmt.Sprintf("ada%d@example.com", n)}
		},
		Outside: func(ctx context.Context, pool *pgxpool.Pool) (drill.Env, func() error, error) {
			if err := createTables(ctx, pool); err != nil {
				return nil, nil, err
			}
			if _, err := pool.Exec(ctx, "delete from reservation"); err != nil { // orders are numbered from 1 again
				return nil, nil, err
			}
			outside = startProvider()
			return drill.Env{envProvider: outside.URL}, func() error { outside.Close(); return nil }, nil
		},
		Check: func(ctx context.Context, pool *pgxpool.Pool, e drill.Ended[Order]) error {
			var reserved int
			err := pool.QueryRow(ctx, "select count(*) from reservation where order_number = $1", e.Payload.Number).Scan(&reserved)
			if err == nil && (reserved == 1) != e.Done["reserve"] {
				err = fmt.Errorf("reserved %d times, and the receipt is there: %t", reserved, e.Done["reserve"])
			}
			if e.Done["charge"] && !outside.charged(e.Run.ID.String()+":0") {
				err = errors.Join(err, errors.New("not charged"))
			}
			if mails := outside.mailsTo(e.Payload.Mail); mails > 1+e.Unknown["mail"] || e.Done["mail"] && mails == 0 {
				err = errors.Join(err, fmt.Errorf("%d mails, %d unknown outcomes", mails, e.Unknown["mail"]))
			}
			return err
		},
	}
}
