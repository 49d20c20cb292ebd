package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// longTransactionRounds follow each other in one database, while a transaction that began before them stays open.
const longTransactionRounds = 3

// longTransaction compares rounds beside a transaction that keeps PostgreSQL from forgetting anything with rounds without
// one. What counts is the last round, which has the most dead rows before it.
func (b *bench) longTransaction(ctx context.Context, r *report) error {
	for n, c := range contestsNamed("delivery", "statement step") {
		free, err := b.following(ctx, r, c, false)
		if err != nil {
			return err
		}
		held, err := b.following(ctx, r, c, true)
		if err != nil {
			return err
		}
		ratio := spreadOf(held[len(held)-1].Rate / free[len(free)-1].Rate)
		r.results[c.name+" long transaction"], r.results[c.name+" no long transaction"] = held, free
		if r.details["long_transaction "+c.name] = ratio; n == 0 || ratio.Median < r.figures["long_transaction"].Median {
			r.figures["long_transaction"] = ratio
		}
	}
	return nil
}

// following runs a contest several times in one database, and counts the dead rows that are there at the end.
func (b *bench) following(ctx context.Context, r *report, c contest, beside bool) (list []result, err error) {
	url, drop, err := b.database(ctx)
	if err != nil {
		return nil, err
	}
	defer drop()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, conn.Close(context.WithoutCancel(ctx))) }()
	if beside {
		// A snapshot is taken by the first statement.
		for _, sql := range []string{"begin isolation level repeatable read", "select count(*) from weir.run"} {
			if _, err := conn.Exec(ctx, sql); err != nil {
				return nil, err
			}
		}
	}
	for range b.roundsOf(longTransactionRounds) {
		one, err := b.roundIn(ctx, url, c)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.name, err)
		}
		list = append(list, one)
		b.say("  %s, beside a transaction: %t: %.0f /s", c.name, beside, one.Rate)
	}
	pool, err := b.connect(ctx, url)
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	for _, table := range []string{"weir.run", "weir.receipt", "river_job"} {
		u, err := updatesOf(ctx, pool, table)
		if err != nil {
			return nil, err
		}
		with := "without"
		if beside {
			with = "beside"
		}
		r.details[fmt.Sprintf("dead rows %s a long transaction, %s: %s", with, c.name, table)] = spreadOf(float64(u.dead))
	}
	return list, nil
}
