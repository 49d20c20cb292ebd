package doorbell_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/internal/doorbell"
	"github.com/weirqueue/weir/internal/fencing/fencetest"
	"github.com/weirqueue/weir/internal/postgres/pgtest"
)

const grace = 15 * time.Second

// due makes a run that has been due for a minute and whose doorbell is in a state.
func due(t *testing.T, pool *pgxpool.Pool, bells *doorbell.Bells, job string, sets ...fencetest.Set) (uuid.UUID, int64) {
	t.Helper()
	run := fencetest.Insert(t, pool, fencetest.Delivery, "pending", append([]fencetest.Set{"next_attempt_at = clock_timestamp() - interval '1 min'"}, sets...)...)
	id := fencetest.Ring(t, pool, bells, fencetest.Delivery, run)
	fencetest.SetJob(t, pool, id, "scheduled_at = now() - interval '1 min'")
	if job != "" {
		fencetest.SetJob(t, pool, id, job)
	}
	return run, id
}

// D3, L11: each kind of doorbell that will not ring is found, retired where it may be, and rung anew; the run is then left
// alone by the next tick.
func TestSweep_RingsForSilentDoorbells(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	bells := fencetest.Bells(t, pool)
	type silent struct {
		run   uuid.UUID
		job   int64
		state string // of the old job afterwards
	}
	cases := map[string]silent{}
	add := func(name, job, state string, sets ...fencetest.Set) {
		run, id := due(t, pool, bells, job, sets...)
		cases[name] = silent{run, id, state}
	}
	add("completed", "state = 'completed', finalized_at = now()", "completed")
	add("cancelled", "state = 'cancelled', finalized_at = now()", "cancelled")
	add("discarded", "state = 'discarded', finalized_at = now()", "discarded")
	add("running without an owner", "state = 'running', attempted_at = now() - interval '1 min'", "discarded")
	add("available, but later", "scheduled_at = now() + interval '1 h'", "discarded")
	add("scheduled too late", "state = 'scheduled', scheduled_at = now() + interval '1 h'", "discarded")
	add("retryable too late", "state = 'retryable', scheduled_at = now() + interval '1 h'", "discarded")
	add("scheduled, its time has come, and the leader leaves it", "state = 'scheduled'", "discarded")
	add("retryable, its time has come, and the leader leaves it", "state = 'retryable'", "discarded")
	add("blocked, by a worker whose clock is ahead", "state = 'scheduled', scheduled_at = now() + interval '6 h', attempted_at = now() - interval '2 min'",
		"discarded", "blocked_reason = 'no channel'")
	add("blocked, under a leader whose clock is behind", "state = 'scheduled', attempted_at = now() - interval '2 min'",
		"discarded", "blocked_reason = 'no channel'")
	add("blocked, and its doorbell is gone", "state = 'completed', finalized_at = now()", "completed", "blocked_reason = 'no channel'")
	add("deleted", "", "gone")
	fencetest.Exec(t, pool, "delete from river_job where id = $1", cases["deleted"].job)
	add("never rung", "", "available")
	fencetest.Update(t, pool, cases["never rung"].run, "doorbell_id = null")
	steps := fencetest.Insert(t, pool, fencetest.Steps, "running", "next_attempt_at = clock_timestamp() - interval '1 min'")
	cases["between owners"] = silent{steps, 0, "gone"}

	s := doorbell.NewSweeper(pool, bells, grace)
	n, err := s.Sweep(t.Context())
	require.NoError(t, err)
	require.Equal(t, len(cases), n)
	for name, c := range cases {
		row := fencetest.Read(t, pool, c.run)
		require.NotEqual(t, c.job, row.Doorbell, name)
		require.Equal(t, "available", fencetest.JobState(t, pool, row.Doorbell), name)
		require.Equal(t, c.state, fencetest.JobState(t, pool, c.job), name)
		require.EqualValues(t, 7, row.Attempt, "%s: a doorbell is not the truth, the run stays as it is", name)
	}
	n, err = s.Sweep(t.Context())
	require.NoError(t, err)
	require.Zero(t, n, "a second tick rang again")
}

