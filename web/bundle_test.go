package web

import (
	"bytes"
	"compress/gzip"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestBundle_TheCommittedOneIsWhatTheSourcesMake(t *testing.T) {
	t.Parallel()
	for path, generated := range map[string]func() ([]byte, error){PagesBundle: Pages, StatesDoc: States} {
		want, err := generated()
		require.NoError(t, err)
		got, err := os.ReadFile(filepath.Join(Dir(), path))
		require.NoError(t, err)
		require.True(t, bytes.Equal(want, got), "%s is stale: run go generate ./web", path)
	}
}

// What every application carries: the core and the adapters, without the kinds and the modules beside it.
func TestBundle_TheSessionIsSmall(t *testing.T) {
	t.Parallel()
	code, err := Session()
	require.NoError(t, err)
	var out bytes.Buffer
	w, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	require.NoError(t, err)
	_, err = w.Write(code)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	t.Logf("%d bytes, %d gzipped", len(code), out.Len())
	require.LessOrEqual(t, out.Len(), 8100)
}
