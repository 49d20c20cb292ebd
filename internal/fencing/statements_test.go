package fencing_test

import (
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/internal/fencing"
	"github.com/weirqueue/weir/internal/fencing/fencetest"
	"github.com/weirqueue/weir/internal/postgres/pgtest"

	_ "github.com/weirqueue/weir/internal/doorbell"
	_ "github.com/weirqueue/weir/internal/receipts"
	_ "github.com/weirqueue/weir/jobs"
)

var (
	writes = regexp.MustCompile(`(?is)\b(update|delete from)\s+weir\.(run|receipt)\b`)
	guards = regexp.MustCompile(`(?i)\b(attempt|status|lease_expires_at|finished_at|outcome)\b`)
	fenced = regexp.MustCompile(`(?i)\b(from|using)\s+(locked|fenced)\b`)
)

// Every UPDATE and DELETE of a run or a receipt carries its guard in the statement (invariants 1 and 2): the condition
// names the attempt, the status, the lease, the end or the outcome, or it is fed by a CTE that locked the row.
func TestStatements_WritesNameTheirGuard(t *testing.T) {
	t.Parallel()
	found := 0
	for _, s := range fencing.Statements {
		for _, at := range writes.FindAllStringIndex(s.SQL, -1) {
			found++
			text := clause(s.SQL[at[0]:])
			if fenced.MatchString(text) {
				continue
			}
			_, where, ok := strings.Cut(strings.ToLower(text), "where")
			require.True(t, ok, "%s writes every row:\n%s", s.Name, text)
			require.Regexp(t, guards, where, "%s writes without a guard:\n%s", s.Name, text)
		}
	}
	require.Greater(t, found, 20, "the statements were not found")
}

// clause is the part of a statement up to the bracket that closes the CTE that it is in.
func clause(sql string) string {
	depth := 0
	for i, r := range sql {
		switch r {
		case '(':
			depth++
		case ')':
			if depth--; depth < 0 {
				return sql[:i]
			}
		}
	}
	return sql
}

// Only transitions write status, and only the fence's own statements write attempt and lease.
func TestStatements_OnlyTransitionsWriteStatus(t *testing.T) {
	t.Parallel()
	sets := regexp.MustCompile(`(?is)update\s+weir\.run\b.*?\bset\b(.*?)\b(from|where)\b`)
	for _, s := range fencing.Statements {
		for _, m := range sets.FindAllStringSubmatch(s.SQL, -1) {
			if regexp.MustCompile(`\bstatus = `).MatchString(m[1]) {
				require.Regexp(t, `^(delivery|plan|steps)/`, s.Name, "it writes status and is no transition")
				require.Regexp(t, `\blocked as \((?s:.*)\bfrom locked where r\.id = locked\.id`, s.SQL, s.Name)
			}
			for _, column := range []string{"attempt = ", "lease_expires_at = "} {
				if regexp.MustCompile(`\b` + column).MatchString(m[1]) {
					require.Regexp(t, `for no key update`, s.SQL, "%s writes %s without having locked", s.Name, column)
				}
			}
		}
	}
}

// No statement trusts the caller's search_path, or stamps with a clock that is frozen at the transaction's start (F3).
func TestStatements_NameTheirSchemaAndTheRightClock(t *testing.T) {
	t.Parallel()
	bare := regexp.MustCompile(`(?i)\b(from|join|update|into)\s+(run|receipt|payload|key|ended_try|notification)\b`)
	frozen := regexp.MustCompile(`(?i)\bnow\(\)|current_timestamp|transaction_timestamp`)
	for _, s := range fencing.Statements {
		require.NotRegexp(t, bare, s.SQL, s.Name)
		require.NotRegexp(t, frozen, s.SQL, s.Name)
	}
}

// PostgreSQL parses and plans all of them.
func TestStatements_PrepareOnARealDatabase(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	conn, err := pool.Acquire(t.Context())
	require.NoError(t, err)
	defer conn.Release()
	names := map[string]bool{}
	for i, s := range fencing.Statements {
		require.False(t, names[s.Name], "two statements are called %q", s.Name)
		names[s.Name] = true
		_, err := conn.Conn().Prepare(t.Context(), "s"+strconv.Itoa(i), s.SQL)
		require.NoError(t, err, "%s:\n%s", s.Name, s.SQL)
	}
	require.Greater(t, len(names), 40)
}

// explain returns the generic plan of a statement, as a connection that prepared it once has it.
func explain(t *testing.T, tx pgx.Tx, sql string) string {
	t.Helper()
	fencetest.Exec(t, tx, "set local plan_cache_mode = force_generic_plan")
	_, err := tx.Conn().Prepare(t.Context(), "explained", sql)
	require.NoError(t, err)
	n := fencetest.Value[int](t, tx, "select cardinality(parameter_types) from pg_prepared_statements where name = 'explained'")
	defer func() { require.NoError(t, tx.Conn().Deallocate(t.Context(), "explained")) }()
	args := ""
	if n > 0 {
		args = "(" + strings.TrimSuffix(strings.Repeat("null, ", n), ", ") + ")"
	}
	rows, err := tx.Query(t.Context(), "explain (costs off) execute explained"+args, pgx.QueryExecModeSimpleProtocol)
	require.NoError(t, err)
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	return strings.Join(lines, "\n")
}

// A status list that is a parameter could not prove the partial index under a generic plan; ours are literals.
func TestStatements_UseTheDueIndex(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	fencetest.Exec(t, pool, `insert into weir.run (id, root_id, kind, status, queue, max_failures, finished_at)
		select gen_random_uuid(), gen_random_uuid(), 'delivery', 'sent', 'q', 5, now() from generate_series(1, 20000)`)
	fencetest.InsertMany(t, pool, 200, fencetest.Delivery, "pending", "")
	fencetest.Exec(t, pool, "analyze weir.run")
	seen := 0
	for _, s := range fencing.Statements {
		switch s.Name {
		case "delivery/reap", "steps/reap", "plan/reap", "delivery/expired", "steps/expired", "plan/expired", "oldest due":
			seen++
			tx := fencetest.Begin(t, pool)
			plan := explain(t, tx, s.SQL)
			require.Contains(t, plan, "run_due_idx", "%s:\n%s", s.Name, plan)
			require.NotContains(t, plan, "Seq Scan on run", "%s:\n%s", s.Name, plan)
			require.NoError(t, tx.Rollback(t.Context()))
		}
	}
	require.Equal(t, 7, seen)
}

// The sweep that expires plans reads its own small index, whatever else there is.
func TestStatements_ExpiryUsesItsIndex(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	fencetest.Exec(t, pool, `insert into weir.run (id, root_id, kind, status, queue, max_failures, finished_at)
		select gen_random_uuid(), gen_random_uuid(), 'plan', 'executed', 'q', 1, now() from generate_series(1, 20000)`)
	fencetest.InsertMany(t, pool, 200, fencetest.Plan, "pending", "expires_at = clock_timestamp() + interval '1 h'")
	fencetest.Exec(t, pool, "analyze weir.run")
	for _, s := range fencing.Statements {
		if s.Name != "plan/expire" {
			continue
		}
		plan := explain(t, fencetest.Begin(t, pool), s.SQL)
		require.Contains(t, plan, "run_expiry_idx", plan)
		require.NotContains(t, plan, "Seq Scan on run", plan)
		return
	}
	t.Fatal("no statement expires plans")
}
