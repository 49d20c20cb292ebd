package main

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// watchStatements begins to count what PostgreSQL spends on each statement.
func (b *bench) watchStatements(ctx context.Context, pool *pgxpool.Pool) error {
	if !b.statements {
		return nil
	}
	_, err := pool.Exec(ctx, "create extension if not exists pg_stat_statements; select pg_stat_statements_reset()")
	return err
}

// sayStatements prints where the time went.
func (b *bench) sayStatements(ctx context.Context, pool *pgxpool.Pool, contest string, ops int) error {
	if !b.statements {
		return nil
	}
	rows, err := pool.Query(ctx, `select query, calls, rows, total_exec_time, total_plan_time from pg_stat_statements s
		join pg_database d on d.oid = s.dbid where d.datname = current_database() order by total_exec_time + total_plan_time desc limit 12`)
	if err != nil {
		return err
	}
	var (
		query      string
		calls, n   int64
		exec, plan float64
	)
	fmt.Fprintf(os.Stderr, "%s, for each operation:\n", contest)
	_, err = pgx.ForEachRow(rows, []any{&query, &calls, &n, &exec, &plan}, func() error {
		query = strings.Join(strings.Fields(query), " ")
		fmt.Fprintf(os.Stderr, "%8.1f µs + %6.1f µs planning, %7d calls, %6.1f rows a call  %.90s\n",
			exec*1000/float64(ops), plan*1000/float64(ops), calls, float64(n)/float64(max(calls, 1)), query)
		return nil
	})
	return err
}
