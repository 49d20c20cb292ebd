package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weirqueue/weir/jobs"
	"github.com/weirqueue/weir/migrations"
	"github.com/weirqueue/weir/workers"
	"github.com/weirqueue/weir/workers/workerstest"
)

func testPool(t *testing.T) *pgxpool.Pool {
	t.Helper()
	url := os.Getenv("DATABASE_URL")
	if url == "" {
		t.Fatal("DATABASE_URL is not set: see README.md")
	}
	if err := migrations.Up(t.Context(), url, migrations.Options{}); err != nil {
		t.Fatal(err)
	}
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	if err := createTables(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	if _, err := pool.Exec(t.Context(), "delete from reservation"); err != nil {
		t.Fatal(err)
	}
	return pool
}

func TestOrder_SurvivesWhatProductionDoes(t *testing.T) {
	provider := startProvider()
	t.Cleanup(provider.Close)
	out := provider.outside()
	workerstest.Run(t, workerstest.Config[Order]{
		Pool: testPool(t),
		Kind: OrderKind,
		Bind: func(cfg workers.KindConfig) workers.Binding { return BindOrder(cfg, out) },
		Payload: func(i int) Order {
			return Order{Number: i + 1, Item: "pen", Count: 1, Cents: 150, Mail: fmt.Sprintf("ada%d@example.com", i)}
		},
		Check: func(ctx context.Context, pool *pgxpool.Pool, run *jobs.Run, o Order) error {
			var reserved int
			err := pool.QueryRow(ctx, "select count(*) from reservation where order_number = $1", o.Number).Scan(&reserved)
			if err == nil && reserved != 1 {
				err = fmt.Errorf("reserved %d times", reserved)
			}
			if !provider.charged(run.ID.String() + ":0") {
				err = errors.Join(err, errors.New("not charged"))
			}
			if n := provider.mailsTo(o.Mail); n < 1 || n > 2 { // the effect table allows the second one
				err = errors.Join(err, fmt.Errorf("%d mails", n))
			}
			return err
		},
	})
}

func TestRun_NeedsADatabaseAndNothingElse(t *testing.T) {
	if err := run(t.Context(), os.Getenv("DATABASE_URL")); err != nil {
		t.Fatal(err)
	}
	if err := run(t.Context(), ""); err == nil {
		t.Fatal("it ran without a database")
	}
}
