package jobs_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/internal/postgres/pgtest"
	"github.com/weirqueue/weir/jobs"
)

func manyMails(n int, opts func(i int) *jobs.Opts) []jobs.NotifyParams {
	out := make([]jobs.NotifyParams, n)
	for i := range out {
		out[i] = jobs.NotifyParams{Notification: mail(fmt.Sprintf("user-%d@example.com", i)), Opts: opts(i)}
	}
	return out
}

func noOpts(int) *jobs.Opts { return nil }

// Ten thousand deliveries and their repeat cost a bounded number of statements, and a job for each hundred.
func TestNotifyMany_TenThousandInFewStatementsAndOneJobForEachHundred(t *testing.T) {
	t.Parallel()
	var count countQueries
	pool := pgtest.Pool(t, pgtest.Config(func(c *pgxpool.Config) { c.ConnConfig.Tracer = &count }))
	client := newClient(t, pool)
	params := manyMails(jobs.MaxNotifyMany, func(i int) *jobs.Opts { return &jobs.Opts{IdempotencyKey: fmt.Sprint("k", i)} })
	first, err := client.NotifyMany(t.Context(), params)
	require.NoError(t, err)
	again, err := client.NotifyMany(t.Context(), params)
	require.NoError(t, err)
	require.Less(t, count.n.Load(), int64(50))
	for i := range first {
		require.NoError(t, first[i].Err)
		require.False(t, first[i].Existing)
		require.True(t, again[i].Existing)
		require.Equal(t, first[i].ID, again[i].ID)
		require.Equal(t, first[i].Runs, again[i].Runs)
	}
	require.Equal(t, [5]int{10_000, 10_000, 10_000, 10_000, 100}, rows(t, pool))
	require.Equal(t, 10_000, value[int](t, pool, `select count(*)::int from weir.run r join river_job j on j.id = r.doorbell_id
		where j.kind = 'weir_delivery_chunk' and j.queue = 'weir_delivery_bulk' and strpos(j.args ->> 'run_ids', r.id::text) > 0`))
	_, err = client.NotifyMany(t.Context(), append(params, params[0]))
	require.ErrorIs(t, err, jobs.ErrInvalid)
	require.ErrorContains(t, err, "10001 notifications")
}

// Only what is alike shares a job: queue, priority, channel and due time. What has nothing alike has its own.
func TestNotifyMany_OnlyWhatIsAlikeSharesAJob(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	client := newClient(t, pool)
	later := time.Now().Add(time.Hour)
	var params []jobs.NotifyParams
	for _, o := range []*jobs.Opts{nil, {Priority: 2}, {Queue: "other"}, {ScheduledAt: later}} {
		params = append(params, manyMails(3, func(int) *jobs.Opts { return o })...)
	}
	sms := jobs.Recipient{Channel: "sms", Address: "1"}
	params = append(params, jobs.NotifyParams{Notification: jobs.Notification{To: []jobs.Recipient{sms}, Text: "x"}})
	res, err := client.NotifyMany(t.Context(), params)
	require.NoError(t, err)
	type job struct {
		Kind, Queue, State string
		Priority, Runs     int
	}
	list, err := pool.Query(t.Context(), `select j.kind, j.queue, j.state::text, j.priority::int, count(*)::int from river_job j
		join weir.run r on r.doorbell_id = j.id group by j.id order by j.kind, j.queue, j.priority, j.state::text`)
	require.NoError(t, err)
	got, err := pgx.CollectRows(list, pgx.RowToStructByPos[job])
	require.NoError(t, err)
	require.Equal(t, []job{
		{"weir_delivery", "weir_delivery", "available", 1, 1},
		{"weir_delivery_chunk", "other_bulk", "available", 1, 3},
		{"weir_delivery_chunk", "weir_delivery_bulk", "available", 1, 3},
		{"weir_delivery_chunk", "weir_delivery_bulk", "scheduled", 1, 3},
		{"weir_delivery_chunk", "weir_delivery_bulk", "available", 2, 3},
	}, got)
	require.WithinDuration(t, later, get(t, client, res[9].Runs[0].ID).NextAttemptAt.UTC(), time.Millisecond)
}