// What only waits for capacity, on purpose, or for somebody else, is left alone.
func TestSweep_LeavesAlone(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	bells := fencetest.Bells(t, pool)
	runs := map[string]uuid.UUID{}
	add := func(name, job string, sets ...fencetest.Set) {
		runs[name], _ = due(t, pool, bells, job, sets...)
	}
	add("backlog", "")
	add("just started", "state = 'running', attempted_at = now()")
	add("retryable, due soon", "state = 'retryable', scheduled_at = now() + interval '2 s'")
	add("blocked", "state = 'scheduled', scheduled_at = now() + interval '1 h'", "blocked_reason = 'no channel'")
	add("blocked by a worker whose clock is ahead, just now", "state = 'scheduled', scheduled_at = now() + interval '6 h', attempted_at = now() - interval '30 s'",
		"blocked_reason = 'no channel'")
	add("blocked by a worker whose clock is behind, just now", "state = 'scheduled', scheduled_at = now() - interval '6 h', attempted_at = now() - interval '30 s'",
		"blocked_reason = 'no channel'")
	add("scheduled, and its time has just come", "state = 'scheduled', scheduled_at = now() - interval '10 s'")
	add("not due yet", "state = 'completed', finalized_at = now()", "next_attempt_at = clock_timestamp() + interval '1 h'")
	add("within the grace", "state = 'completed', finalized_at = now()", "next_attempt_at = clock_timestamp() - interval '10 s'")
	add("due later than its doorbell", "state = 'retryable', scheduled_at = now() + interval '1 h'", "next_attempt_at = clock_timestamp() + interval '1 h'")
	runs["owned"] = fencetest.Insert(t, pool, fencetest.Delivery, "processing", fencetest.Owned)
	runs["expired"] = fencetest.Insert(t, pool, fencetest.Delivery, "processing", fencetest.Expired)
	runs["waits for a person"] = fencetest.Insert(t, pool, fencetest.Steps, "queued", "next_attempt_at = null")
	runs["terminal"] = fencetest.Insert(t, pool, fencetest.Delivery, "dead")
	// A paused queue: River fetches nothing from it, and its jobs stay available.
	paused, job := due(t, pool, bells, "")
	fencetest.Exec(t, pool, "insert into river_queue (name, paused_at, updated_at) values ('weir_delivery', now(), now())")
	fencetest.SetJob(t, pool, job, "scheduled_at = now() - interval '1 h'")
	runs["paused queue"] = paused

	before := map[string]string{}
	for name, run := range runs {
		before[name] = fencetest.Read(t, pool, run).RowChangedBy
	}
	n, err := doorbell.NewSweeper(pool, bells, grace).Sweep(t.Context())
	require.NoError(t, err)
	require.Zero(t, n)
	for name, run := range runs {
		require.Equal(t, before[name], fencetest.Read(t, pool, run).RowChangedBy, name)
	}
}

// R13: sweepers run on every node. Two at once ring once.
func TestSweep_TwoAtOnceRingOnce(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	bells := fencetest.Bells(t, pool)
	for range 5 {
		runs := fencetest.InsertMany(t, pool, 50, fencetest.Delivery, "pending", "next_attempt_at = clock_timestamp() - interval '1 min'")
		var (
			wg   sync.WaitGroup
			rang atomic.Int64
		)
		for range 4 {
			wg.Go(func() {
				n, err := doorbell.NewSweeper(pool, bells, grace).Sweep(t.Context())
				if err != nil {
					t.Error(err)
				}
				rang.Add(int64(n))
			})
		}
		wg.Wait()
		for _, run := range runs {
			require.Equal(t, 1, fencetest.LiveJobs(t, pool, run))
		}
		require.EqualValues(t, 50, rang.Load())
	}
}

// pausing lets a test act between the sweep's look at a page and its lock on the runs.
type pausing struct {
	*pgxpool.Pool
	before func()
}

