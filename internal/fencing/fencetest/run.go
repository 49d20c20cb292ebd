// Package fencetest is what the tests of fencing, receipts and doorbell share: runs put into any state, and rows read
// back as PostgreSQL has them.
package fencetest

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/internal/fencing"
	"github.com/weirqueue/weir/internal/receipts"
)

// The kinds that tests use: one for each machine's vocabulary.
const (
	Delivery = "delivery"
	Plan     = "plan"
	Steps    = "own_kind"
)

// Lease is long enough for a test never to lose it by being slow.
const Lease = time.Minute

// KindOf is a kind that uses the machine.
func KindOf(m *fencing.Machine) string {
	if fencing.MachineOf(m.Name) == m && m.Name != fencing.Steps.Name {
		return m.Name
	}
	return Steps
}

// Set is what a run that is inserted has beside the defaults: SQL over columns of weir.run, such as "reaps = 2".
type Set string

// Owned makes a run owned, as if somebody had claimed it under its attempt.
const Owned Set = `lease_owner = 'a:1:x', lease_expires_at = clock_timestamp() + interval '1 min',
	step_deadline_at = clock_timestamp() + interval '1 min', next_attempt_at = 'infinity', claimed_at = clock_timestamp()`

// Expired is Owned with a lease that has run out a second ago.
const Expired Set = `lease_owner = 'a:1:x', lease_expires_at = clock_timestamp() - interval '1 s',
	step_deadline_at = clock_timestamp() + interval '1 min', next_attempt_at = 'infinity', claimed_at = clock_timestamp()`

// Insert makes a run of kind in status, due now unless the status is terminal, with its payload.
func Insert(t testing.TB, db fencing.DB, kind string, status fencing.Status, sets ...Set) uuid.UUID {
	t.Helper()
	id := uuid.Must(uuid.NewV7())
	terminal := fencing.MachineOf(kind).IsTerminal(status)
	Exec(t, db, `insert into weir.run (id, root_id, kind, status, queue, max_failures, attempt, next_attempt_at, finished_at)
		values ($1, $1, $2, $3, 'weir_' || $2, 5, 7, case when not $4 then clock_timestamp() end, case when $4 then clock_timestamp() end)`,
		id, kind, string(status), terminal)
	Exec(t, db, `insert into weir.payload (run_id, body, digest) values ($1, '{"to":"a@example.com"}', sha256('{"to":"a@example.com"}'))`, id)
	if kind == Plan { // approved: the steps of a plan are fenced by what was
		Exec(t, db, `insert into weir.plan (run_id, approval_limit, decision, decided_by, decided_at, approved_digest)
			select run_id, interval '15 min', 'approved', 'a', clock_timestamp(), digest from weir.payload where run_id = $1`, id)
	}
	for _, set := range sets {
		Update(t, db, id, set)
	}
	return id
}

// InsertMany makes n runs of kind in status, all alike, in one statement. set is as in Insert; "" sets nothing.
func InsertMany(t testing.TB, db fencing.DB, n int, kind string, status fencing.Status, set Set) []uuid.UUID {
	t.Helper()
	ids := make([]uuid.UUID, n)
	for i := range ids {
		ids[i] = uuid.Must(uuid.NewV7())
	}
	Exec(t, db, `insert into weir.run (id, root_id, kind, status, queue, max_failures, attempt, next_attempt_at)
		select id, id, $2, $3, 'weir_' || $2, 5, 7, clock_timestamp() from unnest($1::uuid[]) id`, ids, kind, string(status))
	if set != "" {
		Exec(t, db, "update weir.run set "+string(set)+" where id = any($1)", ids)
	}
	return ids
}

// Update sets columns of one run.
func Update(t testing.TB, db fencing.DB, id uuid.UUID, set Set) {
	t.Helper()
	Exec(t, db, "update weir.run set "+string(set)+" where id = $1", id)
}

// Exec runs SQL that must succeed.
func Exec(t testing.TB, db fencing.DB, sql string, args ...any) {
	t.Helper()
	_, err := db.Exec(context.Background(), sql, args...)
	require.NoError(t, err, sql)
}

// Value reads one value.
func Value[T any](t testing.TB, db fencing.DB, sql string, args ...any) T {
	t.Helper()
	var v T
	require.NoError(t, db.QueryRow(context.Background(), sql, args...).Scan(&v), sql)
	return v
}

