package jobs_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/internal/fencing"
	"github.com/weirqueue/weir/internal/postgres/pgtest"
	"github.com/weirqueue/weir/jobs"
)

// PL-05: what somebody changes behind the database's guards after the approval is not committed by any further step: each
// step's own transaction digests the frozen bytes anew, also under a worker that claimed them before.
func TestPlan_AStepCommitsOnlyUnderTheApprovedBytes(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	client := planClient(t, pool)
	_, c := claimPlan(t, pool, client, planOf(`{"to": "ada"}`, `{"to": "bob"}`))
	write := func(step int) error {
		return pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error { return stepFence(c, step).Write(t.Context(), tx) })
	}
	require.NoError(t, write(0))
	execSQL(t, pool, "alter table weir.payload disable trigger payload_is_frozen")
	execSQL(t, pool, `update weir.payload set body = b, digest = sha256(b)
		from (select run_id r, convert_to(replace(convert_from(body, 'UTF8'), 'bob', 'eve'), 'UTF8') b from weir.payload) x where run_id = r`)
	require.ErrorIs(t, write(1), fencing.ErrLeaseLost)
	require.Equal(t, 1, value[int](t, pool, "select count(*)::int from weir.receipt"))
	execSQL(t, pool, `update weir.payload set body = b, digest = sha256(b)
		from (select run_id r, convert_to(replace(convert_from(body, 'UTF8'), 'eve', 'bob'), 'UTF8') b from weir.payload) x where run_id = r`)
	require.NoError(t, write(1), "the same bytes again")
}

// A decision stays, but for the names and texts that an erasure takes.
func TestErase_LeavesNoNameOnAPlan(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	client := planClient(t, pool)
	params := planOf(`{"to": "ada"}`)
	params.ProposedBy = "carol"
	p := propose(t, client, params)
	require.NoError(t, client.RejectPlan(t.Context(), p.Run.ID, "grace", "grace's reason"))
	for _, change := range []string{"decision = 'approved', approved_digest = '\\x00'", "decided_at = now()", "decided_by = 'eve'"} {
		_, err := pool.Exec(t.Context(), "update weir.plan set "+change)
		require.ErrorContains(t, err, "a decision is made once", change)
	}
	require.NoError(t, client.Erase(t.Context(), p.Run.ID))
	got, err := client.GetPlan(t.Context(), p.Run.ID)
	require.NoError(t, err)
	require.True(t, got.Erased)
	require.Empty(t, got.ProposedBy+got.DecidedBy+got.Reason+got.Title+got.Owner)
	require.Equal(t, []any{jobs.StatusRejected, "rejected", p.Digest}, []any{got.Run.Status, got.Decision, got.Digest})
	require.NotNil(t, got.DecidedAt)
}
