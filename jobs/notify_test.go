package jobs_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/internal/postgres/pgtest"
	"github.com/weirqueue/weir/jobs"
)

// What is enqueued in a transaction exists if that transaction commits.
func TestNotifyTx_CommitsWithTheCallersTransaction(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	client := newClient(t, pool)
	execSQL(t, pool, "create table orders (id int)")
	tx := begin(t, pool, pgx.ReadCommitted)
	execSQL(t, tx, "insert into orders values (1)")
	res, err := client.NotifyTx(t.Context(), tx, mail("ada@example.com", "bob@example.com"), &jobs.Opts{IdempotencyKey: "order-1"})
	require.NoError(t, err)
	require.Equal(t, [5]int{0, 0, 0, 0, 0}, rows(t, pool), "nothing is there before the commit")
	require.NoError(t, tx.Commit(t.Context()))
	require.Equal(t, [5]int{1, 2, 2, 1, 2}, rows(t, pool))
	require.Len(t, res.Runs, 2)
	require.False(t, res.Existing)

	run := get(t, client, res.Runs[0].ID)
	require.Equal(t, jobs.KindDelivery, run.Kind)
	require.Equal(t, jobs.StatusPending, run.Status)
	require.Equal(t, 8, run.MaxFailures)
	require.Equal(t, "weir_delivery", run.Queue)
	require.NotNil(t, run.NextAttemptAt)
	require.False(t, run.Terminal())
	require.Nil(t, run.Metadata)

	var kind, queue, state, args string
	var maxAttempts int
	require.NoError(t, pool.QueryRow(t.Context(), "select kind, queue, state, args::text, max_attempts from river_job where id = $1", *run.DoorbellID).
		Scan(&kind, &queue, &state, &args, &maxAttempts))
	require.Equal(t, []any{"weir_delivery", "weir_delivery", "available", 32767}, []any{kind, queue, state, maxAttempts})
	require.JSONEq(t, `{"run_id": "`+run.ID.String()+`", "channel": "email"}`, args, "nothing personal is in River's arguments")
}

// … and only if.
func TestNotifyTx_RollsBackWithTheCallersTransaction(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	client := newClient(t, pool)
	tx := begin(t, pool, pgx.ReadCommitted)
	res, err := client.NotifyTx(t.Context(), tx, mail(), &jobs.Opts{IdempotencyKey: "order-1"})
	require.NoError(t, err)
	require.NoError(t, tx.Rollback(t.Context()))
	require.Equal(t, [5]int{}, rows(t, pool))
	_, err = client.Get(t.Context(), res.Runs[0].ID)
	require.ErrorIs(t, err, jobs.ErrNotFound)

	again := notify(t, client, mail(), &jobs.Opts{IdempotencyKey: "order-1"})
	require.False(t, again.Existing, "a key that was rolled back is free")
}

// Each option arrives where it belongs, on the run and on its doorbell.
func TestNotify_Options(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	client := newClient(t, pool)
	at := time.Now().Add(time.Hour).Truncate(time.Millisecond)
	res := notify(t, client, mail(), &jobs.Opts{
		MaxAttempts: 3, Metadata: []byte(`{"order": 4711}`), Priority: 3, Queue: "slow_mail", ScheduledAt: at, Tags: []string{"order-4711"},
	})
	run := get(t, client, res.Runs[0].ID)
	require.Equal(t, 3, run.MaxFailures)
	require.JSONEq(t, `{"order": 4711}`, string(run.Metadata))
	require.Equal(t, 3, run.Priority)
	require.Equal(t, "slow_mail", run.Queue)
	require.True(t, at.Equal(*run.NextAttemptAt), "%s", run.NextAttemptAt)
	require.Equal(t, []string{"order-4711"}, run.Tags)
	var (
		state, queue string
		priority     int
		tags         []string
		scheduled    time.Time
	)
	require.NoError(t, pool.QueryRow(t.Context(), "select state, queue, priority, tags, scheduled_at from river_job where id = $1", *run.DoorbellID).
		Scan(&state, &queue, &priority, &tags, &scheduled))
	require.Equal(t, []any{"scheduled", "slow_mail", 3}, []any{state, queue, priority})
	require.Equal(t, run.Tags, tags)
	require.True(t, at.Equal(scheduled))
}

// The runs of a new notification come in the order of its recipients, and each payload is its own.
func TestNotify_OneDeliveryForEachRecipient(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	client := newClient(t, pool)
	n := jobs.Notification{
		To:      []jobs.Recipient{{Channel: "telegram", Address: "-100123"}, jobs.Email("ada@example.com"), {Channel: "sms", Address: "+49 30 1234"}},
		Subject: "Grüße & <b>", Text: "Héllo 🌊", HTML: "<p>Héllo</p>",
	}
	res := notify(t, client, n, nil)
	for i, to := range n.To {
		body := value[string](t, pool, "select convert_from(body, 'UTF8') from weir.payload where run_id = $1", res.Runs[i].ID)
		var p map[string]string
		require.NoError(t, json.Unmarshal([]byte(body), &p))
		require.Equal(t, map[string]string{
			"notification": res.ID.String(), "channel": to.Channel, "address": to.Address, "subject": n.Subject, "text": n.Text, "html": n.HTML,
		}, p)
		require.True(t, value[bool](t, pool, "select digest = sha256(body) from weir.payload where run_id = $1", res.Runs[i].ID))
		require.Equal(t, to.Channel, value[string](t, pool, "select args ->> 'channel' from river_job where id = (select doorbell_id from weir.run where id = $1)", res.Runs[i].ID))
	}
}

// PG-06: nothing of the payload travels in a NOTIFY, so large bodies and many recipients are no trouble.
func TestNotify_LargeAndMany(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	client := newClient(t, pool)
	big := mail()
	big.Text = string(make([]byte, 0))
	for len(big.Text) < jobs.MaxBodyBytes-16 {
		big.Text += "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"[:min(128, jobs.MaxBodyBytes-len(big.Text))]
	}
	require.Len(t, notify(t, client, big, nil).Runs, 1)
	many := jobs.Notification{Subject: "s", Text: "t"}
	for i := range jobs.MaxRecipients {
		many.To = append(many.To, jobs.Recipient{Channel: "chat", Address: string(rune('a'+i%26)) + time.Duration(i).String()})
	}
	require.Len(t, notify(t, client, many, nil).Runs, jobs.MaxRecipients)
	require.Equal(t, jobs.MaxRecipients+1, value[int](t, pool, "select count(*)::int from weir.run"))
}
