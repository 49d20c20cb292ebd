package migrations

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

//go:embed sql/*.sql
var embedded embed.FS

// files are Weir's migrations, by file name.
func files() fs.FS {
	sub, err := fs.Sub(embedded, "sql")
	if err != nil {
		panic(err) // the name is a valid one, and Sub looks at nothing else
	}
	return sub
}

// names of Weir's migrations, in order.
func names() []string {
	names, err := fs.Glob(files(), "*.sql")
	if err != nil {
		panic(err) // only for a malformed pattern
	}
	return names
}

// river knows River's migrations; without a pool it cannot do more.
func river() *rivermigrate.Migrator[pgx.Tx] {
	m, err := rivermigrate.New(riverpgxv5.New(nil), nil)
	if err != nil {
		panic(err) // the defaults are valid
	}
	return m
}

// known lists the migrations of this version, River's before Weir's, each in the order in which they are applied.
func known() []Migration {
	var all []Migration
	for _, m := range river().AllVersions() {
		all = append(all, Migration{Source: SourceRiver, Version: int64(m.Version), Name: m.Name})
	}
	for _, name := range names() {
		all = append(all, Migration{Source: SourceWeir, Version: versionOf(name), Name: nameOf(name)})
	}
	return all
}

// versionOf reads the number that a migration's file name begins with.
func versionOf(file string) int64 {
	digits, _, _ := strings.Cut(path.Base(file), "_")
	version, err := strconv.ParseInt(digits, 10, 64)
	if err != nil {
		panic("migrations: the name of " + file + " does not begin with a number")
	}
	return version
}

// nameOf is what a migration's file name says besides the number.
func nameOf(file string) string {
	_, name, _ := strings.Cut(strings.TrimSuffix(path.Base(file), ".sql"), "_")
	return name
}

// Fingerprint changes whenever River's or Weir's migrations do: databases that were migrated under the same fingerprint
// have the same schema.
func Fingerprint() string {
	sum := sha256.New()
	for _, m := range river().AllVersions() {
		fmt.Fprintf(sum, "river %d %q\n", m.Version, m.SQLUp)
	}
	for _, name := range names() {
		content, err := fs.ReadFile(files(), name)
		if err != nil {
			panic(err) // the files are part of the program
		}
		fmt.Fprintf(sum, "weir %s %q\n", name, content)
	}
	return hex.EncodeToString(sum.Sum(nil))
}
