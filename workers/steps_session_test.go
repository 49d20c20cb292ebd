package workers_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/internal/postgres/pgtest"
	"github.com/weirqueue/weir/jobs"
	"github.com/weirqueue/weir/workers"
)

// sessions looks at every connection that the pool has.
func sessions(t *testing.T, pool *pgxpool.Pool) (all []string) {
	t.Helper()
	var conns []*pgxpool.Conn
	defer func() {
		for _, c := range conns {
			c.Release()
		}
	}()
	for range pool.Config().MaxConns {
		conn, err := pool.Acquire(t.Context())
		require.NoError(t, err)
		conns = append(conns, conn)
		var state string
		// Not by a statement that pgx has prepared: it may be gone, which is looked at below.
		err = conn.QueryRow(t.Context(), `select concat_ws(' ', session_user, current_user, current_setting('search_path'), current_setting('timezone'),
			current_setting('app.tenant', true), array(select pg_listening_channels()),
			(select count(*) from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()),
			(select count(*) from pg_class where relpersistence = 't' and relname = 'mine'),
			current_setting('default_transaction_read_only'), current_setting('statement_timeout'))`, pgx.QueryExecModeSimpleProtocol).Scan(&state)
		require.NoError(t, err)
		_, err = conn.Conn().Prepare(t.Context(), "weir_commit", "commit")
		require.NoError(t, err)
		if _, err = conn.Exec(t.Context(), "weir_commit"); err != nil {
			state += " " + err.Error()
		}
		all = append(all, state)
	}
	return all
}

// What a step's SQL does to its session does not reach whoever has the connection next, however it is hidden.
func TestSteps_NothingOfASessionLeaksIntoTheNextUser(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		live      func(ctx context.Context, tx pgx.Tx) error
		statement string
	}{
		"DO sets a path":           {live: exec(`do $$ begin execute 'set search_path to nowhere'; end $$`)},
		"DO sets a role":           {live: exec(`do $$ begin set role nobody_at_all; end $$`)},
		"DO listens":               {live: exec(`do $$ begin execute 'listen x'; end $$`)},
		"DO deallocates":           {live: exec(`do $$ begin execute 'deallocate all'; end $$`)},
		"a function sets a path":   {live: exec(`select spoil('search_path', 'nowhere')`)},
		"a function sets a role":   {live: exec(`select spoil('role', 'nobody_at_all')`)},
		"a function sets a clock":  {live: exec(`select spoil('timezone', 'Asia/Tokyo')`)},
		"a function sets a bound":  {live: exec(`select spoil('statement_timeout', '12345')`)},
		"a function reads only":    {live: exec(`select spoil('default_transaction_read_only', 'on')`)},
		"a function makes a table": {live: exec(`select temporary()`)},
		"session authorization":    {live: exec(`set session authorization nobody_at_all`)},
		"an advisory lock":         {live: exec(`select pg_advisory_lock(7)`)},
		"through Conn": {live: func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Conn().Exec(ctx, "set search_path to nowhere")
			return err
		}},
		"statement sets a path":        {statement: `select set_config('search_path', 'nowhere', false)`},
		"statement calls for a path":   {statement: `select spoil('search_path', 'nowhere')`},
		"statement calls for a role":   {statement: `select spoil('role', 'nobody_at_all')`},
		"statement locks":              {statement: `select pg_advisory_lock(7)`},
		"statement sets authorization": {statement: `select set_config('session_authorization', 'nobody_at_all', false)`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := pgtest.Pool(t, pgtest.MaxConns(3))
			_, err := pool.Exec(t.Context(), `create function spoil(name text, value text) returns text language sql as $$ select set_config(name, value, false) $$;
				create function temporary() returns void language plpgsql as $$ begin create temp table mine (n int); end $$;
				do $$ begin create role nobody_at_all; exception when duplicate_object or unique_violation then null; end $$`)
			require.NoError(t, err)
			before := sessions(t, pool)
			step := workers.Transactional("only", func(ctx context.Context, tx pgx.Tx, _ *workers.In[order]) (any, error) { return nil, c.live(ctx, tx) })
			if c.statement != "" {
				step = workers.Statement("only", func(context.Context, *workers.In[order]) (workers.SQL, error) {
					return workers.SQL{Text: c.statement}, nil
				})
			}
			kind := jobs.MustKind[order]("one", jobs.KindConfig{MaxAttempts: 1, Steps: []jobs.Step{{Name: "only", Effect: jobs.Transactional}}})
			client := runKinds(t, pool, workers.Bind(kind, workers.KindConfig{Lease: 2 * time.Second}, step))
			res, err := client.Enqueue(t.Context(), kind.Of(order{}), nil)
			require.NoError(t, err)
			run := waitFor(t, client, res.Run.ID)
			t.Log(run.Status, run.ErrorCode, run.ErrorMessage)
			time.Sleep(50 * time.Millisecond) // the connection is on its way back
			require.Equal(t, before, sessions(t, pool))
		})
	}
}

