package workers_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/internal/postgres/pgtest"
	"github.com/weirqueue/weir/jobs"
	"github.com/weirqueue/weir/workers"
)

var twoKind = jobs.MustKind[order]("two", jobs.KindConfig{Steps: []jobs.Step{
	{Name: "one", Effect: jobs.Transactional}, {Name: "two", Effect: jobs.Transactional},
}})

type liveFunc = func(context.Context, pgx.Tx, *workers.In[order]) (any, error)

func bindTwo(one, two liveFunc) workers.Binding {
	return workers.Bind(twoKind, workers.KindConfig{
		Lease: 8 * time.Second, MaxWorkers: 1, Backoff: workers.Backoff{First: 20 * time.Millisecond, Max: 50 * time.Millisecond},
	},
		workers.Transactional("one", one), workers.Transactional("two", two))
}

func nothingLive(context.Context, pgx.Tx, *workers.In[order]) (any, error) { return nil, nil }

func awaitThat(t *testing.T, what string, cond func() bool) {
	t.Helper()
	require.Eventually(t, cond, 20*time.Second, 10*time.Millisecond, what)
}

func numberFrom(t *testing.T, pool *pgxpool.Pool, sql string, args ...any) (n int) {
	t.Helper()
	require.NoError(t, pool.QueryRow(t.Context(), sql, args...).Scan(&n))
	return n
}

// PL-01: two executors inside the same step. One receipt, the loser's effects are rolled back, the run has not failed;
// the step before, which has its receipt, is not executed again.
func TestSteps_TwoExecutorsInsideTheSameStepCommitOnce(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t, pgtest.MaxConns(20))
	_, err := pool.Exec(t.Context(), "create table effect (attempt bigint)")
	require.NoError(t, err)
	var ones atomic.Int32
	var inside sync.WaitGroup
	inside.Add(2)
	binding := bindTwo(
		func(context.Context, pgx.Tx, *workers.In[order]) (any, error) { ones.Add(1); return nil, nil },
		func(ctx context.Context, tx pgx.Tx, in *workers.In[order]) (any, error) {
			_, err := tx.Exec(ctx, "insert into effect values ($1)", in.Attempt)
			inside.Done()
			inside.Wait() // both have passed "no receipt yet"
			return in.Attempt, err
		})
	client := runKinds(t, pool, binding)
	_ = runKinds(t, pool, binding)
	res, err := client.Enqueue(t.Context(), twoKind.Of(order{}), nil)
	require.NoError(t, err)
	awaitThat(t, "the first is inside", func() bool {
		return numberFrom(t, pool, "select count(*) from weir.receipt where run_id = $1", uuid.UUID(res.Run.ID)) == 1
	})
	awaitThat(t, "the lease is reaped", func() bool {
		_, err := pool.Exec(t.Context(), "update weir.run set lease_expires_at = clock_timestamp() - interval '1 ms' where attempt = 1 and lease_expires_at is not null")
		require.NoError(t, err)
		return numberFrom(t, pool, "select attempt from weir.run") > 1
	})
	run := waitFor(t, client, res.Run.ID)
	require.Equal(t, jobs.Status("succeeded"), run.Status, "%s: %s", run.ErrorCode, run.ErrorMessage)
	require.Zero(t, run.Failures)
	require.EqualValues(t, 1, ones.Load())
	require.Equal(t, 1, numberFrom(t, pool, "select count(*) from effect"))
	require.Equal(t, int(run.Attempt), numberFrom(t, pool, "select attempt from effect"))
}

// L6: once canceled is answered, no effect of the step that was under way becomes visible.
func TestSteps_CancelDuringAStepLeavesNoEffect(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	_, err := pool.Exec(t.Context(), "create table effect (n int)")
	require.NoError(t, err)
	inside, goOn := make(chan struct{}), make(chan struct{})
	var after atomic.Int32
	client := runKinds(t, pool, bindTwo(func(ctx context.Context, tx pgx.Tx, _ *workers.In[order]) (any, error) {
		_, err := tx.Exec(ctx, "insert into effect values (1)")
		close(inside)
		<-goOn
		return nil, err
	}, func(context.Context, pgx.Tx, *workers.In[order]) (any, error) { after.Add(1); return nil, nil }))
	res, err := client.Enqueue(t.Context(), twoKind.Of(order{}), nil)
	require.NoError(t, err)
	<-inside
	require.NoError(t, client.Cancel(t.Context(), res.Run.ID))
	run, err := client.Get(t.Context(), res.Run.ID)
	require.NoError(t, err)
	require.Equal(t, jobs.Status("canceled"), run.Status)
	close(goOn)
	awaitThat(t, "the step's transaction has ended", func() bool {
		return numberFrom(t, pool, "select count(*) from pg_locks where relation = 'effect'::regclass") == 0
	})
	require.Zero(t, numberFrom(t, pool, "select count(*) from effect"))
	require.Zero(t, numberFrom(t, pool, "select count(*) from weir.receipt"))
	require.Zero(t, after.Load())
}

