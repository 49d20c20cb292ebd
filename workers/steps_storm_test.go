package workers_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/internal/faultproxy"
	"github.com/weirqueue/weir/internal/postgres/pgtest"
	"github.com/weirqueue/weir/jobs"
	"github.com/weirqueue/weir/workers"
)

var stormKind = jobs.MustKind[order]("storm", jobs.KindConfig{MaxAttempts: 50, Steps: []jobs.Step{
	{Name: "reserve", Effect: jobs.Transactional},
	{Name: "charge", Effect: jobs.Idempotent},
	{Name: "count", Effect: jobs.Transactional},
	{Name: "tell", Effect: jobs.AtLeastOnce},
	{Name: "ship", Effect: jobs.Reconciled},
	{Name: "close", Effect: jobs.Transactional},
}})

// outsideWorld counts what was done to it.
type outsideWorld struct {
	mu   sync.Mutex
	done map[string]int
}

func (w *outsideWorld) act(_ context.Context, in *workers.In[order]) (string, error) {
	chance := rand.IntN(12)
	if chance == 0 {
		return "", workers.NotSent(errors.New("not now"))
	}
	w.mu.Lock()
	w.done[in.Key]++
	w.mu.Unlock()
	if chance == 1 {
		return "", errors.New("the answer was lost")
	}
	return in.Key, nil
}

func (w *outsideWorld) ask(_ context.Context, in *workers.In[order]) (string, bool, error) {
	return in.Key, w.times(in.Key) > 0, nil
}

func (w *outsideWorld) times(key string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.done[key]
}

func (w *outsideWorld) bind() workers.Binding {
	insert := func(ctx context.Context, tx pgx.Tx, in *workers.In[order]) (int, error) {
		_, err := tx.Exec(ctx, "insert into storm values ($1, $2)", in.Run, in.Step)
		return in.Step, err
	}
	return workers.Bind(stormKind, workers.KindConfig{
		Lease: 2 * time.Second, Backoff: workers.Backoff{First: 10 * time.Millisecond, Max: 50 * time.Millisecond},
	},
		workers.Transactional("reserve", insert),
		workers.Idempotent("charge", w.act),
		workers.Statement("count", func(_ context.Context, in *workers.In[order]) (workers.SQL, error) {
			return workers.SQL{Text: "insert into storm values ($1, $2) returning step", Args: []any{in.Run, in.Step}}, nil
		}),
		workers.AtLeastOnce("tell", w.act),
		workers.Reconciled("ship", w.act, w.ask),
		workers.Transactional("close", insert))
}

// Commits, claims and ends lose their way or their answers, again and again, while somebody cancels: what the records
// say of each run is what happened.
func TestSteps_RecordsAreTrueInAStormOfLostAnswersAndCancels(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t, pgtest.MaxConns(8))
	_, err := pool.Exec(t.Context(), "create table storm (run uuid, step int)")
	require.NoError(t, err)
	world := &outsideWorld{done: map[string]int{}}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var breaking sync.WaitGroup
	for range 2 {
		proxy, err := faultproxy.New(pool.Config().ConnString())
		require.NoError(t, err)
		t.Cleanup(func() { _ = proxy.Close() })
		cfg := pool.Config()
		cfg.ConnConfig.Host, cfg.ConnConfig.Port, cfg.ConnConfig.Fallbacks = "127.0.0.1", uint16(proxy.Port()), nil
		cfg.MaxConns = 10
		behind, err := pgxpool.NewWithConfig(t.Context(), cfg)
		require.NoError(t, err)
		t.Cleanup(behind.Close)
		runKinds(t, behind, world.bind())
		breaking.Go(func() {
			for ctx.Err() == nil {
				at := []faultproxy.Point{faultproxy.AtCommit, faultproxy.AtWrite}[rand.IntN(2)]
				verdict := []faultproxy.Verdict{faultproxy.CutBefore, faultproxy.CutAfter}[rand.IntN(2)]
				proxy.Set(at, func() faultproxy.Verdict { return verdict })
				select {
				case <-ctx.Done():
				case <-time.After(time.Duration(5+rand.IntN(30)) * time.Millisecond):
				}
			}
		})
	}
	client, err := jobs.NewClient(pool, nil)
	require.NoError(t, err)
	type canceled struct{ rows int }
	seen := map[jobs.RunID]canceled{}
	var ids []jobs.RunID
	for i := range 60 {
		res, err := client.Enqueue(t.Context(), stormKind.Of(order{}), nil)
		require.NoError(t, err)
		ids = append(ids, res.Run.ID)
		time.Sleep(time.Duration(rand.IntN(25)) * time.Millisecond)
		if i%3 != 0 {
			continue
		}
		victim := ids[max(0, len(ids)-1-rand.IntN(6))]
		if err := client.Cancel(t.Context(), victim); err != nil {
			var ended *jobs.StateError
			require.ErrorAs(t, err, &ended)
			continue
		}
		var rows int
		run, err := client.Get(t.Context(), victim)
		require.NoError(t, err)
		require.NoError(t, pool.QueryRow(t.Context(), "select count(*) from storm where run = $1", victim).Scan(&rows))
		if run.Status == jobs.StatusCanceled {
			seen[victim] = canceled{rows}
		}
	}
	patience, cancel := context.WithTimeout(t.Context(), 40*time.Second)
	defer cancel()
	time.Sleep(2 * time.Second)
	stop()
	breaking.Wait()
	statuses := map[string]int{}
	for _, id := range ids {
		run, err := client.Wait(patience, id)
		require.NoError(t, err, "%+v", run)
		statuses[string(run.Status)+" "+run.ErrorCode]++
		rs, err := client.Receipts(t.Context(), id)
		require.NoError(t, err)
		outcome := map[int]string{}
		for _, r := range rs {
			outcome[r.StepIndex] = r.Outcome
		}
		total := 0
		for _, step := range []int{0, 2, 5} {
			var n int
			require.NoError(t, pool.QueryRow(t.Context(), "select count(*) from storm where run = $1 and step = $2", id, step).Scan(&n))
			total += n
			want := 0
			if outcome[step] == "ok" {
				want = 1
			}
			require.Equal(t, want, n, "run %s step %d: %v", id, step, outcome)
		}
		if c, ok := seen[id]; ok {
			require.Equal(t, c.rows, total, "an effect came after the cancellation")
		}
		for _, step := range []int{1, 3, 4} {
			times := world.times(fmt.Sprintf("%s:%d", id, step))
			if outcome[step] == "ok" {
				require.Positive(t, times)
			}
			if outcome[step] == "failed" || outcome[step] == "" {
				require.Zero(t, times, "run %s (%s): the receipt of step %d says %q, and it happened", id, run.Status, step, outcome[step])
			}
			if step == 4 {
				require.LessOrEqual(t, times, 1)
			}
		}
		if run.Status == jobs.StatusSucceeded {
			for step := range 6 {
				require.Equal(t, "ok", outcome[step])
			}
		}
	}
	t.Log(statuses)
}
