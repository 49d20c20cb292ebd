package workers

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/riverqueue/river"
	"github.com/stretchr/testify/require"
)

// A process that is told to stop does not wait for its cleaning, which may take minutes, nor end with an error for it.
func TestUpkeep_AShutdownEndsARound(t *testing.T) {
	t.Parallel()
	stop, end := context.WithCancel(t.Context())
	begun := make(chan struct{})
	w := &upkeepWorker[cleanArgs]{stop: stop, do: func(ctx context.Context) error {
		close(begun)
		<-ctx.Done()
		return ctx.Err()
	}}
	done := make(chan error, 1)
	go func() { done <- w.Work(context.Background(), &river.Job[cleanArgs]{}) }()
	<-begun
	end()
	select {
	case err := <-done:
		require.NoError(t, err)
	case <-time.After(10 * time.Second):
		require.Fail(t, "the round goes on")
	}
	boom := errors.New("boom")
	w = &upkeepWorker[cleanArgs]{stop: t.Context(), do: func(context.Context) error { return boom }}
	require.ErrorIs(t, w.Work(t.Context(), &river.Job[cleanArgs]{}), boom)
}