func (p pausing) BeginTx(ctx context.Context, opts pgx.TxOptions) (pgx.Tx, error) {
	p.before()
	return p.Pool.BeginTx(ctx, opts)
}

// What a page said is looked at again under the lock: another node rang, or somebody claimed, in between.
func TestSweep_LooksAgainUnderTheLock(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	bells := fencetest.Bells(t, pool)
	rung, _ := due(t, pool, bells, "state = 'completed', finalized_at = now()")
	claimed, _ := due(t, pool, bells, "state = 'completed', finalized_at = now()")
	canceled, _ := due(t, pool, bells, "state = 'completed', finalized_at = now()")
	n, err := doorbell.NewSweeper(pausing{pool, func() {
		fencetest.Ring(t, pool, bells, fencetest.Delivery, rung)
		fencetest.Claim(t, pool, fencetest.Delivery, claimed)
		fencetest.Update(t, pool, canceled, "status = 'failed', finished_at = now(), next_attempt_at = null")
	}}, bells, grace).Sweep(t.Context())
	require.NoError(t, err)
	require.Zero(t, n)
	for _, run := range []uuid.UUID{claimed, canceled} {
		require.Zero(t, fencetest.LiveJobs(t, pool, run))
	}
	require.Equal(t, 1, fencetest.LiveJobs(t, pool, rung))
}

// A run that somebody has locked does not delay the others.
func TestSweep_PassesLockedRuns(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	bells := fencetest.Bells(t, pool)
	locked, _ := due(t, pool, bells, "state = 'completed', finalized_at = now()")
	free, _ := due(t, pool, bells, "state = 'completed', finalized_at = now()")
	holder := fencetest.Begin(t, pool)
	fencetest.Exec(t, holder, "select from weir.run where id = $1 for update", locked)
	began := time.Now()
	n, err := doorbell.NewSweeper(pool, bells, grace).Sweep(t.Context())
	require.NoError(t, err)
	require.Less(t, time.Since(began), 2*time.Second)
	require.Equal(t, 1, n)
	require.Equal(t, 1, fencetest.LiveJobs(t, pool, free))
}

// D3: a backlog of 20,000 that only waits for capacity is walked past, a bounded number of pages a tick, and the silent
// doorbell behind it is found; then the walk begins again.
func TestSweep_WalksPastABacklog(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	bells := fencetest.Bells(t, pool)
	fencetest.Exec(t, pool, `with j as (
			insert into river_job (args, kind, queue, scheduled_at)
			select jsonb_build_object('run_id', gen_random_uuid()), 'weir_delivery', 'weir_delivery', now() - interval '2 h'
			from generate_series(1, 20000) returning id, args)
		insert into weir.run (id, root_id, kind, status, queue, max_failures, next_attempt_at, doorbell_id)
		select (args ->> 'run_id')::uuid, (args ->> 'run_id')::uuid, 'delivery', 'pending', 'weir_delivery', 5, now() - interval '1 h', id from j`)
	fencetest.Exec(t, pool, "analyze weir.run")
	fencetest.Exec(t, pool, "analyze river_job")
	silent, _ := due(t, pool, bells, "state = 'completed', finalized_at = now()")
	s := doorbell.NewSweeper(pool, bells, grace)
	total := 0
	for tick := 1; tick <= 3; tick++ {
		n, err := s.Sweep(t.Context())
		require.NoError(t, err)
		total += n
		if tick < 3 {
			require.Zero(t, n, "tick %d is bounded", tick)
		}
	}
	require.Equal(t, 1, total)
	require.Equal(t, 1, fencetest.LiveJobs(t, pool, silent))

	first, _ := due(t, pool, bells, "state = 'completed', finalized_at = now()", "next_attempt_at = clock_timestamp() - interval '3 h'")
	n, err := s.Sweep(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, n, "from the start again")
	require.Equal(t, 1, fencetest.LiveJobs(t, pool, first))
}

