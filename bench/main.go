// Command bench compares Weir with its peers in one run, on one private PostgreSQL: interleaved rounds, medians, ratios.
// Absolute rates hold on the machine that ran it; quote ratios. See docs/benchmarks.md.
//
//	go -C bench run . [--json] [--quick]
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"runtime/pprof"
	"strings"
)

func main() {
	asJSON := flag.Bool("json", false, "print one JSON object")
	quick := flag.Bool("quick", false, "fewer rounds and smaller ones, under five minutes")
	rounds := flag.Int("rounds", 0, "how many rounds; 0 is 7, or 3 with --quick")
	profile := flag.String("cpuprofile", "", "write a CPU profile of this process")
	statements := flag.Bool("statements", false, "also say which statements PostgreSQL spent its time on (costs some speed)")
	only := flag.String("only", "", "only contests whose name contains this")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	slog.SetDefault(slog.New(slog.DiscardHandler))
	if *profile != "" {
		f, err := os.Create(*profile)
		if err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			os.Exit(1)
		}
		defer f.Close()
		if err := pprof.StartCPUProfile(f); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			os.Exit(1)
		}
		defer pprof.StopCPUProfile()
	}
	if err := run(ctx, *asJSON, *quick, *statements, *rounds, *only); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, asJSON, quick, statements bool, rounds int, only string) error {
	b, err := start(ctx, quick, statements)
	if err != nil {
		return err
	}
	defer b.close()
	switch {
	case rounds > 0:
	case quick:
		rounds = 3
	default:
		rounds = 7
	}
	var contests []contest
	for _, c := range all() {
		if strings.Contains(c.name, only) {
			contests = append(contests, c)
		}
	}
	results := map[string][]result{}
	for round := range rounds {
		for _, c := range contests {
			r, err := b.round(ctx, c)
			if err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			results[c.name] = append(results[c.name], r)
			fmt.Fprintf(os.Stderr, "round %d of %d: %-28s %9.0f /s\n", round+1, rounds, c.name, r.Rate)
		}
	}
	report := newReport(results)
	if only == "" {
		if err := b.more(ctx, report); err != nil {
			return err
		}
	}
	if !asJSON {
		return report.print(os.Stdout)
	}
	enc := json.NewEncoder(os.Stdout)
	enc.SetIndent("", "  ")
	return enc.Encode(report)
}
