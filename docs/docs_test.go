// Package docs checks that the pages do not promise what is not there.
package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	testName = regexp.MustCompile("`(Test\\w+)`")
	testFunc = regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	code     = regexp.MustCompile("(?s)```.*?```|`[^`\n]*`")
	link     = regexp.MustCompile(`\]\(([^)#]+)(?:#[^)]*)?\)`)
)

func walk(t *testing.T, suffix string, visit func(path, content string)) {
	t.Helper()
	require.NoError(t, filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() && strings.HasPrefix(d.Name(), ".") && d.Name() != ".." {
			return errOrSkip(err)
		}
		if strings.HasSuffix(path, suffix) {
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			visit(path, string(b))
		}
		return nil
	}))
}

func errOrSkip(err error) error {
	if err != nil {
		return err
	}
	return filepath.SkipDir
}

func TestGuarantees_NameTestsThatExist(t *testing.T) {
	exists := map[string]bool{}
	walk(t, "_test.go", func(_, content string) {
		for _, m := range testFunc.FindAllStringSubmatch(content, -1) {
			exists[m[1]] = true
		}
	})
	b, err := os.ReadFile("guarantees.md")
	require.NoError(t, err)
	named := testName.FindAllStringSubmatch(string(b), -1)
	require.Greater(t, len(named), 40)
	for _, m := range named {
		require.True(t, exists[m[1]], "guarantees.md names %s, which is no test", m[1])
	}
}

func TestPages_LinkToFilesThatExist(t *testing.T) {
	links := 0
	walk(t, ".md", func(path, content string) {
		for _, m := range link.FindAllStringSubmatch(code.ReplaceAllString(content, ""), -1) {
			if strings.Contains(m[1], "://") || strings.HasPrefix(m[1], "mailto:") {
				continue
			}
			links++
			_, err := os.Stat(filepath.Join(filepath.Dir(path), m[1]))
			require.NoError(t, err, "%s links to %s", path, m[1])
		}
	})
	require.Greater(t, links, 10)
}

// What goes wrong in such systems has names here: F1 to F16 are traps of fences and their SQL, L1 to L13 of a run's life.
// A test says in its comment which of them it keeps shut.
func TestTraps_EachHasATest(t *testing.T) {
	var all strings.Builder
	walk(t, "_test.go", func(path, content string) {
		if !strings.HasSuffix(path, "docs_test.go") {
			all.WriteString(content)
		}
	})
	for prefix, last := range map[string]int{"F": 16, "L": 13} {
		for n := 1; n <= last; n++ {
			id := prefix + strconv.Itoa(n)
			require.Regexp(t, `(?m)//.*\b`+id+`\b`, all.String(), "no test names %s", id)
		}
	}
}
