package workers_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/internal/postgres/pgtest"
	"github.com/weirqueue/weir/jobs"
	"github.com/weirqueue/weir/workers"
	"github.com/weirqueue/weir/workers/channel"
)

// NO-07: never zero and never negative, which an overflow would make it; never above the cap; not the same twice.
func TestBackoff_IsPositiveCappedAndJitteredForAnyNumberOfFailures(t *testing.T) {
	t.Parallel()
	for _, b := range []workers.Backoff{
		{First: 30 * time.Second, Max: time.Hour},
		{First: 5 * time.Second, Max: 10 * time.Minute},
		{First: 24 * time.Hour, Max: 30 * 24 * time.Hour},
		{First: 7 * time.Second, Max: 1<<63 - 1},
	} {
		for failures := 1; failures <= 200; failures++ {
			span := b.Max // First × 2ⁿ, without overflow
			if n := failures - 1; n < 62 && b.First <= b.Max>>n {
				span = b.First << n
			}
			drawn := map[time.Duration]bool{}
			for range 50 {
				d := b.Delay(failures)
				require.GreaterOrEqual(t, d, time.Second, "%v, %d failures", b, failures)
				require.LessOrEqual(t, d, span, "%v, %d failures", b, failures)
				drawn[d] = true
			}
			require.Greater(t, len(drawn), 40, "jittered: %v, %d failures", b, failures)
		}
	}
}

// Full jitter: the draws fill the span, so that tries that failed together do not come back together.
func TestBackoff_FillsItsSpan(t *testing.T) {
	t.Parallel()
	b := workers.Backoff{First: 101 * time.Second, Max: time.Hour}
	var tenths [10]int
	for range 10_000 {
		tenths[int((b.Delay(1)-time.Second)/(10*time.Second))]++
	}
	for i, n := range tenths {
		require.InDelta(t, 1000, n, 250, "tenth %d", i)
	}
}

func TestBackoff_FloorIsASecondOrTheFirstSpanWhereThatIsLess(t *testing.T) {
	t.Parallel()
	for range 1000 {
		require.GreaterOrEqual(t, workers.Backoff{First: 1001 * time.Millisecond, Max: time.Hour}.Delay(1), time.Second)
	}
	require.Equal(t, time.Second, workers.Backoff{First: time.Second, Max: time.Second}.Delay(1))
	for failures := range 200 {
		d := workers.Backoff{First: 20 * time.Millisecond, Max: 100 * time.Millisecond}.Delay(failures)
		require.GreaterOrEqual(t, d, 20*time.Millisecond)
		require.LessOrEqual(t, d, 100*time.Millisecond)
	}
	for _, failures := range []int{-1 << 62, -1, 0} {
		require.Positive(t, workers.Backoff{First: time.Minute, Max: time.Hour}.Delay(failures))
	}
}

// NO-08: the delay begins when the failure is written, by the database's clock, so a slow try does not eat it up; and
// nobody begins before it is over.
func TestBackoff_BeginsWhenTheFailureIsWrittenByTheDatabasesClock(t *testing.T) {
	t.Parallel()
	const slow = 1200 * time.Millisecond
	var tries atomic.Int32
	s := sail(t, pgtest.Pool(t), func(ctx context.Context, _ channel.Message) (channel.Sent, error) {
		if tries.Add(1) > 1 {
			return channel.Sent{}, nil
		}
		select {
		case <-time.After(slow):
		case <-ctx.Done():
		}
		return channel.Sent{}, channel.Temporary("smtp_451", errors.New("later"))
	}, func(c *workers.Config) {
		c.Delivery.StepTime, c.Delivery.Lease = 10*time.Second, 10*time.Second
		c.Delivery.Backoff = workers.Backoff{First: time.Second, Max: time.Second} // exactly the floor
	})
	id := s.notify("x", nil)
	var due time.Time
	s.eventually("failed once", func() bool {
		err := s.pool.QueryRow(t.Context(), `select next_attempt_at from weir.run
			where id = $1 and failures = 1 and lease_owner is null and isfinite(next_attempt_at)`, id.String()).Scan(&due)
		if !errors.Is(err, pgx.ErrNoRows) {
			require.NoError(t, err)
		}
		return err == nil
	})
	run := s.wait(id)
	require.Equal(t, jobs.StatusSent, run.Status)
	history, err := s.client.Tries(t.Context(), id)
	require.NoError(t, err)
	require.Len(t, history, 1)
	failed := history[0].EndedAt
	// The statement that writes both looks at the clock twice, some milliseconds apart. From the claim it would be 1.2 s less.
	require.InDelta(t, time.Second, due.Sub(failed), float64(slow/2), "due a floor after the failure")
	require.False(t, run.FinishedAt.Before(due), "nobody began before it was due")
}
