package jobs_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/internal/postgres/pgtest"
	"github.com/weirqueue/weir/jobs"
)

// Whoever decides sees what can still be decided, and first what is most urgent; a table of other plans costs nothing.
func TestPlan_WaitingOnesAreListedByTheEndOfTheirTime(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	client := planClient(t, pool)
	none, err := client.WaitingPlans(t.Context(), 0)
	require.NoError(t, err)
	require.Empty(t, none)
	var ids []jobs.RunID
	var digests []string
	for i := range 5 {
		p := planOf(`{"to": "ada"}`, `{"to": "\u202e"}`)
		p.Title, p.ApprovalLimit, p.ProposedBy = fmt.Sprint("plan ", i), time.Hour-time.Duration(i)*time.Minute, "bot"
		made := propose(t, client, p)
		ids, digests = append(ids, made.Run.ID), append(digests, made.Digest)
	}
	_, err = client.ApprovePlan(t.Context(), ids[1], digests[1], "grace")
	require.NoError(t, err)
	require.NoError(t, client.CancelPlan(t.Context(), ids[2]))
	execSQL(t, pool, "update weir.run set expires_at = clock_timestamp() - interval '1 second' where id = $1", ids[3].String())
	list, err := client.WaitingPlans(t.Context(), 0)
	require.NoError(t, err)
	require.Len(t, list, 2)
	require.Equal(t, []jobs.RunID{ids[4], ids[0]}, []jobs.RunID{list[0].ID, list[1].ID})
	require.Equal(t, []any{"plan 4", jobs.RiskHigh, "ada", "bot", 2}, []any{list[0].Title, list[0].Risk, list[0].Owner, list[0].ProposedBy, list[0].Steps})
	list, err = client.WaitingPlans(t.Context(), 1)
	require.NoError(t, err)
	require.Len(t, list, 1)
	for _, limit := range []int{-1, 501} {
		_, err = client.WaitingPlans(t.Context(), limit)
		require.ErrorIs(t, err, jobs.ErrInvalid)
	}

	execSQL(t, pool, `insert into weir.run (id, root_id, kind, status, queue, max_failures, finished_at)
		select x, x, 'plan', 'executed', 'q', 1, clock_timestamp() from (select gen_random_uuid() from generate_series(1, 5000)) g(x)`)
	execSQL(t, pool, "analyze weir.run")
	rows, err := pool.Query(t.Context(), `explain select r.id from weir.run r where r.kind = 'plan' and r.status = 'pending'
		and r.expires_at > (select clock_timestamp()) order by r.expires_at, r.id limit 50`)
	require.NoError(t, err)
	plan, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	require.Contains(t, strings.Join(plan, "\n"), "run_expiry_idx")
}
