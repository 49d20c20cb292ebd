package workers

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/internal/postgres/pgtest"
)

// The look for abandoned resets reads their own index, among many runs of other kinds.
func TestAbandoned_ReadsTheIndexOfResets(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	_, err := pool.Exec(t.Context(), `insert into weir.run (id, root_id, kind, status, queue, max_failures, next_attempt_at)
		select gen_random_uuid(), gen_random_uuid(), 'delivery', 'pending', 'q', 5, now() - interval '1 day' from generate_series(1, 20000)`)
	require.NoError(t, err)
	_, err = pool.Exec(t.Context(), "analyze weir.run")
	require.NoError(t, err)
	conn, err := pool.Acquire(t.Context())
	require.NoError(t, err)
	defer conn.Release()
	_, err = conn.Exec(t.Context(), "set plan_cache_mode = force_generic_plan")
	require.NoError(t, err)
	_, err = conn.Conn().Prepare(t.Context(), "abandoned", abandoned.SQL)
	require.NoError(t, err)
	rows, err := conn.Query(t.Context(), "explain (costs off) execute abandoned(null, null, null)", pgx.QueryExecModeSimpleProtocol)
	require.NoError(t, err)
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	require.Contains(t, strings.Join(lines, "\n"), "run_reset_due_idx")
}
