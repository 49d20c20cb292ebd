package receipts_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/internal/fencing"
	"github.com/weirqueue/weir/internal/fencing/fencetest"
	"github.com/weirqueue/weir/internal/postgres/pgtest"
	"github.com/weirqueue/weir/internal/receipts"
)

// A process that is not very busy has batches of a few. Each is carried out by the plan of the last one, as a large one is: to plan it costs
// more than to carry it out.
func TestBatch_SmallOnesAreNotPlannedAnew(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	conn, err := pgx.ConnectConfig(t.Context(), pool.Config().ConnConfig)
	require.NoError(t, err)
	defer func() { _ = conn.Close(t.Context()) }()
	const batches, small = 12, 3
	for range batches {
		var (
			reqs []fencing.ClaimRequest
			ends []receipts.End
		)
		for range small {
			run := never(t, pool)
			reqs = append(reqs, fencetest.Request(fencetest.Delivery, run))
			ends = append(ends, sent(run, 1, ""))
		}
		claimed, err := receipts.ClaimMany(t.Context(), conn, reqs, true)
		require.NoError(t, err)
		require.Len(t, claimed, small)
		done, err := receipts.SucceedMany(t.Context(), conn, ends)
		require.NoError(t, err)
		require.Len(t, done, small)
	}
	rows, err := conn.Query(t.Context(), "select generic_plans from pg_prepared_statements where statement like 'with batch as%'")
	require.NoError(t, err)
	plans, err := pgx.CollectRows(rows, pgx.RowTo[int])
	require.NoError(t, err)
	require.Len(t, plans, 2, "one of claims, one of ends")
	for _, n := range plans {
		require.Positive(t, n)
	}
}
