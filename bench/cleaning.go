package main

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	cleanedRuns   = 600_000
	cleanedRounds = 3
)

// cleaning compares deliveries while clean-finished-runs, which begins with the fleet, deletes what is thirty days old with
// deliveries in a database that has as many finished runs which are too young for that.
func (b *bench) cleaning(ctx context.Context, r *report) error {
	c := contestsNamed("delivery")[0]
	var busy, quiet []result
	var deleted []float64
	for range b.roundsOf(cleanedRounds) {
		one, _, err := b.amongFinished(ctx, c, 24*time.Hour)
		if err != nil {
			return err
		}
		quiet = append(quiet, one)
		one, gone, err := b.amongFinished(ctx, c, 30*24*time.Hour)
		if err != nil {
			return err
		}
		busy, deleted = append(busy, one), append(deleted, float64(gone))
		b.say("  deliveries beside the cleaner: %.0f /s, without: %.0f /s; it deleted %d runs", one.Rate, quiet[len(quiet)-1].Rate, gone)
	}
	r.results["delivery, cleaning"], r.results["delivery, not cleaning"] = busy, quiet
	r.figures["cleaning"] = ratioOf(busy, quiet)
	r.details["cleaning: runs deleted in a round"] = spreadOf(deleted...)
	return nil
}

// amongFinished runs a contest in a database with many runs that finished so long ago, and counts those that are gone
// afterwards.
func (b *bench) amongFinished(ctx context.Context, c contest, age time.Duration) (one result, deleted int, err error) {
	url, drop, err := b.database(ctx)
	if err != nil {
		return one, 0, err
	}
	defer drop()
	h := history{kind: "bench_old", status: "succeeded", runs: b.scaled(cleanedRuns), receipts: 1, since: age, span: age / 2}
	if err := h.fill(ctx, url, func(string, ...any) {}); err != nil {
		return one, 0, err
	}
	if one, err = b.roundIn(ctx, url, c); err != nil {
		return one, 0, fmt.Errorf("%s: %w", c.name, err)
	}
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return one, 0, err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	var left int
	err = conn.QueryRow(ctx, "select count(*) from weir.run where kind = 'bench_old'").Scan(&left)
	return one, h.runs - left, err
}