// R5: at SIGTERM a run goes on elsewhere after the step that it is in, long before the grace is over.
func TestSteps_AShutdownHandsOverBetweenSteps(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t, pgtest.MaxConns(20))
	inside, goOn := make(chan struct{}), make(chan struct{})
	var once sync.Once
	first := bindTwo(func(context.Context, pgx.Tx, *workers.In[order]) (any, error) {
		once.Do(func() { close(inside) })
		<-goOn
		return "first", nil
	}, func(context.Context, pgx.Tx, *workers.In[order]) (any, error) { return "first", nil })
	fleet, err := workers.New(pool, &workers.Config{
		Kinds: []workers.Binding{first}, ShutdownGrace: time.Minute, FetchPollInterval: 50 * time.Millisecond, Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- fleet.Run(ctx) }()
	client, err := jobs.NewClient(pool, nil)
	require.NoError(t, err)
	res, err := client.Enqueue(t.Context(), twoKind.Of(order{}), nil)
	require.NoError(t, err)
	<-inside
	stop()
	awaitThat(t, "it is stopping", func() bool { return fleet.Healthy() != nil })
	close(goOn)
	require.NoError(t, <-done)
	run, err := client.Get(t.Context(), res.Run.ID)
	require.NoError(t, err)
	require.Equal(t, jobs.Status("running"), run.Status)
	require.Nil(t, run.LeaseExpiresAt, "it waits for nobody's lease")
	require.Zero(t, run.Failures)

	client = runKinds(t, pool, bindTwo(nothingLive, func(_ context.Context, _ pgx.Tx, in *workers.In[order]) (any, error) {
		var one string
		err := in.Output("one", &one)
		return "second after " + one, err
	}))
	run = waitFor(t, client, res.Run.ID)
	require.JSONEq(t, `"second after first"`, string(run.Output))
}

func TestSteps_AHundredStepsEachOnce(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	_, err := pool.Exec(t.Context(), "create table effect (n int primary key)")
	require.NoError(t, err)
	var cfg jobs.KindConfig
	var funcs []workers.StepFunc[order]
	for i := range jobs.MaxSteps {
		name := fmt.Sprintf("s%d", i)
		cfg.Steps = append(cfg.Steps, jobs.Step{Name: name, Effect: jobs.Transactional})
		funcs = append(funcs, workers.Statement(name, func(_ context.Context, in *workers.In[order]) (workers.SQL, error) {
			return workers.SQL{Text: "insert into effect values ($1) returning n", Args: []any{in.Step}}, nil
		}))
	}
	kind := jobs.MustKind[order]("hundred", cfg)
	client := runKinds(t, pool, workers.Bind(kind, workers.KindConfig{Lease: 5 * time.Second}, funcs...))
	res, err := client.Enqueue(t.Context(), kind.Of(order{}), nil)
	require.NoError(t, err)
	run := waitFor(t, client, res.Run.ID)
	require.Equal(t, jobs.Status("succeeded"), run.Status, "%s: %s", run.ErrorCode, run.ErrorMessage)
	require.EqualValues(t, 1, run.Attempt)
	require.Equal(t, 100, numberFrom(t, pool, "select count(*) from effect"))
	cfg.Steps = append(cfg.Steps, jobs.Step{Name: "more", Effect: jobs.Transactional})
	_, err = jobs.NewKind[order]("hundred", cfg)
	require.ErrorIs(t, err, jobs.ErrInvalid)
}

// wires are the connections that a pool has opened.
type wires struct {
	mu     sync.Mutex
	conns  []net.Conn
	writes atomic.Int64
}

type wire struct {
	net.Conn
	all *wires
}

func (w *wire) Write(b []byte) (int, error) {
	w.all.writes.Add(1)
	return w.Conn.Write(b)
}

func (w *wires) watch(c *pgxpool.Config) {
	dial := c.ConnConfig.DialFunc
	c.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		conn = &wire{Conn: conn, all: w}
		w.conns = append(w.conns, conn)
		return conn, nil
	}
}

func (w *wires) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.conns {
		_ = c.Close()
	}
}

// PL-04, F12, F16: the client vanishes while a deferred trigger slows the commit down. Whatever becomes of the
// transaction that is in doubt, the effect and its receipt are there once.
func TestSteps_ClientCutOffInsideASlowCommit(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	admin := pgtest.Connect(t, url)
	_, err := admin.Exec(t.Context(), `create table effect (n int);
		create function slow() returns trigger language plpgsql as $$ begin perform pg_sleep(1); return null; end $$;
		create constraint trigger slow after insert on effect deferrable initially deferred for each row execute function slow()`)
	require.NoError(t, err)
	var (
		w     wires
		tries atomic.Int32
	)
	pool := pgtest.Connect(t, url, pgtest.Config(w.watch))
	client := runKinds(t, pool, bindTwo(func(ctx context.Context, tx pgx.Tx, _ *workers.In[order]) (any, error) {
		tries.Add(1)
		_, err := tx.Exec(ctx, "insert into effect values (1)")
		return "done", err
	}, nothingLive))
	res, err := client.Enqueue(t.Context(), twoKind.Of(order{}), nil)
	require.NoError(t, err)
	awaitThat(t, "the commit is under way", func() bool {
		return numberFrom(t, admin, "select count(*) from pg_stat_activity where datname = current_database() and state = 'active' and query = 'set constraints all immediate'") > 0
	})
	w.cut()
	onDirect, err := jobs.NewClient(admin, nil)
	require.NoError(t, err)
	run := waitFor(t, onDirect, res.Run.ID)
	require.Equal(t, jobs.Status("succeeded"), run.Status, "%s: %s", run.ErrorCode, run.ErrorMessage)
	require.Zero(t, run.Failures)
	require.Equal(t, 1, numberFrom(t, admin, "select count(*) from effect"))
	require.LessOrEqual(t, tries.Load(), int32(2))
}

