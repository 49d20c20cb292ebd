package main

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

const receiptsPerRun = 5

// A finished run as one that was worked has it: ids in the order of creation, a payload, and a receipt for each step. $1 is
// the moment of the first one's creation, $2 and $3 are the first and last number, $4 the time between two.
const (
	numbered = `
		(lpad(to_hex((extract(epoch from at) * 1000)::bigint), 12, '0') || '7' || substr(md5(i::text), 1, 3) || '8' || substr(md5(i::text), 4, 15))::uuid as id
		from (select i, $1::timestamptz + i * $4::interval as at from generate_series($2::bigint, $3::bigint) i) n`
	fillRuns = `insert into weir.run (id, root_id, kind, status, queue, max_failures, attempt, created_at, finished_at, claimed_at, output)
		select id, id, $5, $6, 'weir_' || $5, 5, 1, at, at + interval '1 s', at, '{"id": 4711}' from (select i, at, ` + numbered + `) r order by i`
	fillPayloads = `insert into weir.payload (run_id, body, digest)
		select id, convert_to('{"steps":["step_0"],"payload":{"n":' || i || '}}', 'UTF8'), sha256(i::text::bytea) from (select i, at, ` + numbered + `) r order by i`
	fillReceipts = `insert into weir.receipt (run_id, step_index, attempt, recorded_at, outcome, effect, step_name, output)
		select id, step, 1, at, 'ok', 'transactional', 'step_' || step, '{"id": 4711}'
		from (select i, at, ` + numbered + `) r, generate_series(0, $5::int - 1) step order by i, step`
)

// history is finished runs that a database is to have.
type history struct {
	kind, status string
	runs         int
	receipts     int // of each run
	// since is the first one's creation; they are spread from there over span.
	since, span time.Duration
}

// fill writes it.
func (h history) fill(ctx context.Context, url string, say func(string, ...any)) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	// Nobody waits for the disk with this.
	if _, err := conn.Exec(ctx, "set synchronous_commit = off"); err != nil {
		return err
	}
	first, apart := time.Now().Add(-h.since), max(h.span/time.Duration(h.runs), time.Millisecond)
	const page = 100_000
	for from := 0; from < h.runs; from += page {
		to := min(from+page, h.runs) - 1
		for _, one := range []struct {
			sql  string
			args []any
		}{{fillRuns, []any{h.kind, h.status}}, {fillPayloads, nil}, {fillReceipts, []any{h.receipts}}} {
			if _, err := conn.Exec(ctx, one.sql, append([]any{first, from, to, apart}, one.args...)...); err != nil {
				return fmt.Errorf("fill: %w", err)
			}
		}
		if (to+1)%(5*page) == 0 {
			say("  %d of %d finished runs", to+1, h.runs)
		}
	}
	if _, err := conn.Exec(ctx, "vacuum analyze"); err != nil {
		return err
	}
	_, err = conn.Exec(ctx, "checkpoint")
	return err
}
