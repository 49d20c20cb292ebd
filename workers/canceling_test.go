package workers_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/internal/postgres/pgtest"
	"github.com/weirqueue/weir/jobs"
	"github.com/weirqueue/weir/workers"
	"github.com/weirqueue/weir/workers/channel"
)

// Cancel before, during and after: nothing is sent, the owner honours it, or the provider has won.
func TestCancel_BeforeDuringAfter(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	client := newClient(t, pool)
	entered, wake := make(chan struct{}, 3), make(chan struct{})
	ch := &fake{do: func(_ context.Context, m channel.Message, _ int) (channel.Sent, error) {
		entered <- struct{}{}
		<-wake
		if strings.HasPrefix(m.Address, "fails") {
			return channel.Sent{}, channel.Temporary("smtp_451", errors.New("later"))
		}
		return taken()
	}}
	p := start(t, pool, quickConfig(ch))
	before := notify(t, client, "before", &jobs.Opts{ScheduledAt: time.Now().Add(time.Hour)})
	require.NoError(t, client.Cancel(t.Context(), before))
	takes, fails := notify(t, client, "takes", nil), notify(t, client, "fails", nil)
	<-entered
	<-entered
	for _, id := range []jobs.RunID{takes, fails} {
		require.NoError(t, client.Cancel(t.Context(), id))
		require.Equal(t, jobs.StatusProcessing, get(t, client, id).Status)
	}
	close(wake)
	run := untilStatus(t, client, takes, jobs.StatusSent)
	require.NotNil(t, run.CancelRequestedAt, "the provider had it")
	var state *jobs.StateError
	require.ErrorAs(t, client.Cancel(t.Context(), takes), &state)
	run = untilStatus(t, client, fails, jobs.StatusFailed)
	require.Equal(t, "canceled", run.ErrorCode)
	require.Equal(t, 1, ch.sent(fails), "and is not tried again")
	require.Zero(t, ch.sent(before))
	require.Equal(t, "canceled", get(t, client, before).ErrorCode)
	require.Empty(t, of[workers.LeaseLost](p.events))
}

// River UI's cancel button: the run is canceled with a code of its own, also one that is due only tomorrow, one that has
// waited for long, and one that runs.
func TestCancel_InRiver(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	client := newClient(t, pool)
	entered := make(chan struct{}, 1)
	ch := &fake{do: func(ctx context.Context, m channel.Message, _ int) (channel.Sent, error) {
		if strings.HasPrefix(m.Address, "runs") {
			entered <- struct{}{}
			<-ctx.Done()
			return channel.Sent{}, ctx.Err()
		}
		return taken()
	}}
	tomorrow := notify(t, client, "tomorrow", &jobs.Opts{ScheduledAt: time.Now().Add(24 * time.Hour)})
	waits := notify(t, client, "waits", nil) // overdue when it is cancelled: the sweep must not ring it again
	execSQL(t, pool, "update weir.run set next_attempt_at = next_attempt_at - interval '1 h' where id = $1", waits.String())
	inserter := client
	p0, err := workers.New(pool, quickConfig(ch))
	require.NoError(t, err)
	for _, id := range []jobs.RunID{tomorrow, waits} {
		_, err := p0.River().JobCancel(t.Context(), *get(t, inserter, id).DoorbellID)
		require.NoError(t, err)
	}
	p := start(t, pool, quickConfig(ch))
	runs := notify(t, client, "runs", nil)
	<-entered
	_, err = p.River().JobCancel(t.Context(), *get(t, client, runs).DoorbellID)
	require.NoError(t, err)
	for name, id := range map[string]jobs.RunID{"tomorrow": tomorrow, "waits": waits, "runs": runs} {
		run := until(t, client, id, name+" ended", func(r *jobs.Run) bool { return r.Terminal() })
		require.Equal(t, []any{jobs.StatusFailed, "canceled_in_river"}, []any{run.Status, run.ErrorCode}, name)
		require.Equal(t, "cancelled", untilJob(t, pool, *run.DoorbellID, "cancelled").State, name)
	}
	require.Equal(t, []int{0, 0, 1}, []int{ch.sent(tomorrow), ch.sent(waits), ch.sent(runs)})
	require.Len(t, of[workers.RunCanceledInRiver](p.events), 2)
}