// A live step costs one round trip beside the step's own, the first of which begins the transaction; a statement step one.
func TestSteps_RoundTripsOfAStep(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		step func(name string, seen func()) workers.StepFunc[order]
		want int64
	}{
		"live": {func(name string, seen func()) workers.StepFunc[order] {
			return workers.Transactional(name, func(context.Context, pgx.Tx, *workers.In[order]) (any, error) { seen(); return 1, nil })
		}, 1},
		"live, of one statement": {func(name string, seen func()) workers.StepFunc[order] {
			return workers.Transactional(name, func(ctx context.Context, tx pgx.Tx, _ *workers.In[order]) (n int, err error) {
				seen()
				return n, tx.QueryRow(ctx, "select $1::integer", 7).Scan(&n)
			})
		}, 2},
		"statement": {func(name string, seen func()) workers.StepFunc[order] {
			return workers.Statement(name, func(context.Context, *workers.In[order]) (workers.SQL, error) {
				seen()
				return workers.SQL{Text: "select 1 as one"}, nil
			})
		}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var (
				w    wires
				seen []int64
				cfg  jobs.KindConfig
				fs   []workers.StepFunc[order]
			)
			pool := pgtest.Pool(t, pgtest.Config(w.watch))
			for i := range 30 {
				name := fmt.Sprintf("s%d", i)
				cfg.Steps = append(cfg.Steps, jobs.Step{Name: name, Effect: jobs.Transactional})
				fs = append(fs, c.step(name, func() { seen = append(seen, w.writes.Load()) }))
			}
			kind := jobs.MustKind[order]("cheap", cfg)
			client := runKinds(t, pool, workers.Bind(kind, workers.KindConfig{Lease: 5 * time.Second}, fs...))
			res, err := client.Enqueue(t.Context(), kind.Of(order{}), nil)
			require.NoError(t, err)
			run := waitFor(t, client, res.Run.ID)
			require.Equal(t, jobs.Status("succeeded"), run.Status, "%s: %s", run.ErrorCode, run.ErrorMessage)
			// Each write is a round trip. Writes of River and of the upkeep come in between, so the least counts.
			least := seen[2] - seen[1]
			for i := 3; i < len(seen); i++ {
				least = min(least, seen[i]-seen[i-1])
			}
			require.Equal(t, c.want, least)
		})
	}
}

// A step costs one commit: what writes to the run and its receipts is one transaction for each step, one for the claim,
// and the heartbeats' own.
func TestSteps_CommitsOfAStep(t *testing.T) {
	t.Parallel()
	const steps = 20
	var (
		cfg jobs.KindConfig
		fs  []workers.StepFunc[order]
	)
	for i := range steps {
		name := fmt.Sprintf("s%d", i)
		cfg.Steps = append(cfg.Steps, jobs.Step{Name: name, Effect: jobs.Transactional})
		if i%2 == 0 {
			fs = append(fs, workers.Transactional(name, nothingLive))
			continue
		}
		fs = append(fs, workers.Statement(name, func(context.Context, *workers.In[order]) (workers.SQL, error) {
			return workers.SQL{Text: "select 1 as one"}, nil
		}))
	}
	kind := jobs.MustKind[order]("counted", cfg)
	pool := pgtest.Pool(t)
	_, err := pool.Exec(t.Context(), `create table written (xid xid8 not null, of text not null);
		create function note() returns trigger language plpgsql security definer as $$
		begin insert into public.written values (pg_current_xact_id(), tg_table_name); return null; end $$;
		create trigger note after update on weir.run for each row execute function note();
		create trigger note after insert or update on weir.receipt for each row execute function note()`)
	require.NoError(t, err)
	client := runKinds(t, pool, workers.Bind(kind, workers.KindConfig{Lease: time.Minute}, fs...))
	res, err := client.Enqueue(t.Context(), kind.Of(order{}), nil)
	require.NoError(t, err)
	run := waitFor(t, client, res.Run.ID)
	require.Equal(t, jobs.StatusSucceeded, run.Status, "%s: %s", run.ErrorCode, run.ErrorMessage)
	require.Equal(t, steps, numberFrom(t, pool, "select count(distinct xid) from written where of = 'receipt'"))
	require.Equal(t, steps+1, numberFrom(t, pool, "select count(distinct xid) from written"), "the claim, and the steps")
}
