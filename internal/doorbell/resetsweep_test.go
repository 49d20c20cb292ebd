package doorbell_test

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/internal/doorbell"
	"github.com/weirqueue/weir/internal/fencing"
	"github.com/weirqueue/weir/internal/fencing/fencetest"
	"github.com/weirqueue/weir/internal/postgres/pgtest"
)

// The sweep of resets rings for resets alone, and reads the index that holds nothing else, up to the present: a backlog of
// other kinds, resets that are not due and resets that are owned are neither rung nor walked.
func TestResetSweep_ReadsResetsAlone(t *testing.T) {
	t.Parallel()
	traced := &tracer{}
	pool := pgtest.Pool(t, pgtest.Config(func(c *pgxpool.Config) {
		c.ConnConfig.Tracer = traced
		c.ConnConfig.RuntimeParams["plan_cache_mode"] = "force_generic_plan"
	}))
	bells := fencetest.Bells(t, pool)
	fencetest.Exec(t, pool, `insert into weir.run (id, root_id, kind, status, queue, max_failures, next_attempt_at)
		select gen_random_uuid(), gen_random_uuid(), 'delivery', 'pending', 'weir_delivery', 5, now() - interval '1 day' from generate_series(1, 20000)
		union all select gen_random_uuid(), gen_random_uuid(), 'branch_reset', 'running', 'weir_branch_reset', 5, now() + interval '1 min' from generate_series(1, 10000)`)
	insert := func(status fencing.Status, sets ...fencetest.Set) {
		fencetest.Insert(t, pool, fencing.KindBranchReset, status, append(sets, "next_attempt_at = clock_timestamp() - interval '1 h'")...)
	}
	insert("queued")
	insert("running")
	fencetest.Insert(t, pool, fencing.KindBranchReset, "running", "next_attempt_at = clock_timestamp() + interval '1 h'")
	fencetest.Insert(t, pool, fencing.KindBranchReset, "running", fencetest.Owned)
	fencetest.Insert(t, pool, fencing.KindBranchReset, "succeeded")
	fencetest.Exec(t, pool, "analyze weir.run")
	n, err := doorbell.NewResetSweeper(pool, bells, grace).Sweep(t.Context())
	require.NoError(t, err)
	require.Equal(t, 2, n)
	require.Equal(t, 2, fencetest.Value[int](t, pool, "select count(*)::int from river_job"))

	conn, err := pool.Acquire(t.Context())
	require.NoError(t, err)
	defer conn.Release()
	_, err = conn.Conn().Prepare(t.Context(), "page", traced.find("row_number()"))
	require.NoError(t, err)
	params := fencetest.Value[int](t, conn, "select cardinality(parameter_types) from pg_prepared_statements where name = 'page'")
	rows, err := conn.Query(t.Context(), "explain (costs off) execute page("+strings.TrimSuffix(strings.Repeat("null, ", params), ", ")+")", pgx.QueryExecModeSimpleProtocol)
	require.NoError(t, err)
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	plan := strings.Join(lines, "\n")
	require.Regexp(t, `run_reset_due_idx on run r[^\n]*\n\s+Index Cond: [^\n]*next_attempt_at < `, plan)
}
