package workers_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/internal/postgres/pgtest"
	"github.com/weirqueue/weir/jobs"
	"github.com/weirqueue/weir/workers"
	"github.com/weirqueue/weir/workers/channel"
)

// River UI's cancel ends the run, also one that is due only tomorrow.
func TestCancelInRiver_OfAJobForTomorrowCancelsItsRun(t *testing.T) {
	t.Parallel()
	s := sail(t, pgtest.Pool(t), func(context.Context, channel.Message) (channel.Sent, error) { return channel.Sent{}, nil }, nil)
	id := s.notify("x", &jobs.Opts{ScheduledAt: time.Now().Add(24 * time.Hour)})
	run, err := s.client.Get(t.Context(), id)
	require.NoError(t, err)
	_, err = s.river.JobCancel(t.Context(), *run.DoorbellID)
	require.NoError(t, err)
	run = s.wait(id)
	require.Equal(t, jobs.StatusFailed, run.Status)
	require.Equal(t, "canceled_in_river", run.ErrorCode)
	require.ErrorIs(t, s.client.Redrive(t.Context(), id), jobs.ErrState)
}

// River UI's cancel of a running job ends its handler's context and then its run.
func TestCancelInRiver_OfARunningJobCancelsItsRun(t *testing.T) {
	t.Parallel()
	s := sail(t, pgtest.Pool(t), func(ctx context.Context, _ channel.Message) (channel.Sent, error) {
		<-ctx.Done()
		return channel.Sent{}, errors.New("interrupted")
	}, func(c *workers.Config) { c.Delivery.StepTime = 20 * time.Second })
	id := s.notify("x", nil)
	s.eventually("running", func() bool { return count(s.events, all[workers.RunClaimed]) == 1 })
	run, err := s.client.Get(t.Context(), id)
	require.NoError(t, err)
	_, err = s.river.JobCancel(t.Context(), *run.DoorbellID)
	require.NoError(t, err)
	run = s.wait(id)
	require.Equal(t, jobs.StatusFailed, run.Status)
	require.Equal(t, "canceled_in_river", run.ErrorCode)
	s.jobIs(id, "cancelled")
	receipts, err := s.client.Receipts(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, "unknown", receipts[0].Outcome, "it may still take effect, and says so")
}

// A cancellation of a delivery whose message is under way is a request: honoured when the try ends, unless the
// provider took the message.
func TestCancel_OfADeliveryUnderWayIsHonouredAtItsEnd(t *testing.T) {
	t.Parallel()
	var goOn, fail atomic.Bool
	s := sail(t, pgtest.Pool(t), func(ctx context.Context, _ channel.Message) (channel.Sent, error) {
		for !goOn.Load() {
			select {
			case <-ctx.Done():
				return channel.Sent{}, ctx.Err()
			case <-time.After(5 * time.Millisecond):
			}
		}
		if fail.Load() {
			return channel.Sent{}, channel.Temporary("smtp_451", errors.New("later"))
		}
		return channel.Sent{}, nil
	}, func(c *workers.Config) { c.Delivery.StepTime = 20 * time.Second })
	for _, c := range []struct {
		fail bool
		want jobs.Status
		code string
	}{{true, jobs.StatusFailed, "canceled"}, {false, jobs.StatusSent, ""}} {
		goOn.Store(false)
		fail.Store(c.fail)
		id := s.notify("x", nil)
		s.eventually("owned", func() bool {
			run, err := s.client.Get(t.Context(), id)
			require.NoError(t, err)
			return run.LeaseOwner != ""
		})
		require.NoError(t, s.client.Cancel(t.Context(), id))
		run, err := s.client.Get(t.Context(), id)
		require.NoError(t, err)
		require.NotNil(t, run.CancelRequestedAt)
		require.Equal(t, jobs.StatusProcessing, run.Status)
		goOn.Store(true)
		run = s.wait(id)
		require.Equal(t, c.want, run.Status)
		require.Equal(t, c.code, run.ErrorCode)
	}
}

// A cancelled or deleted River job that nobody asked to cancel is only a lost doorbell.
func TestDoorbell_ThatIsLostIsRungAgain(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	client, err := jobs.NewClient(pool, nil)
	require.NoError(t, err)
	lost := map[string]string{
		"deleted":   "delete from river_job where id = $1",
		"cancelled": "update river_job set state = 'cancelled', finalized_at = now() where id = $1",
		"completed": "update river_job set state = 'completed', finalized_at = now() where id = $1",
		"discarded": "update river_job set state = 'discarded', finalized_at = now() where id = $1",
		"running":   "update river_job set state = 'running', attempted_at = now() - interval '1 h' where id = $1",
		// L11: a worker whose clock is three hours ahead has put it off.
		"skewed": "update river_job set scheduled_at = now() + interval '3 h' where id = $1",
	}
	ids := map[string]jobs.RunID{}
	for name, sql := range lost {
		res, err := client.Notify(t.Context(), jobs.Notification{To: []jobs.Recipient{{Channel: "fn", Address: "x"}}, Text: name}, nil)
		require.NoError(t, err)
		ids[name] = res.Runs[0].ID
		_, err = pool.Exec(t.Context(), sql, *mustGet(t, client, ids[name]).DoorbellID)
		require.NoError(t, err)
	}
	s := sail(t, pool, func(context.Context, channel.Message) (channel.Sent, error) { return channel.Sent{}, nil }, nil)
	for name, id := range ids {
		run := s.wait(id)
		require.Equal(t, jobs.StatusSent, run.Status, name)
	}
	require.Positive(t, count(s.events, all[workers.DoorbellsRung]))
}

func mustGet(t *testing.T, client *jobs.Client, id jobs.RunID) *jobs.Run {
	t.Helper()
	run, err := client.Get(t.Context(), id)
	require.NoError(t, err)
	return run
}