// Row is a run as PostgreSQL has it.
type Row struct {
	Status                   fencing.Status
	Attempt                  int64
	Failures, Reaps          int
	Owner, Code, CancelCode  string
	Owned, Terminal, Waits   bool
	CancelRequested, DueNow  bool
	LeaseLeft, DueIn         time.Duration
	Doorbell                 int64
	FinishedAt, RowChangedBy string
}

// Read returns a run.
func Read(t testing.TB, db fencing.DB, id uuid.UUID) Row {
	t.Helper()
	var (
		r            Row
		lease, dueIn float64
	)
	require.NoError(t, db.QueryRow(context.Background(), `
		select status, attempt, failures, reaps, coalesce(lease_owner, ''), coalesce(error_code, ''), coalesce(cancel_code, ''),
			lease_expires_at is not null, finished_at is not null, next_attempt_at is null,
			cancel_requested_at is not null, coalesce(next_attempt_at <= clock_timestamp(), false),
			coalesce(extract(epoch from lease_expires_at - clock_timestamp()), 0)::float8,
			coalesce(case when next_attempt_at < 'infinity' then extract(epoch from next_attempt_at - clock_timestamp()) end, 0)::float8,
			coalesce(doorbell_id, 0), coalesce(finished_at::text, ''), xmin::text || '/' || ctid::text
		from weir.run where id = $1`, id).Scan(&r.Status, &r.Attempt, &r.Failures, &r.Reaps, &r.Owner, &r.Code, &r.CancelCode,
		&r.Owned, &r.Terminal, &r.Waits, &r.CancelRequested, &r.DueNow, &lease, &dueIn, &r.Doorbell, &r.FinishedAt, &r.RowChangedBy))
	r.LeaseLeft = time.Duration(lease * float64(time.Second))
	r.DueIn = time.Duration(dueIn * float64(time.Second))
	return r
}

// Outcomes returns the rows of a run's receipts as "index name outcome attempt".
func Outcomes(t testing.TB, db fencing.DB, id uuid.UUID) []string {
	t.Helper()
	return column(t, db, `select concat_ws(' ', step_index, step_name, outcome, attempt) from weir.receipt where run_id = $1 order by step_index`, id)
}

// Tries returns the ended tries of a run as "attempt how owner".
func Tries(t testing.TB, db fencing.DB, id uuid.UUID) []string {
	t.Helper()
	return column(t, db, `select attempt || ' ' || how || ' ' || coalesce(owner, '') from weir.ended_try where run_id = $1 order by attempt`, id)
}

func column(t testing.TB, db fencing.DB, sql string, id uuid.UUID) []string {
	t.Helper()
	rows, err := db.Query(context.Background(), sql, id)
	require.NoError(t, err)
	out, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	return append([]string{}, out...)
}

// Request is a claim of run by owner w, with a lease of a minute.
func Request(kind string, run uuid.UUID) fencing.ClaimRequest {
	return fencing.ClaimRequest{
		Run: run, Kind: kind, Owner: "w", Doorbell: 1, DoorbellAttemptedAt: time.Now(), Lease: Lease, StepTime: Lease,
	}
}

// Claim claims a run that can be claimed.
func Claim(t testing.TB, db fencing.DB, kind string, run uuid.UUID) fencing.Claimed {
	t.Helper()
	c, ok, err := receipts.Claim(context.Background(), db, Request(kind, run))
	require.NoError(t, err)
	require.True(t, ok, "run %s could not be claimed", run)
	return c
}

// Begin begins a transaction that is rolled back at the end of the test at the latest.
func Begin(t testing.TB, pool *pgxpool.Pool) pgx.Tx {
	t.Helper()
	tx, err := pool.Begin(context.Background())
	require.NoError(t, err)
	t.Cleanup(func() { fencing.RollbackQuietly(context.Background(), tx) })
	return tx
}

// Eventually polls until ok, for at most thirty seconds.
func Eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// WaitsForLock waits until n sessions of the database wait for a lock.
func WaitsForLock(t testing.TB, db fencing.DB, n int) {
	t.Helper()
	Eventually(t, "sessions wait for a lock", func() bool {
		return Value[int](t, db, `select count(*)::int from pg_stat_activity
			where datname = current_database() and wait_event_type = 'Lock'`) >= n
	})
}
