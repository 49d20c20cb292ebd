package fencing_test

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/internal/fencing"
	"github.com/weirqueue/weir/internal/fencing/fencetest"
	"github.com/weirqueue/weir/internal/postgres/pgtest"
)

// The database itself refuses what no code of ours should ever write.
func TestSchema_RefusesABrokenRun(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	lease := "lease_owner = 'x', lease_expires_at = now(), step_deadline_at = now(), next_attempt_at = 'infinity'"
	for name, c := range map[string]struct {
		kind       string
		status     fencing.Status
		sets       []fencetest.Set
		sql        string
		constraint string
	}{
		"unknown status":              {fencetest.Delivery, "pending", nil, "status = 'paused'", "run_status_of_kind"},
		"status of another kind":      {fencetest.Delivery, "pending", nil, "status = 'queued'", "run_status_of_kind"},
		"delivery's status elsewhere": {fencetest.Steps, "queued", nil, "status = 'pending'", "run_status_of_kind"},
		"lease on pending":            {fencetest.Delivery, "pending", nil, lease, "run_lease_on_ownable"},
		"lease on queued":             {fencetest.Steps, "queued", nil, lease, "run_lease_on_ownable"},
		"owned without infinity":      {fencetest.Delivery, "processing", []fencetest.Set{fencetest.Owned}, "next_attempt_at = now()", "run_owned_is_leased"},
		"owned and not due":           {fencetest.Delivery, "processing", []fencetest.Set{fencetest.Owned}, "next_attempt_at = null", "run_owned_is_leased"},
		"infinity without a lease":    {fencetest.Steps, "running", nil, "next_attempt_at = 'infinity'", "run_owned_is_leased"},
		"lease without an owner":      {fencetest.Steps, "running", []fencetest.Set{fencetest.Owned}, "lease_owner = null", "run_owned_is_leased"},
		"owner without a lease":       {fencetest.Steps, "running", nil, "lease_owner = 'x'", "run_owned_is_leased"},
		"lease without a deadline":    {fencetest.Steps, "running", []fencetest.Set{fencetest.Owned}, "step_deadline_at = null", "run_owned_is_leased"},
		"finished but pending":        {fencetest.Delivery, "pending", nil, "finished_at = now(), next_attempt_at = null", "run_finished_is_terminal"},
		"terminal but not finished":   {fencetest.Delivery, "pending", nil, "status = 'sent', next_attempt_at = null", "run_finished_is_terminal"},
		"terminal and due":            {fencetest.Delivery, "sent", nil, "next_attempt_at = now()", "run_terminal_is_not_due"},
		"attempt goes back":           {fencetest.Delivery, "pending", nil, "attempt = attempt - 1", "run_attempt_never_goes_back"},
		"negative failures":           {fencetest.Delivery, "pending", nil, "failures = -1", "run_budgets_not_negative"},
		"negative reaps":              {fencetest.Delivery, "pending", nil, "reaps = -1", "run_budgets_not_negative"},
		"priority":                    {fencetest.Delivery, "pending", nil, "priority = 5", "run_priority_in_range"},
	} {
		run := fencetest.Insert(t, pool, c.kind, c.status, c.sets...)
		_, err := pool.Exec(t.Context(), "update weir.run set "+c.sql+" where id = $1", run)
		requireRefused(t, err, c.constraint, name)
	}
}

func requireRefused(t *testing.T, err error, constraint, name string) {
	t.Helper()
	var refused *pgconn.PgError
	require.True(t, errors.As(err, &refused), "%s: the database took it (%v)", name, err)
	require.Equal(t, constraint, refused.ConstraintName, name)
}

// A payload is frozen at enqueue. The one way to change it is the erasure on a terminal run, and the one way to delete
// it is with its run.
func TestSchema_PayloadIsFrozen(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	live := fencetest.Insert(t, pool, fencetest.Delivery, "pending")
	sent := fencetest.Insert(t, pool, fencetest.Delivery, "sent")
	const erase = "update weir.payload set body = null, erased_at = now() where run_id = $1"
	for _, sql := range []string{
		"update weir.payload set body = 'other' where run_id = $1",
		"update weir.payload set digest = 'other' where run_id = $1",
		"update weir.payload set run_id = gen_random_uuid(), body = null, erased_at = now() where run_id = $1",
		"update weir.payload set body = null, erased_at = now(), digest = 'other' where run_id = $1",
		"delete from weir.payload where run_id = $1",
	} {
		for _, run := range []any{live, sent} {
			_, err := pool.Exec(t.Context(), sql, run)
			requireRefused(t, err, "payload_is_frozen", sql)
		}
	}
	_, err := pool.Exec(t.Context(), erase, live)
	requireRefused(t, err, "payload_is_frozen", "erasure of a live run")
	_, err = pool.Exec(t.Context(), "update weir.payload set body = null where run_id = $1", sent)
	requireRefused(t, err, "payload_erased_has_no_body", "erasure without its time")
	fencetest.Exec(t, pool, erase, sent)
	_, err = pool.Exec(t.Context(), "update weir.payload set body = 'back', erased_at = null where run_id = $1", sent)
	requireRefused(t, err, "payload_is_frozen", "a body comes back")
	fencetest.Exec(t, pool, "delete from weir.run where id = $1", live)
	require.Equal(t, 1, fencetest.Value[int](t, pool, "select count(*)::int from weir.payload"))
}

// F9: an unfenced receipt is NULL in attempt, and refused with the column that alone means lost.
func TestSchema_ReceiptNeedsAnAttempt(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	run := fencetest.Insert(t, pool, fencetest.Delivery, "pending")
	_, err := pool.Exec(t.Context(), `insert into weir.receipt (run_id, step_index, outcome, effect, step_name) values ($1, 0, 'ok', 'transactional', 'x')`, run)
	var refused *pgconn.PgError
	require.True(t, errors.As(err, &refused))
	require.Equal(t, "23502", refused.Code)
	require.Equal(t, "attempt", refused.ColumnName)
	for _, values := range []string{"'done', 'transactional'", "'ok', 'magic'"} {
		_, err = pool.Exec(t.Context(), `insert into weir.receipt (run_id, step_index, attempt, step_name, outcome, effect) values ($1, 0, 1, 'x', `+values+`)`, run)
		require.ErrorContains(t, err, "23514")
	}
}

// One live run under an exclusive key; finished ones do not count.
func TestSchema_ExclusiveKey(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	fencetest.Insert(t, pool, fencetest.Steps, "succeeded", "exclusive_key = 'main'")
	fencetest.Insert(t, pool, fencetest.Steps, "running", "exclusive_key = 'main'")
	fencetest.Insert(t, pool, "other_kind", "running", "exclusive_key = 'main'")
	second := fencetest.Insert(t, pool, fencetest.Steps, "queued")
	_, err := pool.Exec(t.Context(), "update weir.run set exclusive_key = 'main' where id = $1", second)
	requireRefused(t, err, "run_exclusive_idx", "two live runs")
}
