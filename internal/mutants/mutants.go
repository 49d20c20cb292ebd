// Command mutants breaks the guards of the code, one at a time, and sees that a test notices.
//
// Each mutant is a text of a production file and what replaces it. The file itself is not touched: the tests are built
// with go's -overlay. A mutant whose tests stay green survives, and that is a missing test; one whose text is no longer
// in its file is out of date. Both are failures.
//
//	go run ./internal/mutants [-drill] [-run regexp] [-v]
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"
)

// mutant is one broken guard. Where two texts guard the same thing, it breaks both.
type mutant struct {
	name  string
	edits []edit
	pkg   string // whose tests must go red
	run   string // -run pattern
}

type edit struct {
	file string // from the module's root
	old  string // exact text; must be in the file once
	new  string
}

func main() {
	os.Exit(run())
}

func run() int {
	pattern := flag.String("run", "", "only mutants whose name matches")
	drills := flag.Bool("drill", false, "drill the worker with each guard removed, instead of running tests")
	verbose := flag.Bool("v", false, "print the output of the tests")
	flag.Parse()
	only, err := regexp.Compile(*pattern)
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants: -run:", err)
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	if *drills {
		return runDrills(ctx, only.MatchString, *verbose)
	}
	tried, bad := 0, 0
	for _, m := range mutants {
		if !only.MatchString(m.name) {
			continue
		}
		tried++
		began := time.Now()
		result, out := m.try(ctx)
		if ctx.Err() != nil {
			fmt.Fprintln(os.Stderr, "mutants: interrupted")
			return 2
		}
		fmt.Printf("%-10s %-45s %5.1fs  %s %s\n", result, m.name, time.Since(began).Seconds(), m.pkg, m.run)
		if result != killed {
			bad++
		}
		if *verbose || result == broken {
			fmt.Println(out)
		}
	}
	fmt.Printf("%d mutants, %d not killed\n", tried, bad)
	if bad > 0 || tried == 0 {
		return 1
	}
	return 0
}

const (
	killed   = "red"
	survived = "SURVIVED"
	broken   = "BROKEN" // its text is not there, or it does not compile
)

func (m mutant) try(ctx context.Context) (result, out string) {
	dir, err := os.MkdirTemp("", "weir-mutant-")
	if err != nil {
		return broken, err.Error()
	}
	defer os.RemoveAll(dir)
	overlay, packages, err := m.overlay(dir)
	if err != nil {
		return broken, err.Error()
	}
	// A mutant that does not compile would look killed.
	build := exec.CommandContext(ctx, "go", append([]string{"build", "-overlay", overlay, m.pkg}, packages...)...)
	if said, err := build.CombinedOutput(); err != nil {
		return broken, string(said)
	}
	// Not -vet: a mutant may leave an argument unused. A test that no longer ends is red too.
	test := exec.CommandContext(ctx, "go", "test", "-overlay", overlay, "-vet=off", "-count=1", "-timeout=120s", "-run", m.run, m.pkg)
	said, err := test.CombinedOutput()
	switch {
	case strings.Contains(string(said), "no tests to run"), strings.Contains(string(said), "[build failed]"):
		return broken, string(said)
	case err == nil:
		return survived, string(said)
	}
	return killed, string(said)
}

// overlay writes the mutated files and the overlay that names them, and returns the packages that they are in.
func (m mutant) overlay(dir string) (path string, packages []string, err error) {
	texts := map[string]string{}
	for _, e := range m.edits {
		file, err := filepath.Abs(e.file)
		if err != nil {
			return "", nil, err
		}
		if texts[file] == "" {
			text, err := os.ReadFile(file)
			if err != nil {
				return "", nil, err
			}
			texts[file] = string(text)
		}
		if n := strings.Count(texts[file], e.old); n != 1 {
			return "", nil, fmt.Errorf("%s has this %d times, not once:\n%s", e.file, n, e.old)
		}
		texts[file] = strings.Replace(texts[file], e.old, e.new, 1)
		if strings.HasSuffix(file, ".go") {
			packages = append(packages, "./"+filepath.Dir(e.file))
		}
	}
	replace := map[string]string{}
	for file, text := range texts {
		replace[file] = filepath.Join(dir, fmt.Sprintf("%d_%s", len(replace), filepath.Base(file)))
		if err := os.WriteFile(replace[file], []byte(text), 0o600); err != nil {
			return "", nil, err
		}
	}
	spec, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", nil, err
	}
	path = filepath.Join(dir, "overlay.json")
	return path, packages, os.WriteFile(path, spec, 0o600)
}