// A role that the pool gives to its connections is the one that the next user finds.
func TestSteps_TheRoleOfAPoolsConnectionsStays(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t, pgtest.MaxConns(3))
	_, err := pool.Exec(t.Context(), `do $$ begin create role weir_app_role superuser; exception when duplicate_object or unique_violation then null; end $$`)
	require.NoError(t, err)
	cfg := pool.Config()
	cfg.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, "set role weir_app_role")
		return err
	}
	mine, err := pgxpool.NewWithConfig(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(mine.Close)
	kind := jobs.MustKind[order]("one", jobs.KindConfig{MaxAttempts: 1, Steps: []jobs.Step{{Name: "only", Effect: jobs.Transactional}}})
	client := runKinds(t, mine, workers.Bind(kind, workers.KindConfig{Lease: 2 * time.Second},
		workers.Transactional("only", func(context.Context, pgx.Tx, *workers.In[order]) (any, error) { return nil, nil })))
	for range 4 {
		res, err := client.Enqueue(t.Context(), kind.Of(order{}), nil)
		require.NoError(t, err)
		require.Equal(t, jobs.StatusSucceeded, waitFor(t, client, res.Run.ID).Status)
	}
	for _, state := range sessions(t, mine) {
		require.Contains(t, state, "weir_app_role")
	}
}

// A transaction that a step's function leaves behind is of no use to anybody: its connection belongs to somebody else.
func TestSteps_TheTransactionIsClosedAfterTheStep(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t, pgtest.MaxConns(3))
	var (
		mu   sync.Mutex
		left []pgx.Tx
	)
	kind := jobs.MustKind[order]("one", jobs.KindConfig{MaxAttempts: 1, Steps: []jobs.Step{{Name: "only", Effect: jobs.Transactional}}})
	client := runKinds(t, pool, workers.Bind(kind, workers.KindConfig{Lease: 2 * time.Second},
		workers.Transactional("only", func(ctx context.Context, tx pgx.Tx, _ *workers.In[order]) (any, error) {
			inner, err := tx.Begin(ctx)
			mu.Lock()
			defer mu.Unlock()
			left = []pgx.Tx{tx, inner}
			return nil, err
		})))
	res, err := client.Enqueue(t.Context(), kind.Of(order{}), nil)
	require.NoError(t, err)
	require.Equal(t, jobs.StatusSucceeded, waitFor(t, client, res.Run.ID).Status)
	mu.Lock()
	defer mu.Unlock()
	for _, tx := range left {
		_, err = tx.Exec(t.Context(), "create table left_over (n int)")
		require.ErrorIs(t, err, pgx.ErrTxClosed)
		_, err = tx.Query(t.Context(), "select 1")
		require.ErrorIs(t, err, pgx.ErrTxClosed)
		require.ErrorIs(t, tx.QueryRow(t.Context(), "select 1").Scan(new(int)), pgx.ErrTxClosed)
		_, err = tx.Begin(t.Context())
		require.ErrorIs(t, err, pgx.ErrTxClosed)
		_, err = tx.CopyFrom(t.Context(), pgx.Identifier{"x"}, []string{"n"}, pgx.CopyFromRows(nil))
		require.ErrorIs(t, err, pgx.ErrTxClosed)
		batch := &pgx.Batch{}
		batch.Queue("select 1")
		require.ErrorIs(t, tx.SendBatch(t.Context(), batch).Close(), pgx.ErrTxClosed)
		_, err = tx.Prepare(t.Context(), "x", "select 1")
		require.ErrorIs(t, err, pgx.ErrTxClosed)
		require.ErrorIs(t, tx.Rollback(t.Context()), pgx.ErrTxClosed)
		require.ErrorIs(t, tx.Commit(t.Context()), pgx.ErrTxClosed)
	}
}

