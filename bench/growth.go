package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weirqueue/weir/internal/postgres"
)

const (
	grownRuns = 2_000_000
	// smallBuffers is far below what a grown database takes: about 4 GB.
	smallBuffers = "64MB"
	grownRounds  = 3
)

// grownContests are what growth must not slow down.
var grownContests = []string{"delivery", "bulk", "statement step", "live step"}

// growth compares a database with ten million receipts of two million runs with an empty one, and that with little memory.
func (b *bench) growth(ctx context.Context, r *report) error {
	url, drop, err := b.database(ctx)
	if err != nil {
		return err
	}
	defer drop()
	began := time.Now()
	// Younger than what the cleaner would delete.
	h := history{kind: "bench_old", status: "succeeded", runs: b.scaled(grownRuns), receipts: receiptsPerRun, since: 6 * 24 * time.Hour, span: 5 * 24 * time.Hour}
	if err := h.fill(ctx, url, b.say); err != nil {
		return err
	}
	b.say("  filled in %s", time.Since(began).Round(time.Second))
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	var size float64
	err = errors.Join(conn.QueryRow(ctx, "select pg_database_size(current_database())").Scan(&size), conn.Close(ctx))
	if err != nil {
		return err
	}
	r.details["growth_database_mb"] = spreadOf(size / 1e6)

	worst, err := b.againstEmpty(ctx, r, url, "growth")
	if err != nil {
		return err
	}
	r.figures["growth"] = worst
	if err := b.setBuffers(ctx, smallBuffers); err != nil {
		return err
	}
	worst, err = b.againstEmpty(ctx, r, url, "small_buffers")
	if err != nil {
		return err
	}
	r.figures["small_buffers"] = worst
	return b.setBuffers(ctx, bufferSize)
}

// againstEmpty runs each contest in the database and in an empty one by turns, and returns the lowest ratio.
func (b *bench) againstEmpty(ctx context.Context, r *report, url, name string) (worst spread, err error) {
	for n, c := range contestsNamed(grownContests...) {
		var grown, empty []result
		for range b.roundsOf(grownRounds) {
			one, err := b.round(ctx, c)
			if err != nil {
				return worst, fmt.Errorf("%s: empty: %w", c.name, err)
			}
			empty = append(empty, one)
			if one, err = b.roundIn(ctx, url, c); err != nil {
				return worst, fmt.Errorf("%s: %w", c.name, err)
			}
			grown = append(grown, one)
			b.say("  %s, %s: %.0f /s, empty %.0f /s", name, c.name, one.Rate, empty[len(empty)-1].Rate)
		}
		r.results[c.name+" "+name], r.results[c.name+" empty "+name] = grown, empty
		ratio := ratioOf(grown, empty)
		if r.details[name+" "+c.name] = ratio; n == 0 || ratio.Median < worst.Median {
			worst = ratio
		}
	}
	return worst, nil
}

// roundsOf is how many rounds a measurement of the full run takes.
func (o options) roundsOf(n int) int {
	if o.rounds > 0 {
		return o.rounds
	}
	return n
}

func contestsNamed(names ...string) []contest {
	var list []contest
	for _, name := range names {
		for _, c := range all() {
			if c.name == name {
				list = append(list, c)
			}
		}
	}
	return list
}

// setBuffers restarts the server with so much memory of its own.
func (b *bench) setBuffers(ctx context.Context, size string) error {
	conn, err := pgx.Connect(ctx, b.server.URL("postgres"))
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, "alter system set shared_buffers = '"+size+"'")
	if err := errors.Join(err, conn.Close(ctx)); err != nil {
		return err
	}
	return b.server.Restart(ctx, postgres.Fast)
}
