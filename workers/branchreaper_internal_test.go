package workers

import (
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/internal/fencing"
	"github.com/weirqueue/weir/internal/postgres/pgtest"
)

// The look for abandoned resets is one statement that reads their own index, and there only what it is for: many runs of
// other kinds, resets that are not due and resets that are owned are not walked.
func TestAbandoned_ReadsTheIndexOfResets(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	_, err := pool.Exec(t.Context(), `insert into weir.run (id, root_id, kind, status, queue, max_failures, next_attempt_at)
		select gen_random_uuid(), gen_random_uuid(), case when i % 2 = 0 then 'delivery' else 'branch_reset' end, case when i % 2 = 0 then 'pending' else 'running' end,
			'q', 5, now() + case when i % 2 = 0 then -interval '1 day' else interval '1 min' end from generate_series(1, 20000) i
		union all select gen_random_uuid(), gen_random_uuid(), 'branch_reset', 'queued', 'q', 5, now() - interval '2 h'`)
	require.NoError(t, err)
	_, err = pool.Exec(t.Context(), `insert into weir.run (id, root_id, kind, status, queue, max_failures, next_attempt_at, lease_owner, lease_expires_at, step_deadline_at)
		select gen_random_uuid(), gen_random_uuid(), 'branch_reset', 'running', 'q', 5, 'infinity', 'w', now() + interval '1 min', now() + interval '1 min' from generate_series(1, 5000)`)
	require.NoError(t, err)
	_, err = pool.Exec(t.Context(), "analyze weir.run")
	require.NoError(t, err)
	conn, err := pool.Acquire(t.Context())
	require.NoError(t, err)
	defer conn.Release()
	_, err = conn.Exec(t.Context(), "set plan_cache_mode = force_generic_plan")
	require.NoError(t, err)
	rows, err := conn.Query(t.Context(), "explain (analyze, costs off, timing off, summary off, buffers off) "+abandoned.SQL,
		abandoned.Bind(fencing.Args{"limit": time.Hour, "after_at": time.Unix(0, 0), "after_run": uuid.Nil})...)
	require.NoError(t, err)
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	plan := strings.Join(lines, "\n")
	require.Regexp(t, `Index Scan using run_reset_due_idx on run r \(actual rows=1(\.00)? loops=1\)`, plan)
	require.NotContains(t, plan, "Rows Removed by Filter")
}