// Each notification has its own answer; what is wrong with one is found before anything is written.
func TestNotifyMany_EachHasItsOwnAnswer(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	client := newClient(t, pool)
	old := notify(t, client, mail("ada@example.com"), &jobs.Opts{IdempotencyKey: "old"})
	res, err := client.NotifyMany(t.Context(), []jobs.NotifyParams{
		{Notification: mail("ada@example.com"), Opts: &jobs.Opts{IdempotencyKey: "old"}},
		{Notification: mail("bob@example.com"), Opts: &jobs.Opts{IdempotencyKey: "old"}},
		{Notification: mail("eve@example.com", "dan@example.com"), Opts: &jobs.Opts{IdempotencyKey: "new", Tags: []string{"abc"}, Metadata: []byte(`{"a":1}`), MaxAttempts: 3}},
		{Notification: mail("eve@example.com", "dan@example.com"), Opts: &jobs.Opts{IdempotencyKey: "new"}},
		{Notification: mail("kim@example.com"), Opts: &jobs.Opts{IdempotencyKey: "new"}},
		{Notification: mail("kim@example.com")},
	})
	require.NoError(t, err)
	require.Equal(t, []any{old.ID, true, nil}, []any{res[0].ID, res[0].Existing, res[0].Err})
	var reused *jobs.KeyReusedError
	require.ErrorIs(t, res[1].Err, jobs.ErrKeyReused)
	require.ErrorIs(t, res[4].Err, jobs.ErrKeyReused)
	require.ErrorAs(t, res[4].Err, &reused)
	require.Equal(t, jobs.RunID(res[2].ID), reused.Run)
	require.Equal(t, res[2].Runs, res[3].Runs)
	require.Equal(t, []bool{false, true, false}, []bool{res[2].Existing, res[3].Existing, res[5].Existing})
	run := get(t, client, res[2].Runs[1].ID)
	require.Equal(t, []string{"abc"}, run.Tags)
	require.JSONEq(t, `{"a":1}`, string(run.Metadata))
	require.Equal(t, 3, run.MaxFailures)
	require.Equal(t, [5]int{3, 4, 4, 2, 2}, rows(t, pool))

	for name, wrong := range map[string]jobs.NotifyParams{
		"params[1]: ":              {Notification: mail("not an address")},
		"Opts.Priority":            {Notification: mail(), Opts: &jobs.Opts{Priority: 9}},
		"at most 59 bytes":         {Notification: mail(), Opts: &jobs.Opts{Queue: strings.Repeat("q", 60)}},
		"Notification.Text = \"\"": {Notification: jobs.Notification{To: mail().To}},
	} {
		_, err := client.NotifyMany(t.Context(), []jobs.NotifyParams{{Notification: mail()}, wrong})
		require.ErrorIs(t, err, jobs.ErrInvalid)
		require.ErrorContains(t, err, name)
	}
	_, err = client.NotifyMany(t.Context(), nil)
	require.ErrorIs(t, err, jobs.ErrInvalid)
	require.Equal(t, [5]int{3, 4, 4, 2, 2}, rows(t, pool))
}

// A copy for each recipient adds up: what PostgreSQL would refuse as one message is refused by its size.
func TestNotify_AllCopiesTogetherAreBounded(t *testing.T) {
	t.Parallel()
	client := newClient(t, pgtest.Pool(t))
	n := jobs.Notification{Text: strings.Repeat("x", jobs.MaxBodyBytes)}
	for i := range 600 {
		n.To = append(n.To, jobs.Email(fmt.Sprintf("user-%d@example.com", i)))
	}
	_, err := client.Notify(t.Context(), n, nil)
	require.ErrorIs(t, err, jobs.ErrInvalid)
	require.ErrorContains(t, err, fmt.Sprint(jobs.MaxNotifyBytes))
}

// In the caller's transaction: what is rolled back was never there, chunk included.
func TestNotifyManyTx_RollsBackWithTheCaller(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	client := newClient(t, pool)
	tx := begin(t, pool, pgx.ReadCommitted)
	_, err := client.NotifyManyTx(t.Context(), tx, manyMails(5, noOpts))
	require.NoError(t, err)
	require.NoError(t, tx.Rollback(context.Background()))
	require.Equal(t, [5]int{}, rows(t, pool))
}
