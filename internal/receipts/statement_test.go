package receipts_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/internal/fencing"
	"github.com/weirqueue/weir/internal/fencing/fencetest"
	"github.com/weirqueue/weir/internal/postgres/pgtest"
	"github.com/weirqueue/weir/internal/receipts"
)

// F4: a statement that waits for somebody's row does not keep the reaper from the run, and is refused afterwards.
func TestStatementStep_WaitsWithoutTheRunsLock(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	book(t, pool)
	fencetest.Exec(t, pool, "insert into book values ('a'), ('b'), ('c')")
	run, attempt := owned(t, pool)
	blocker := fencetest.Begin(t, pool)
	fencetest.Exec(t, blocker, "update book set entry = entry where entry = 'b'")

	done := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		_, err := statement(run, attempt, "update book set entry = entry || '!' returning entry").Execute(ctx, pool)
		done <- err
	}()
	require.Eventually(t, func() bool {
		return fencetest.Value[bool](t, pool, "select exists (select from pg_stat_activity where wait_event_type = 'Lock' and query like '%weir_user_rows%' and datname = current_database())")
	}, 10*time.Second, 10*time.Millisecond)
	take(t, pool, run)
	require.NoError(t, blocker.Commit(t.Context()))
	require.ErrorIs(t, <-done, fencing.ErrLeaseLost)
	require.Equal(t, []string{"a", "b", "c"}, entries(t, pool))
}

func TestStatementStep_ParametersAndSize(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	book(t, pool)
	run, attempt := owned(t, pool)
	_, err := statement(run, attempt, "insert into book values ($1 || $2) returning entry", "a").Execute(t.Context(), pool)
	require.ErrorIs(t, err, receipts.ErrParameters, "it would have taken the run's id for its own parameter")
	_, err = statement(run, attempt, "insert into book values ('a') returning entry", "a").Execute(t.Context(), pool)
	require.ErrorContains(t, err, "could not determine data type")
	_, err = statement(run, attempt, "insert into book values ('a') returning repeat('x', 1100000) as big").Execute(t.Context(), pool)
	require.ErrorIs(t, err, receipts.ErrOutputTooLarge)
	require.Empty(t, entries(t, pool))
	require.Empty(t, fencetest.Outcomes(t, pool, run))

	out, err := statement(run, attempt, `insert into book values ($1 || '$9' || E'\'$8' || $x$ $7 $x$) /* $6 /* $5 */ */ returning entry as "$4" -- $3`, "a").Execute(t.Context(), pool)
	require.NoError(t, err)
	require.JSONEq(t, `[{"$4": "a$9'$8 $7 "}]`, string(out))
}

// R11: the server ends a statement that takes longer than the step may, and one that waits for a row, though nobody is
// left to ask for it: the session's own settings stay as they were.
func TestStatementStep_IsEndedByTheServer(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t, pgtest.MaxConns(2))
	book(t, pool)
	fencetest.Exec(t, pool, "insert into book values ('a')")
	run, attempt := owned(t, pool)
	short := func(sql string) receipts.StatementFence {
		f := statement(run, attempt, sql)
		f.StepTime = 400 * time.Millisecond
		return f
	}
	var pgErr *pgconn.PgError
	_, err := short("select pg_sleep(8)::text as slept").Execute(t.Context(), pool)
	require.ErrorAs(t, err, &pgErr)
	require.Equal(t, "57014", pgErr.Code)

	blocker := fencetest.Begin(t, pool)
	fencetest.Exec(t, blocker, "update book set entry = entry")
	_, err = short("update book set entry = 'b' returning entry").Execute(t.Context(), pool)
	require.ErrorAs(t, err, &pgErr)
	require.Equal(t, "55P03", pgErr.Code)
	require.NoError(t, blocker.Rollback(t.Context()))

	_, err = short("update book set entry = 'b' returning current_setting('statement_timeout') as inside").Execute(t.Context(), pool)
	require.NoError(t, err)
	require.Equal(t, "0", fencetest.Value[string](t, pool, "select current_setting('statement_timeout')"))
	require.Equal(t, []string{"b"}, entries(t, pool))
}