// Each of these is a failed try with a reason, and nothing of it is committed.
func TestSteps_HostileSQLFailsClearly(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		live      func(ctx context.Context, tx pgx.Tx) error
		statement string
		want      string
	}{
		"prepared COMMIT": {live: func(ctx context.Context, tx pgx.Tx) error {
			if _, err := tx.Prepare(ctx, "x", "commit"); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, "x")
			return err
		}, want: "must not end"},
		"PREPARE TRANSACTION":        {live: exec("prepare transaction 'x'"), want: "must not end"},
		"DO with COMMIT":             {live: exec("do $$ begin commit; end $$"), want: "invalid transaction termination"},
		"RESET ALL":                  {live: exec("reset all"), want: "ended its own"}, // the token is gone, as after a COMMIT
		"DISCARD ALL":                {live: exec("discard all"), want: "cannot run inside a transaction block"},
		"another isolation level":    {live: exec("set transaction isolation level serializable"), want: "before any query"},
		"read only":                  {live: exec("set transaction read only"), want: "read-only"},
		"deferred at the COMMIT":     {live: exec("insert into late values (1)"), want: "too late"},
		"deferred again":             {live: exec("set constraints all deferred; insert into kid values (1)"), want: "foreign key"},
		"statement, deferred":        {statement: "insert into kid values (1) returning id", want: "foreign key"},
		"statement, late":            {statement: "insert into late values (1) returning id", want: "too late"},
		"statement, two":             {statement: "insert into mum values (1); insert into mum values (2)", want: "syntax"},
		"statement, ends":            {statement: "commit", want: "syntax"},
		"statement, empty":           {statement: "", want: "syntax"},
		"statement, without columns": {statement: "insert into mum values (1)", want: "RETURNING"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := pgtest.Pool(t, pgtest.MaxConns(3))
			_, err := pool.Exec(t.Context(), `create table mum (id int primary key); create table done (n int);
				create table kid (id int references mum deferrable initially deferred);
				create table late (id int);
				create function late() returns trigger language plpgsql as $$ begin raise exception 'too late'; end $$;
				create constraint trigger late after insert on late deferrable initially deferred for each row execute function late()`)
			require.NoError(t, err)
			step := workers.Transactional("only", func(ctx context.Context, tx pgx.Tx, _ *workers.In[order]) (any, error) {
				if _, err := tx.Exec(ctx, "insert into done values (1)"); err != nil {
					return nil, err
				}
				return nil, c.live(ctx, tx)
			})
			if c.live == nil {
				step = workers.Statement("only", func(context.Context, *workers.In[order]) (workers.SQL, error) {
					return workers.SQL{Text: c.statement}, nil
				})
			}
			kind := jobs.MustKind[order]("one", jobs.KindConfig{MaxAttempts: 1, Steps: []jobs.Step{{Name: "only", Effect: jobs.Transactional}, {Name: "end", Effect: jobs.AtLeastOnce}}})
			client := runKinds(t, pool, workers.Bind(kind, workers.KindConfig{Lease: 2 * time.Second}, step,
				workers.AtLeastOnce("end", func(context.Context, *workers.In[order]) (any, error) { return nil, nil })))
			res, err := client.Enqueue(t.Context(), kind.Of(order{}), nil)
			require.NoError(t, err)
			run := waitFor(t, client, res.Run.ID)
			t.Log(run.Status, run.ErrorCode, run.ErrorMessage)
			if c.want == "" {
				return
			}
			require.Equal(t, jobs.StatusFailed, run.Status)
			require.Contains(t, strings.ToLower(run.ErrorMessage), strings.ToLower(c.want))
			var n int
			require.NoError(t, pool.QueryRow(t.Context(), "select (select count(*) from done) + (select count(*) from kid) + (select count(*) from late)").Scan(&n))
			require.Zero(t, n)
		})
	}
}