// The page reads run_due_idx and joins river_job by its key, under a generic plan too: no LIMIT after the join.
func TestSweep_PlanIsBounded(t *testing.T) {
	t.Parallel()
	traced := &tracer{}
	pool := pgtest.Pool(t, pgtest.Config(func(c *pgxpool.Config) {
		c.ConnConfig.Tracer = traced
		c.ConnConfig.RuntimeParams["plan_cache_mode"] = "force_generic_plan"
	}))
	fencetest.Exec(t, pool, `with j as (
			insert into river_job (args, kind, queue, scheduled_at)
			select jsonb_build_object('run_id', gen_random_uuid()), 'weir_delivery', 'weir_delivery', now() from generate_series(1, 20000) returning id, args)
		insert into weir.run (id, root_id, kind, status, queue, max_failures, next_attempt_at, doorbell_id)
		select (args ->> 'run_id')::uuid, (args ->> 'run_id')::uuid, 'delivery', 'pending', 'weir_delivery', 5, now() - interval '1 h', id from j`)
	fencetest.Exec(t, pool, "analyze weir.run")
	fencetest.Exec(t, pool, "analyze river_job")
	_, err := doorbell.NewSweeper(pool, fencetest.Bells(t, pool), grace).Sweep(t.Context())
	require.NoError(t, err)
	page := traced.find("row_number()")
	require.NotEmpty(t, page)
	require.Contains(t, traced.before(page), "set local jit = off", "its estimate is far beyond jit_above_cost")
	conn, err := pool.Acquire(t.Context())
	require.NoError(t, err)
	defer conn.Release()
	_, err = conn.Conn().Prepare(t.Context(), "page", page)
	require.NoError(t, err)
	n := fencetest.Value[int](t, conn, "select cardinality(parameter_types) from pg_prepared_statements where name = 'page'")
	rows, err := conn.Query(t.Context(), "explain (costs off) execute page("+strings.TrimSuffix(strings.Repeat("null, ", n), ", ")+")", pgx.QueryExecModeSimpleProtocol)
	require.NoError(t, err)
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	plan := strings.Join(lines, "\n")
	require.Regexp(t, `(?s)Limit.*run_due_idx.*Index Scan using river_job_pkey`, plan)
	require.NotContains(t, plan, "Seq Scan", plan)
}

type tracer struct {
	mu  sync.Mutex
	sql []string
}

func (tr *tracer) TraceQueryStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceQueryStartData) context.Context {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.sql = append(tr.sql, d.SQL)
	return ctx
}

func (tr *tracer) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// before is what was sent right before a statement.
func (tr *tracer) before(statement string) string {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return tr.sql[max(0, slices.Index(tr.sql, statement)-1)]
}

func (tr *tracer) find(part string) string {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	for _, s := range tr.sql {
		if strings.Contains(s, part) {
			return s
		}
	}
	return ""
}

// RV-07: River's tables in a schema of their own.
func TestSweep_RiverInAnotherSchema(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	const schema = "my_river"
	fencetest.Exec(t, pool, fmt.Sprintf(`create schema %q`, schema))
	for _, name := range []string{"river_job", "river_queue"} {
		fencetest.Exec(t, pool, fmt.Sprintf(`alter table %s set schema %q`, name, schema))
	}
	fencetest.Exec(t, pool, fmt.Sprintf(`alter type river_job_state set schema %q`, schema))
	fencetest.Exec(t, pool, fmt.Sprintf(`alter function river_job_state_in_bitmask set schema %q`, schema))
	client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{Schema: schema, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	bells := doorbell.New(client)
	run := fencetest.Insert(t, pool, fencetest.Delivery, "pending", "next_attempt_at = clock_timestamp() - interval '1 min'")
	n, err := doorbell.NewSweeper(pool, bells, grace).Sweep(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, n)
	_, err = doorbell.NewCanceled(pool, schema).Next(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, fencetest.Value[int](t, pool, fmt.Sprintf(`select count(*)::int from %q.river_job where id = $1`, schema), fencetest.Read(t, pool, run).Doorbell))
}
