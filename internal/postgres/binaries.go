package postgres

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// ErrNoBinaries is in the chain of the error when no usable PostgreSQL is installed. The error's text is one sentence
// that says what to install.
var ErrNoBinaries = errors.New("PostgreSQL's server programs were not found")

// MinMajor is the oldest major version of PostgreSQL that Weir works with.
const MinMajor = 14

// programs are what a directory of binaries must hold.
var programs = []string{"initdb", "pg_ctl", "postgres"}

// packageDirs is where distributions put server programs that they keep off the PATH.
var packageDirs = []string{
	"/usr/lib/postgresql/*/bin",                          // Debian, Ubuntu
	"/usr/pgsql-*/bin",                                   // PGDG on Fedora, RHEL
	"/usr/libexec/postgresql*",                           // Alpine
	"/opt/homebrew/opt/postgresql@*/bin",                 // Homebrew, Apple silicon
	"/usr/local/opt/postgresql@*/bin",                    // Homebrew, Intel
	"/Applications/Postgres.app/Contents/Versions/*/bin", // Postgres.app
}

// binaries is one installation of PostgreSQL.
type binaries struct {
	dir   string
	major int
}

func (b binaries) path(program string) string { return filepath.Join(b.dir, program) }

// findBinaries looks in the directory that PG_BIN names, and nowhere else when it is set; then on the PATH; then for the
// newest version in packageDirs.
func findBinaries(getenv func(string) string, packageDirs []string) (string, error) {
	if dir := getenv("PG_BIN"); dir != "" {
		if missing := missingPrograms(dir); missing != "" {
			return "", fmt.Errorf("%w: PG_BIN is %q, but there is no program %s in it", ErrNoBinaries, dir, missing)
		}
		return dir, nil
	}
	for _, dir := range filepath.SplitList(getenv("PATH")) {
		if filepath.IsAbs(dir) && missingPrograms(dir) == "" {
			return dir, nil
		}
	}
	var found []string
	for _, pattern := range packageDirs {
		dirs, _ := filepath.Glob(pattern) // the only error is a malformed pattern
		for _, dir := range dirs {
			if missingPrograms(dir) == "" {
				found = append(found, dir)
			}
		}
	}
	if len(found) == 0 {
		return "", fmt.Errorf("%w: install the PostgreSQL server, version %d or newer (Debian, Ubuntu: apt install postgresql; "+
			"Fedora: dnf install postgresql-server; macOS: brew install postgresql@17), or set PG_BIN to the directory with its programs",
			ErrNoBinaries, MinMajor)
	}
	return slices.MaxFunc(found, func(a, b string) int { return versionInPath(a) - versionInPath(b) }), nil
}

// missingPrograms names the first of the programs that dir does not have, or nothing.
func missingPrograms(dir string) string {
	for _, p := range programs {
		info, err := os.Stat(filepath.Join(dir, p))
		if err != nil || info.IsDir() || info.Mode()&0o111 == 0 {
			return p
		}
	}
	return ""
}

var number = regexp.MustCompile(`\d+`)

// versionInPath is the last number in the name of a package directory: a guess, and the server itself is asked later.
func versionInPath(dir string) int {
	numbers := number.FindAllString(dir, -1)
	if len(numbers) == 0 {
		return 0
	}
	n, _ := strconv.Atoi(numbers[len(numbers)-1])
	return n
}

// inspect asks the server program for its version, as the account that will run it, so that a directory which that
// account cannot enter is found here and not in the middle of a start.
func inspect(ctx context.Context, dir string, as account) (binaries, error) {
	cmd := as.command(ctx, filepath.Join(dir, "postgres"), "-V")
	out, err := cmd.Output()
	if err != nil {
		return binaries{}, fmt.Errorf("run %s as user %s: %w", cmd.Path, as.name, withStderr(err))
	}
	major, err := parseMajor(string(out))
	if err != nil {
		return binaries{}, fmt.Errorf("%s: %w", cmd.Path, err)
	}
	if major < MinMajor {
		return binaries{}, fmt.Errorf("%w: %s is version %d, install version %d or newer, or set PG_BIN to the directory with its programs",
			ErrNoBinaries, cmd.Path, major, MinMajor)
	}
	return binaries{dir: dir, major: major}, nil
}

// parseMajor reads the output of "postgres -V", such as "postgres (PostgreSQL) 15.14 (Debian 15.14-0+deb12u1)".
func parseMajor(version string) (int, error) {
	_, after, ok := strings.Cut(version, ") ")
	major, err := strconv.Atoi(number.FindString(after))
	if !ok || err != nil {
		return 0, fmt.Errorf("unexpected version %q", strings.TrimSpace(version))
	}
	return major, nil
}

// withStderr adds what a program said to the error that it ended with.
func withStderr(err error) error {
	var exit *exec.ExitError
	if errors.As(err, &exit) && len(exit.Stderr) > 0 {
		return fmt.Errorf("%w: %s", err, strings.TrimSpace(string(exit.Stderr)))
	}
	return err
}
