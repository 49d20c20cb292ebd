package workers_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/internal/postgres/pgtest"
	"github.com/weirqueue/weir/jobs"
	"github.com/weirqueue/weir/workers"
	"github.com/weirqueue/weir/workers/channel"
)

// L13: an effect outside may happen twice, so each try hands the provider the same key, and a message that is the same
// in everything else.
func TestDelivery_EveryTryIsTheSameMessageUnderTheSameKey(t *testing.T) {
	t.Parallel()
	var (
		mu   sync.Mutex
		seen []channel.Message
	)
	s := sail(t, pgtest.Pool(t), func(_ context.Context, m channel.Message) (channel.Sent, error) {
		mu.Lock()
		defer mu.Unlock()
		if seen = append(seen, m); len(seen) < 3 {
			return channel.Sent{}, errors.New("nobody knows")
		}
		return channel.Sent{}, nil
	}, nil)
	id := s.notify("x", nil)
	require.Equal(t, jobs.StatusSent, s.wait(id).Status)
	require.Len(t, seen, 3)
	require.Equal(t, id.String()+":0", seen[0].IdempotencyKey)
	require.Equal(t, seen[0], seen[1])
	require.Equal(t, seen[0], seen[2])
}

// NO-11: an idempotency key says that the notification exists, not that it was delivered: a failed try is retried, and
// a repeat of the enqueue neither sends again nor stops that.
func TestDelivery_AKeyDoesNotMeanDelivered(t *testing.T) {
	t.Parallel()
	var tries atomic.Int32
	s := sail(t, pgtest.Pool(t), func(context.Context, channel.Message) (channel.Sent, error) {
		if tries.Add(1) < 3 {
			return channel.Sent{}, channel.Temporary("busy", errors.New("later"))
		}
		return channel.Sent{}, nil
	}, nil)
	opts := &jobs.Opts{IdempotencyKey: "event-1"}
	id := s.notify("x", opts)
	s.eventually("a try failed", func() bool { return mustGet(t, s.client, id).Failures > 0 })
	require.Equal(t, id, s.notify("x", opts))
	require.Equal(t, jobs.StatusSent, s.wait(id).Status)
	require.EqualValues(t, 3, tries.Load())
}

// RV-24: a queue that nobody works is not silent: the run that waits longest, and its queue, are reported by every
// process.
func TestUpkeep_ReportsTheQueueThatNobodyWorks(t *testing.T) {
	t.Parallel()
	s := sail(t, pgtest.Pool(t), func(context.Context, channel.Message) (channel.Sent, error) { return channel.Sent{}, nil }, nil)
	id := s.notify("x", &jobs.Opts{Queue: "weir_delivrey"})
	s.eventually("reported", func() bool {
		return count(s.events, func(e workers.MaintenanceDone) bool {
			return e.OldestQueue == "weir_delivrey" && e.OldestDue > time.Second
		}) > 0
	})
	run := mustGet(t, s.client, id)
	require.Equal(t, jobs.StatusPending, run.Status)
	require.Zero(t, run.Attempt)
}

// UI-02, RV-06: an impatient operator makes River's running job available again, or inserts the doorbell once more,
// while the handler lives: the run is owned, so nobody sends a second time.
func TestDoorbell_ForcedWhileTheHandlerLivesSendsNothing(t *testing.T) {
	t.Parallel()
	var sends atomic.Int32
	goOn := make(chan struct{})
	s := sail(t, pgtest.Pool(t), func(ctx context.Context, _ channel.Message) (channel.Sent, error) {
		sends.Add(1)
		select {
		case <-goOn:
		case <-ctx.Done():
			return channel.Sent{}, ctx.Err()
		}
		return channel.Sent{}, nil
	}, func(c *workers.Config) { c.Delivery.StepTime = 20 * time.Second })
	id := s.notify("x", nil)
	s.eventually("sending", func() bool { return sends.Load() == 1 })
	doorbell := *mustGet(t, s.client, id).DoorbellID
	_, err := s.pool.Exec(t.Context(), "update river_job set state = 'available', scheduled_at = now() where id = $1", doorbell)
	require.NoError(t, err)
	_, err = s.pool.Exec(t.Context(), `insert into river_job (args, kind, queue, max_attempts)
		select args, kind, queue, max_attempts from river_job where id = $1`, doorbell)
	require.NoError(t, err)
	s.eventually("both were answered", func() bool {
		return count(s.events, func(e workers.RunNotClaimed) bool { return e.Reason == "owned" }) >= 2
	})
	close(goOn)
	require.Equal(t, jobs.StatusSent, s.wait(id).Status)
	require.EqualValues(t, 1, sends.Load())
	require.EqualValues(t, 1, mustGet(t, s.client, id).Attempt)
}
