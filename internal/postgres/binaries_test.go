package postgres

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// fakeBinaries makes a directory of programs that only know their version.
func fakeBinaries(t *testing.T, dir, version string) string {
	t.Helper()
	require.NoError(t, os.MkdirAll(dir, 0o755))
	for _, p := range programs {
		script := "#!/bin/sh\necho '" + p + " (PostgreSQL) " + version + "'\n"
		require.NoError(t, os.WriteFile(filepath.Join(dir, p), []byte(script), 0o755))
	}
	return dir
}

func env(vars map[string]string) func(string) string {
	return func(name string) string { return vars[name] }
}

func TestFindBinaries_PrefersPG_BINThenPATHThenTheNewestPackage(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	named := fakeBinaries(t, filepath.Join(dir, "named"), "16.1")
	onPath := fakeBinaries(t, filepath.Join(dir, "path"), "15.1")
	fakeBinaries(t, filepath.Join(dir, "lib", "9", "bin"), "9.6")
	newest := fakeBinaries(t, filepath.Join(dir, "lib", "18", "bin"), "18.1")
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "lib", "19", "bin"), 0o755)) // a client without a server
	packages := []string{filepath.Join(dir, "lib", "*", "bin")}
	path := "relative" + string(filepath.ListSeparator) + "/nowhere" + string(filepath.ListSeparator) + onPath

	for _, tt := range []struct {
		name string
		env  map[string]string
		want string
	}{
		{"PG_BIN", map[string]string{"PG_BIN": named, "PATH": path}, named},
		{"PATH", map[string]string{"PATH": path}, onPath},
		{"packages", map[string]string{"PATH": "/nowhere"}, newest},
	} {
		got, err := findBinaries(env(tt.env), packages)
		require.NoError(t, err, tt.name)
		require.Equal(t, tt.want, got, tt.name)
	}
}

func TestFindBinaries_NeverLooksElsewhereThanInPG_BIN(t *testing.T) {
	t.Parallel()
	onPath := fakeBinaries(t, t.TempDir(), "15.1")
	_, err := findBinaries(env(map[string]string{"PG_BIN": "/nowhere", "PATH": onPath}), []string{onPath})
	require.ErrorIs(t, err, ErrNoBinaries)
	require.ErrorContains(t, err, `PG_BIN is "/nowhere"`)
}

func TestStart_NoBinariesSaysWhatToInstall(t *testing.T) {
	t.Parallel()
	_, err := findBinaries(env(nil), nil)
	require.ErrorIs(t, err, ErrNoBinaries)
	require.ErrorContains(t, err, "install the PostgreSQL server, version 14 or newer")
	require.ErrorContains(t, err, "apt install postgresql")
	require.NotContains(t, err.Error(), "\n")
}

func TestStart_RefusesAnOldVersion(t *testing.T) {
	t.Setenv("PG_BIN", fakeBinaries(t, filepath.Join(worldDir(t), "bin"), "13.22 (Debian 13.22-1)"))
	_, err := Start(t.Context(), Options{Name: "old"})
	require.ErrorIs(t, err, ErrNoBinaries)
	require.ErrorContains(t, err, "is version 13, install version 14 or newer")
}

func TestStart_SaysWhichUserCannotReachThePrograms(t *testing.T) {
	skipUnlessRoot(t)
	dir := filepath.Join(worldDir(t), "closed")
	t.Setenv("PG_BIN", fakeBinaries(t, filepath.Join(dir, "bin"), "17.1"))
	require.NoError(t, os.Chmod(dir, 0o700))
	_, err := Start(t.Context(), Options{Name: "closed"})
	require.ErrorIs(t, err, os.ErrPermission)
	require.ErrorContains(t, err, "as user postgres")
}

func TestParseMajor(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]int{
		"postgres (PostgreSQL) 15.14 (Debian 15.14-0+deb12u1)": 15,
		"postgres (PostgreSQL) 18beta1\n":                      18,
		"postgres (PostgreSQL) 9.6.24":                         9,
	} {
		got, err := parseMajor(version)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	_, err := parseMajor("command not found")
	require.Error(t, err)
}
