package main

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"

	"github.com/jackc/pgx/v5/pgxpool"
)

// floorScript is a step without any system around it: begin, the user's row, the run's row under a condition, a receipt and
// commit, in one round trip.
//
//go:embed floor.sql
var floorScript []byte

const floorTables = effectTable + `;
drop table if exists floor_run, floor_receipt;
create table floor_run (id bigint primary key, attempt bigint not null, status text not null, lease_expires_at timestamptz not null) with (fillfactor = 80);
create table floor_receipt (run_id bigint not null, step_index integer not null, attempt bigint not null, recorded_at timestamptz not null default clock_timestamp(),
    outcome text not null, step_name text not null, output jsonb, primary key (run_id, step_index))`

// floorPipelined is what PostgreSQL itself can do, by its own client.
func floorPipelined(ctx context.Context, pool *pgxpool.Pool, n int) (func(context.Context) error, error) {
	each := max(n/poolSize, 1)
	if _, err := pool.Exec(ctx, floorTables); err != nil {
		return nil, err
	}
	if _, err := pool.Exec(ctx, `insert into floor_run select c * 1000000000::bigint + i, 1, 'running', clock_timestamp()
		from generate_series(0, $1::bigint - 1) c, generate_series(0, $2::bigint) i`, poolSize, each/stepsPerRun+1); err != nil {
		return nil, err
	}
	var bin string
	if err := pool.QueryRow(ctx, "select setting from pg_config where name = 'BINDIR'").Scan(&bin); err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		dir, err := os.MkdirTemp("", "weir-bench-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		script := filepath.Join(dir, "floor.sql")
		if err := os.WriteFile(script, floorScript, 0o600); err != nil {
			return err
		}
		cmd := exec.CommandContext(ctx, filepath.Join(bin, "pgbench"), "--no-vacuum", "--protocol=prepared", "--file="+script, "--define=n=0",
			"--client="+strconv.Itoa(poolSize), "--transactions="+strconv.Itoa(each), "--max-tries=1", pool.Config().ConnString())
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("pgbench: %w: %s", err, out)
		}
		return nil
	}, nil
}
