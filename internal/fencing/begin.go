package fencing

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// A process that freezes between two statements of these transactions frees its locks after the idle timeout (F4, F5).
// They never wait for anything but PostgreSQL in between, so the bounds are short. What they read is bounded by literals
// that PostgreSQL's estimates do not see through: it would compile the sweep's page for 0.2 s to read it in 0.01 s.
const beginShort = `begin isolation level read committed;
set local idle_in_transaction_session_timeout = '2s';
set local lock_timeout = '2s';
set local statement_timeout = '15s';
set local jit = off`

// Begin begins a transaction of upkeep: reaping, sweeping, handing over. Its bounds come with the BEGIN, in one round
// trip.
func Begin(ctx context.Context, db Beginner) (pgx.Tx, error) {
	return db.BeginTx(ctx, pgx.TxOptions{BeginQuery: beginShort})
}

var oldestDue = Compile("oldest due", `
select extract(epoch from clock_timestamp() - next_attempt_at)::float8, queue from weir.run
where status in ('pending', 'queued', 'approved', 'running', 'executing', 'processing')
    and next_attempt_at < (select clock_timestamp()) and blocked_reason is null
order by next_attempt_at, id limit 1`)

// OldestDue says for how long the run that waits longest has been due, and in which queue. Zero when none waits.
func OldestDue(ctx context.Context, db DB) (time.Duration, string, error) {
	var (
		seconds float64
		queue   string
	)
	err := db.QueryRow(ctx, oldestDue.SQL, oldestDue.Bind(nil)...).Scan(&seconds, &queue)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, "", nil
	}
	if err != nil {
		return 0, "", fmt.Errorf("oldest due run: %w", err)
	}
	return time.Duration(seconds * float64(time.Second)), queue, nil
}
