package jobs_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivertype"
	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/internal/fencing"
	"github.com/weirqueue/weir/internal/postgres/pgtest"
	"github.com/weirqueue/weir/jobs"
	"github.com/weirqueue/weir/migrations"
)

// everyMethod calls each method of a client whose pool is client's; plain is a pool without peculiarities.
func everyMethod(t *testing.T, client *jobs.Client, pool, plain *pgxpool.Pool) {
	t.Helper()
	ctx := t.Context()
	n := mail("ada@example.com", "bob@example.com")
	opts := &jobs.Opts{
		IdempotencyKey: "k", Tags: []string{"tag-one"}, Metadata: []byte(`{"a": "ü"}`), MaxAttempts: 1, ScheduledAt: time.Now().Add(-time.Second),
	}
	tx := begin(t, pool, pgx.ReadCommitted)
	res, err := client.NotifyTx(ctx, tx, n, opts)
	require.NoError(t, err)
	require.NoError(t, tx.Commit(ctx))
	again, err := client.Notify(ctx, n, opts)
	require.NoError(t, err)
	require.True(t, again.Existing)
	require.Equal(t, res.Runs, again.Runs)
	execSQL(t, plain, "update weir.key set expires_at = clock_timestamp() - interval '1 h'")
	_, err = client.Notify(ctx, mail("c@example.com"), opts) // takes the key over
	require.NoError(t, err)
	_, err = client.Notify(ctx, n, opts)
	require.ErrorIs(t, err, jobs.ErrKeyReused)

	dead, canceled := res.Runs[0].ID, res.Runs[1].ID
	end(t, plain, dead, fencing.FailTry, "timeout")
	run, err := client.Get(ctx, dead)
	require.NoError(t, err)
	require.Equal(t, jobs.StatusDead, run.Status)
	require.JSONEq(t, `{"a": "ü"}`, string(run.Metadata))
	require.Equal(t, []string{"tag-one"}, run.Tags)
	receipts, err := client.Receipts(ctx, dead)
	require.NoError(t, err)
	require.Len(t, receipts, 1)
	tries, err := client.Tries(ctx, dead)
	require.NoError(t, err)
	require.Len(t, tries, 1)
	require.NoError(t, client.Cancel(ctx, canceled))
	require.NoError(t, client.Redrive(ctx, dead))
	end(t, plain, dead, fencing.Succeed, "")
	run, err = client.Wait(ctx, dead)
	require.NoError(t, err)
	require.Equal(t, jobs.StatusSent, run.Status)
	require.NoError(t, client.Erase(ctx, dead))
	for _, f := range []jobs.Filter{
		{}, {Kinds: []string{jobs.KindDelivery}, Statuses: []jobs.Status{jobs.StatusSent, jobs.StatusFailed}}, {Statuses: []jobs.Status{jobs.StatusFailed}, After: dead, Limit: 2},
	} {
		_, err := client.List(ctx, f)
		require.NoError(t, err, "%+v", f)
	}
	_, err = client.Get(ctx, jobs.RunID{1})
	require.ErrorIs(t, err, jobs.ErrNotFound)
}

// RV-17: every method works in pgx's modes for transaction poolers too.
func TestClient_WorksInEveryExecMode(t *testing.T) {
	t.Parallel()
	for _, mode := range []pgx.QueryExecMode{
		pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
	} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			url := pgtest.URL(t)
			pool := pgtest.Connect(t, url, pgtest.Config(func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = mode }))
			everyMethod(t, newClient(t, pool), pool, pgtest.Connect(t, url))
		})
	}
}

// The caller's search_path is not ours to trust: tables of our names, with triggers that spoil everything, come first.
func TestClient_HostileSearchPath(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	plain := pgtest.Connect(t, url)
	execSQL(t, plain, `create schema evil; create table evil.run (id int); create table evil.key (id int); create table evil.payload (id int);
		create table evil.notification (id int); create table evil.receipt (id int); create table evil.ended_try (id int);
		create function evil.clock_timestamp() returns timestamptz language sql as $$ select 'epoch'::timestamptz $$`)
	pool := pgtest.Connect(t, url, pgtest.Config(func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams["search_path"] = "evil, public" }))
	everyMethod(t, newClient(t, pool), pool, plain)
}

// River's tables may be in another schema than public.
func TestClient_RiverInAnotherSchema(t *testing.T) {
	t.Parallel()
	url := pgtest.Empty(t)
	require.NoError(t, migrations.Up(t.Context(), url, migrations.Options{RiverSchema: "queue"}))
	pool := pgtest.Connect(t, url)
	client, err := jobs.NewClient(pool, &jobs.Config{Schema: "queue"})
	require.NoError(t, err)
	everyMethod(t, client, pool, pool)
	require.Equal(t, 4, value[int](t, pool, "select count(*)::int from queue.river_job"))
}

