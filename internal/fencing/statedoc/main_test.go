package main

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// The document is what the tables say now.
func TestStateDoc_IsNotStale(t *testing.T) {
	t.Parallel()
	got, err := os.ReadFile("../../../docs/state-machines.md")
	require.NoError(t, err)
	require.Equal(t, document(), string(got), "run: go generate ./internal/fencing/statedoc")
}

func TestStateDoc_NamesEveryStatusAndEvent(t *testing.T) {
	t.Parallel()
	for _, want := range []string{"pending --> processing: claim", "| running | reap | else if reaps + 1 reaches max_reaps | failed | reaped |", "request cancel"} {
		require.Contains(t, document(), want)
	}
}
