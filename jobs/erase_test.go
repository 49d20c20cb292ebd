package jobs_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/internal/fencing"
	"github.com/weirqueue/weir/internal/postgres/pgtest"
	"github.com/weirqueue/weir/internal/receipts"
	"github.com/weirqueue/weir/jobs"
)

// holding lists the tables in which a word occurs, in any column of any type, in weir.* and in all of River's.
func holding(t *testing.T, pool *pgxpool.Pool, word string) []string {
	t.Helper()
	rows, err := pool.Query(t.Context(), `select quote_ident(table_schema) || '.' || quote_ident(table_name) from information_schema.tables
		where table_type = 'BASE TABLE' and (table_schema = 'weir' or table_name like 'river%') order by 1`)
	require.NoError(t, err)
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	require.Greater(t, len(tables), 8)
	var out []string
	for _, table := range tables {
		// bytea shows as hexadecimal digits, which are searched for too.
		n := value[int](t, pool, `select count(*)::int from `+table+` x where x::text ilike '%' || $1 || '%' or x::text like '%' || $2 || '%'`,
			word, fmt.Sprintf("%x", word))
		if n > 0 {
			out = append(out, table)
		}
	}
	return out
}

// What a provider calls a message that was sent may hold an address.
func TestErase_ReferencesOfWhatWasSent(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	client := newClient(t, pool)
	id := notify(t, client, mail("a@example.com"), nil).Runs[0].ID
	c := claim(t, pool, id)
	_, err := receipts.End{
		Event: fencing.Succeed, Run: c.Run, Kind: c.Kind, Attempt: c.Attempt, Step: receipts.Send, Outcome: receipts.OK, ExternalRef: "lovelace/17",
	}.Write(t.Context(), pool)
	require.NoError(t, err)
	require.Equal(t, []string{"weir.run"}, holding(t, pool, "lovelace"))
	require.NoError(t, client.Erase(t.Context(), id))
	require.Empty(t, holding(t, pool, "lovelace"))
	list, err := client.Receipts(t.Context(), id)
	require.NoError(t, err)
	require.Len(t, list, 1)
	require.Equal(t, []any{"send", "ok", ""}, []any{list[0].StepName, list[0].Outcome, list[0].ExternalRef})
}

// Erasure leaves nothing of a person anywhere; the record of what happened stays, and its key answers.
func TestErase_LeavesNoPersonalData(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	client := newClient(t, pool)
	n := jobs.Notification{To: []jobs.Recipient{jobs.Email("lovelace@example.com")}, Subject: "lovelace-subject", Text: "lovelace-text", HTML: "<b>lovelace-html"}
	opts := &jobs.Opts{IdempotencyKey: "k", Metadata: []byte(`{"who": "lovelace-meta"}`), Tags: []string{"lovelace-tag"}}
	id := notify(t, client, n, opts).Runs[0].ID
	other := notify(t, client, mail("other@example.com"), &jobs.Opts{Tags: []string{"other-tag"}}).Runs[0].ID
	end(t, pool, id, fencing.FailTry, "550 lovelace@example.com unknown")
	execSQL(t, pool, "update weir.run set next_attempt_at = clock_timestamp() where id = $1", id.String())
	end(t, pool, id, fencing.Refuse, "lovelace-refused")
	execSQL(t, pool, `update weir.run set output = '{"to": "lovelace"}' where id = $1`, id.String())
	require.Equal(t, []string{"public.river_job", "weir.ended_try", "weir.payload", "weir.receipt", "weir.run"}, holding(t, pool, "lovelace"),
		"the search finds what there is")

	require.NoError(t, client.Erase(t.Context(), id))
	require.Empty(t, holding(t, pool, "lovelace"))
	require.NoError(t, client.Erase(t.Context(), id), "twice is fine")

	run := get(t, client, id)
	require.Equal(t, []any{jobs.StatusFailed, "smtp_550", 2}, []any{run.Status, run.ErrorCode, run.Failures})
	list, err := client.Receipts(t.Context(), id)
	require.NoError(t, err)
	require.Len(t, list, 1)
	require.Equal(t, "failed", list[0].Outcome)
	tries, err := client.Tries(t.Context(), id)
	require.NoError(t, err)
	require.Len(t, tries, 2)
	require.True(t, notify(t, client, n, opts).Existing)
	_, err = client.Notify(t.Context(), mail(), keyed("k"))
	require.ErrorIs(t, err, jobs.ErrKeyReused, "the digest stays")
	require.Equal(t, []string{"public.river_job", "weir.run"}, holding(t, pool, "other-tag"), "other runs are left alone")
	require.Equal(t, []string{"other-tag"}, get(t, client, other).Tags)
}

func TestErase_LiveRunIsAStateError(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	client := newClient(t, pool)
	id := one(t, client)
	refusedState(t, client.Erase(t.Context(), id), "erase", jobs.StatusPending)
	claim(t, pool, id)
	refusedState(t, client.Erase(t.Context(), id), "erase", jobs.StatusProcessing)
	body := value[string](t, pool, "select convert_from(body, 'UTF8') from weir.payload")
	require.True(t, strings.Contains(body, "ada@example.com"))
}