type seen struct {
	river.MiddlewareDefaults
	kinds []string
}

func (s *seen) InsertMany(ctx context.Context, many []*rivertype.JobInsertParams, do func(context.Context) ([]*rivertype.JobInsertResult, error)) ([]*rivertype.JobInsertResult, error) {
	for _, p := range many {
		s.kinds = append(s.kinds, p.Kind)
	}
	return do(ctx)
}

// The application's own River client rings, so its middleware sees the doorbells.
func TestNewClientFromRiver_UsesTheApplicationsClient(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	middleware := &seen{}
	riverClient, err := river.NewClient(riverpgxv5.New(pool), &river.Config{Middleware: []rivertype.Middleware{middleware}})
	require.NoError(t, err)
	client, err := jobs.NewClientFromRiver(riverClient, pool, nil)
	require.NoError(t, err)
	notify(t, client, mail("a@x.de", "b@x.de"), nil)
	require.Equal(t, []string{"weir_delivery", "weir_delivery"}, middleware.kinds)
	_, err = jobs.NewClientFromRiver(riverClient, pool, &jobs.Config{Schema: "other"})
	require.ErrorContains(t, err, "Config.Schema")
}

// Listing walks everything once, newest first, and filters.
func TestList_FiltersAndPages(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	client := newClient(t, pool)
	var ids []jobs.RunID
	for range 7 {
		ids = append(ids, one(t, client))
	}
	end(t, pool, ids[1], fencing.Refuse, "no")
	end(t, pool, ids[3], fencing.Succeed, "")
	require.NoError(t, client.Cancel(t.Context(), ids[5]))
	walk := func(f jobs.Filter) (got []jobs.RunID) {
		for pages := 0; pages < 10; pages++ {
			page, err := client.List(t.Context(), f)
			require.NoError(t, err)
			require.LessOrEqual(t, len(page.Runs), max(f.Limit, 1)*50)
			for _, r := range page.Runs {
				got = append(got, r.ID)
			}
			if page.Next == (jobs.RunID{}) {
				return got
			}
			require.NotEqual(t, ids[0], page.Runs[len(page.Runs)-1].ID, "nothing is older, and yet there is a next page")
			f.After = page.Next
		}
		t.Fatal("a listing without end")
		return nil
	}
	pick := func(list ...int) (want []jobs.RunID) {
		for _, i := range list {
			want = append(want, ids[i])
		}
		return want
	}
	all := pick(6, 5, 4, 3, 2, 1, 0)
	for _, limit := range []int{0, 1, 2, 7, 8} {
		require.Equal(t, all, walk(jobs.Filter{Limit: limit}), "limit %d", limit)
	}
	require.Equal(t, pick(5, 1), walk(jobs.Filter{Statuses: []jobs.Status{jobs.StatusFailed, jobs.StatusDead}, Limit: 1}))
	require.Equal(t, pick(5, 3, 1), walk(jobs.Filter{Statuses: []jobs.Status{jobs.StatusFailed, jobs.StatusSent}, Limit: 2}))
	require.Equal(t, all, walk(jobs.Filter{Kinds: []string{"x", "delivery"}, Limit: 3}))
	require.Empty(t, walk(jobs.Filter{Kinds: []string{"x"}}))
	for _, f := range []jobs.Filter{{Limit: -1}, {Limit: 501}, {Kinds: []string{"\x00"}}, {Statuses: []jobs.Status{"\xff"}}} {
		_, err := client.List(t.Context(), f)
		require.ErrorIs(t, err, jobs.ErrInvalid, "%+v", f)
	}
}

// Wait returns at the end; when the context ends first, it says why, with the run as it was seen last.
func TestWait(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	client := newClient(t, pool)
	id := one(t, client)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	run, err := client.Wait(ctx, id)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NotNil(t, run)
	require.Equal(t, jobs.StatusPending, run.Status)
	ended := make(chan *jobs.Run, 1)
	go func() {
		run, err := client.Wait(t.Context(), id)
		if err != nil {
			t.Error(err)
		}
		ended <- run
	}()
	end(t, pool, id, fencing.Succeed, "")
	require.Equal(t, jobs.StatusSent, (<-ended).Status)
	_, err = client.Wait(t.Context(), jobs.RunID{1})
	require.ErrorIs(t, err, jobs.ErrNotFound)
}
