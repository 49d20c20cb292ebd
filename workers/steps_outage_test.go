package workers_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/internal/postgres"
	"github.com/weirqueue/weir/internal/postgres/pgtest"
	"github.com/weirqueue/weir/jobs"
	"github.com/weirqueue/weir/workers"
)

// RV-08: the database goes away while the receipt of an effect outside is written, for longer than the lease, and nobody
// has reaped the run when it is back. Whoever ends the try does so without knowing, so the receipt says unknown before the step is issued
// again: an effect outside is there at most once more for each outcome that was unknown.
func TestSteps_AnOutageBetweenEffectAndReceiptIsUnknown(t *testing.T) {
	t.Parallel()
	server, url := ownServer(t)
	pool := pgtest.Connect(t, url)
	_, err := pool.Exec(t.Context(), `create table became_unknown (step int);
		create function note() returns trigger language plpgsql as $$ begin insert into public.became_unknown values (new.step_index); return null; end $$;
		create trigger note after insert or update on weir.receipt for each row when (new.outcome = 'unknown') execute function note();
		create function slow() returns trigger language plpgsql as $$ begin perform pg_sleep(0.3); return new; end $$;
		create trigger slow before update on weir.receipt for each row when (new.outcome = 'ok') execute function slow()`)
	require.NoError(t, err)

	kind := jobs.MustKind[order]("outage", jobs.KindConfig{Steps: []jobs.Step{
		{Name: "tell", Effect: jobs.AtLeastOnce}, {Name: "end", Effect: jobs.Transactional},
	}})
	const lease = time.Second
	var calls atomic.Int32
	binding := workers.Bind(kind, workers.KindConfig{Lease: lease, StepTime: time.Minute, Backoff: workers.Backoff{First: 10 * time.Millisecond, Max: 50 * time.Millisecond}},
		workers.AtLeastOnce("tell", func(context.Context, *workers.In[order]) (any, error) {
			if calls.Add(1) == 1 {
				time.AfterFunc(100*time.Millisecond, func() {
					_ = server.Stop(context.Background(), postgres.Immediate)
					time.AfterFunc(2*lease, func() { _ = server.Restart(context.Background(), postgres.Fast) })
				})
			}
			return nil, nil
		}),
		workers.Transactional("end", nothingLive),
	)
	client := runKindsReaping(t, pool, 20*time.Second, binding) // nobody else ends the lease meanwhile
	res, err := client.Enqueue(t.Context(), kind.Of(order{}), nil)
	require.NoError(t, err)
	var run *jobs.Run
	require.Eventually(t, func() bool {
		run, err = client.Get(t.Context(), res.Run.ID)
		return err == nil && run.Terminal()
	}, 60*time.Second, 100*time.Millisecond)
	require.Equal(t, jobs.StatusSucceeded, run.Status, "%s: %s", run.ErrorCode, run.ErrorMessage)
	unknown := numberFrom(t, pool, "select count(*) from became_unknown where step = 0")
	require.EqualValues(t, 2, calls.Load())
	require.Equal(t, 1, unknown)
}
