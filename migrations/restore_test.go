package migrations_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/internal/postgres/pgtest"
)

const someRuns = `
	insert into weir.run (id, root_id, max_failures, kind, status, queue, attempt, next_attempt_at, lease_expires_at, lease_owner, step_deadline_at)
	select id, id, 3, 'order', status, 'weir', 2, due, lease, owner, lease
	from (values
		('018f0000-0000-7000-8000-000000000001'::uuid, 'queued', clock_timestamp(), null::timestamptz, null),
		('018f0000-0000-7000-8000-000000000002', 'running', 'infinity', clock_timestamp(), 'a:1:x')) r(id, status, due, lease, owner);
	insert into weir.receipt (run_id, step_index, attempt, outcome, effect, step_name)
	values ('018f0000-0000-7000-8000-000000000002', 0, 2, 'ok', 'transactional', 'only')`

// A dump of a database with runs is restored as it was, and refuses the same rows.
func TestUp_ADumpWithRunsIsRestored(t *testing.T) {
	t.Parallel()
	from, to := pgtest.URL(t), pgtest.Empty(t)
	execute(t, from, someRuns)
	bin := values[string](t, from, "select setting from pg_config where name = 'BINDIR'")[0]
	dump, psql := filepath.Join(bin, "pg_dump"), filepath.Join(bin, "psql")
	if _, err := os.Stat(dump); errors.Is(err, os.ErrNotExist) && os.Getenv(pgtest.MajorVariable) != "" {
		t.Skip("the servers that npm has for the matrix come without pg_dump; everywhere else it must be there")
	}
	file := filepath.Join(t.TempDir(), "dump.sql")
	for _, cmd := range []*exec.Cmd{
		exec.CommandContext(t.Context(), dump, "--file", file, from),
		exec.CommandContext(t.Context(), psql, "--no-psqlrc", "--quiet", "--set", "ON_ERROR_STOP=1", "--file", file, to),
	} {
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	require.Equal(t, objects(t, from), objects(t, to))
	for _, table := range []string{"run", "receipt"} {
		rows := "select to_jsonb(r)::text from weir." + table + " r order by 1"
		require.Equal(t, values[string](t, from, rows), values[string](t, to, rows))
	}
	_, err := connect(t, to).Exec(t.Context(), "update weir.run set status = 'queued' where status = 'running'")
	var refused *pgconn.PgError
	require.ErrorAs(t, err, &refused)
	require.Equal(t, "run_lease_on_ownable", refused.ConstraintName)
}

// Who enqueues needs no more than the tables, also where functions are nobody's by default.
func TestUp_RulesNeedNoPrivilegeOfTheirOwn(t *testing.T) {
	t.Parallel()
	url := pgtest.Empty(t)
	execute(t, url, "alter default privileges revoke execute on functions from public")
	up(t, url)
	execute(t, url, `do $$ begin create role weir_enqueuer; exception when duplicate_object or unique_violation then null; end $$;
		grant usage on schema weir to weir_enqueuer;
		grant select, insert, update, delete on all tables in schema weir to weir_enqueuer`)
	execute(t, url, "set role weir_enqueuer;"+someRuns)
	require.Equal(t, []int{2}, values[int](t, url, "select count(*)::int from weir.run"))
}

// The privileges that docs/operations.md names are enough to ask for receipts, and for a cancellation, which looks at them.
func TestUp_PrivilegesThatAreNamedAreEnoughToReadReceipts(t *testing.T) {
	t.Parallel()
	url := pgtest.Empty(t)
	up(t, url)
	execute(t, url, `do $$ begin create role weir_reader; exception when duplicate_object or unique_violation then null; end $$;
		grant usage on schema weir to weir_reader;
		do $$ declare t name; begin for t in select tablename from pg_tables where schemaname = 'weir' loop
			execute format('grant select, insert, update, delete on weir.%I to weir_reader', t); end loop; end $$`)
	ask := "set role weir_reader; select count(*) from weir.receipts"
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer func() { _ = conn.Close(t.Context()) }()
	_, err = conn.Exec(t.Context(), ask)
	require.ErrorContains(t, err, "42501", "the view is one of them")
	execute(t, url, "grant select on weir.receipts to weir_reader")
	execute(t, url, ask)
}
