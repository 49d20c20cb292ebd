package telegram_test

import (
	"context"
	"errors"
	"sort"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/workers/channel"
	"github.com/weirqueue/weir/workers/channel/telegram"
)

func slowly(c *telegram.Config) { c.ChatInterval = 700 * time.Millisecond }

func TestSend_AChatThatMustWaitIsRememberedAndOthersGoOn(t *testing.T) { // TG-01
	t.Parallel()
	f := startFake(t, func(_ int, m taken) answer {
		if m.Chat == "1" {
			return refusal(429, "Too Many Requests", `{"retry_after":35}`)
		}
		return answer{}
	})
	c := f.open(t, slowly)
	_, err := send(t, c, "1")
	require.Equal(t, 35*time.Second, requireClass(t, err, channel.ClassThrottled, "telegram_429").After)
	var due []time.Duration
	for range 3 {
		_, err = send(t, c, "1")
		due = append(due, requireClass(t, err, channel.ClassThrottled, "telegram_paced").After)
	}
	for i := range due {
		require.InDelta(t, (35*time.Second + time.Duration(i+1)*700*time.Millisecond).Seconds(), due[i].Seconds(), 1, "not before, and not all at once")
	}
	require.True(t, sort.SliceIsSorted(due, func(i, j int) bool { return due[i] < due[j] }))
	_, err = send(t, c, "2")
	require.NoError(t, err)
	require.Equal(t, []string{"1", "2"}, f.chats(), "nobody asked again for the first chat")
}

func TestSend_A429WithoutATimeIsLeftToTheBackoff(t *testing.T) { // TG-01
	t.Parallel()
	f := startFake(t, func(n int, _ taken) answer {
		if n == 0 {
			return refusal(429, "Too Many Requests", "")
		}
		return answer{}
	})
	c := f.open(t)
	_, err := send(t, c, "1")
	require.Zero(t, requireClass(t, err, channel.ClassThrottled, "telegram_429").After)
	_, err = send(t, c, "1")
	require.NoError(t, err)
}

func TestSend_AFloodForOneChatHoldsOneWorkerAndDelaysNobodyElse(t *testing.T) { // TG-01, NO-10
	t.Parallel()
	f := newFake(t)
	c := f.open(t, slowly)
	began := time.Now()
	results := make(chan error, 50)
	var flood sync.WaitGroup
	for range cap(results) {
		flood.Go(func() {
			_, err := c.Send(t.Context(), message("1"))
			results <- err
		})
	}
	for range 10 {
		other := time.Now()
		_, err := send(t, c, "2")
		_ = err // its own turn comes once in 700 ms; what matters is that nobody holds it up longer
		require.Less(t, time.Since(other), 1500*time.Millisecond)
		if err == nil {
			break
		}
	}
	flood.Wait()
	require.Less(t, time.Since(began), 4*time.Second, "who must wait long is put off")
	close(results)
	sent := 0
	seen := map[time.Duration]bool{}
	for err := range results {
		if err == nil {
			sent++
			continue
		}
		after := requireClass(t, err, channel.ClassThrottled, "telegram_paced").After
		require.False(t, seen[after.Round(10*time.Millisecond)], "two come back at the same time")
		seen[after.Round(10*time.Millisecond)] = true
	}
	require.Equal(t, 2, sent, "one at once, and one that waited for its turn")
}

func TestSend_KeepsItsDistanceInOneChat(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var at []time.Time
	f := startFake(t, func(int, taken) answer {
		mu.Lock()
		defer mu.Unlock()
		at = append(at, time.Now())
		return answer{}
	})
	c := f.open(t, func(c *telegram.Config) { c.ChatInterval = 300 * time.Millisecond })
	for range 3 {
		_, err := send(t, c, "1")
		require.NoError(t, err)
	}
	require.Greater(t, at[2].Sub(at[0]), 500*time.Millisecond)
}

func TestSend_TheBotAsAWholeKeepsItsRate(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	c := f.open(t, func(c *telegram.Config) { c.MaxPerSecond = 5 })
	began := time.Now()
	for _, chat := range []string{"1", "2", "3", "4"} {
		_, err := send(t, c, chat)
		require.NoError(t, err)
	}
	require.Greater(t, time.Since(began), 500*time.Millisecond)

	c = f.open(t, func(c *telegram.Config) { c.MaxPerSecond = 1 })
	results := make(chan error, 6)
	for i := range cap(results) {
		go func() {
			_, err := c.Send(t.Context(), message(string(rune('1'+i))))
			results <- err
		}()
	}
	throttled := 0
	for range cap(results) {
		if err := <-results; err != nil {
			requireClass(t, err, channel.ClassThrottled, "telegram_paced")
			throttled++
		}
	}
	require.GreaterOrEqual(t, throttled, 2, "what would wait long is put off")
}

func TestSend_AWaitThatIsCutShortSendsNothing(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	c := f.open(t, slowly)
	_, err := send(t, c, "1")
	require.NoError(t, err)
	ctx, cancel := context.WithCancelCause(t.Context())
	time.AfterFunc(50*time.Millisecond, func() { cancel(errors.New("shutdown")) })
	_, err = c.Send(ctx, message("1"))
	requireClass(t, err, channel.ClassTemporary, "telegram_canceled")
	require.ErrorContains(t, err, "shutdown")
	asked, _ := f.count()
	require.Equal(t, 1, asked)
	require.Eventually(t, func() bool {
		_, err := send(t, c, "1")
		return err == nil
	}, 5*time.Second, 50*time.Millisecond, "who gave up does not wait for ever in the others' way")
}
