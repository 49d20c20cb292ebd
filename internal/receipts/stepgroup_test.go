package receipts_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/internal/fencing"
	"github.com/weirqueue/weir/internal/fencing/fencetest"
	"github.com/weirqueue/weir/internal/postgres/pgtest"
	"github.com/weirqueue/weir/internal/receipts"
)

const enterText = "insert into book values ($1) returning entry"

var groupWait = receipts.GroupWait{Statement: 5 * time.Second, Lock: 5 * time.Second, Prepare: time.Minute, Group: time.Minute}

// group owns as many runs as there are entries, each with a step that writes one.
func group(t *testing.T, pool *pgxpool.Pool, texts ...string) (steps []receipts.StatementFence, runs []uuid.UUID) {
	t.Helper()
	for _, text := range texts {
		run, attempt := owned(t, pool)
		steps, runs = append(steps, statement(run, attempt, enterText, text)), append(runs, run)
	}
	return steps, runs
}

// Each step of a group has its own effect, receipt, renewal and end, and all are one commit.
func TestStepGroup_EachStepHasItsReceiptInOneCommit(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	book(t, pool)
	steps, runs := group(t, pool, "a", "b", "c")
	steps[2].Last = true
	outs, err := receipts.ExecuteMany(t.Context(), pool, steps, groupWait)
	require.NoError(t, err)
	for i, text := range []string{"a", "b", "c"} {
		require.JSONEq(t, fmt.Sprintf(`[{"entry": %q}]`, text), string(outs[i]))
		require.Equal(t, []string{fmt.Sprintf("0 enter ok %d", steps[i].Attempt)}, fencetest.Outcomes(t, pool, runs[i]))
	}
	require.Equal(t, 1, fencetest.Value[int](t, pool, "select count(distinct xmin::text) from book"))
	require.Equal(t, []string{"a", "b", "c"}, entries(t, pool))
	require.Equal(t, "succeeded", fencetest.Value[string](t, pool, "select status from weir.run where id = $1", runs[2]))
}

// Whatever refuses one step refuses the group: nothing of it is committed, and which one it was is told.
func TestStepGroup_OneThatIsRefusedCommitsNothing(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		spoil func(t *testing.T, pool *pgxpool.Pool, steps []receipts.StatementFence)
		is    error
		code  string
		at    int
	}{
		"a stale owner": {spoil: func(t *testing.T, pool *pgxpool.Pool, steps []receipts.StatementFence) {
			take(t, pool, steps[1].Run)
		}, is: fencing.ErrLeaseLost, at: 1},
		"done already": {spoil: func(t *testing.T, pool *pgxpool.Pool, steps []receipts.StatementFence) {
			_, err := statement(steps[1].Run, steps[1].Attempt, "select 1 as one").Execute(t.Context(), pool)
			require.NoError(t, err)
		}, is: receipts.ErrAlreadyDone, at: 1},
		"touches nothing": {spoil: func(_ *testing.T, _ *pgxpool.Pool, steps []receipts.StatementFence) {
			steps[1].SQL = "insert into book select $1::text where false returning entry"
		}, is: receipts.ErrTouchedNothing, at: 1},
		"too large": {spoil: func(_ *testing.T, _ *pgxpool.Pool, steps []receipts.StatementFence) {
			steps[1].SQL = "insert into book values ($1) returning repeat('x', 1100000) as big"
		}, is: receipts.ErrOutputTooLarge, at: 1},
		"a parameter too few": {spoil: func(_ *testing.T, _ *pgxpool.Pool, steps []receipts.StatementFence) {
			steps[1].SQL = "insert into book values ($1 || $2) returning entry"
		}, is: receipts.ErrParameters, at: 1},
		"an entry twice": {spoil: func(_ *testing.T, _ *pgxpool.Pool, steps []receipts.StatementFence) {
			steps[2].Args = []any{"a"}
		}, code: "23505", at: 2},
		"slow": {spoil: func(_ *testing.T, _ *pgxpool.Pool, steps []receipts.StatementFence) {
			steps[1].SQL = "insert into book select $1 from pg_sleep(30) returning entry"
		}, code: "57014", at: 1},
		"waits for a row": {spoil: func(t *testing.T, pool *pgxpool.Pool, steps []receipts.StatementFence) {
			tx := fencetest.Begin(t, pool)
			enter(t, tx, "b")
		}, code: "55P03", at: 1},
		"another path for those after it": {spoil: func(_ *testing.T, _ *pgxpool.Pool, steps []receipts.StatementFence) {
			steps[0].SQL = "insert into book select $1 || left(set_config('search_path', 'nowhere, public', true), 0) returning entry"
		}, at: -1},
		"another path for the connection": {spoil: func(_ *testing.T, _ *pgxpool.Pool, steps []receipts.StatementFence) {
			steps[0].SQL = "insert into book select $1 || left(set_config('search_path', 'nowhere, public', false), 0) returning entry"
		}, at: -1},
		"a constraint at the commit": {spoil: func(t *testing.T, pool *pgxpool.Pool, steps []receipts.StatementFence) {
			fencetest.Exec(t, pool, "create table shelf (entry text primary key)")
			fencetest.Exec(t, pool, "alter table book add foreign key (entry) references shelf deferrable initially deferred")
		}, code: "23503", at: -1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := pgtest.Pool(t)
			book(t, pool)
			steps, runs := group(t, pool, "a", "b", "c")
			c.spoil(t, pool, steps)
			before := make([][]string, len(runs))
			for i, run := range runs {
				before[i] = fencetest.Outcomes(t, pool, run)
			}
			_, err := receipts.ExecuteMany(t.Context(), pool, steps, receipts.GroupWait{Statement: time.Second, Lock: 200 * time.Millisecond, Prepare: time.Minute, Group: time.Minute})
			var refused *receipts.GroupError
			require.ErrorAs(t, err, &refused)
			require.Equal(t, c.at, refused.At, "%v", err)
			require.False(t, refused.InDoubt)
			if c.is != nil {
				require.ErrorIs(t, err, c.is)
			}
			var pgErr *pgconn.PgError
			if c.code != "" {
				require.ErrorAs(t, err, &pgErr)
				require.Equal(t, c.code, pgErr.Code)
			}
			require.Empty(t, entries(t, pool))
			for i, run := range runs {
				require.Equal(t, before[i], fencetest.Outcomes(t, pool, run))
			}
			require.Equal(t, `"$user", public`, fencetest.Value[string](t, pool, "select current_setting('search_path')"))
		})
	}
}
