// Command bench compares Weir with its peers in one run, on one private PostgreSQL: interleaved rounds, medians, ratios.
// Absolute rates hold on the machine that ran it; quote ratios. See docs/benchmarks.md.
//
//	go -C bench run . [--quick] [--json] [--gates] [--plot FILE]
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime/pprof"
	"strings"
)

func main() {
	if url := os.Getenv(workerEnv); url != "" {
		if err := beWorker(context.Background(), url, os.Getenv(heapEnv), os.Stdin); err != nil {
			fmt.Fprintln(os.Stderr, "bench: worker:", err)
			os.Exit(1)
		}
		return
	}
	var (
		opts    options
		out     output
		asJSON  = flag.Bool("json", false, "print one JSON object")
		gates   = flag.Bool("gates", false, "end with status 3 when a gate is missed")
		profile = flag.String("cpuprofile", "", "write a CPU profile of this process to `FILE`")
	)
	flag.BoolVar(&opts.quick, "quick", false, "fewer rounds and smaller ones, nothing that takes long: under five minutes")
	flag.BoolVar(&opts.statements, "statements", false, "also say which statements PostgreSQL spent its time on (costs some speed)")
	flag.IntVar(&opts.rounds, "rounds", 0, "how many rounds; 0 is 7, or 3 with --quick")
	flag.StringVar(&opts.only, "only", "", "only contests and measurements whose name contains one of these `WORDS`, separated by commas")
	flag.StringVar(&out.plot, "plot", "", "draw the rates to `FILE`, an SVG")
	flag.StringVar(&opts.heap, "heap", "", "in the full run, write the heap profile of a worker with a million deliveries waiting to `FILE`")
	flag.Float64Var(&opts.scale, "scale", 1, "multiply all numbers of operations and rows, to try something out")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	slog.SetDefault(slog.New(slog.DiscardHandler))
	out.json, out.progress = *asJSON, os.Stderr

	status, err := profiled(*profile, func() (int, error) { return run(ctx, opts, out, *gates) })
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		status = 1
	}
	stop()
	os.Exit(status) //nolint:gocritic // stop was called
}

// profiled runs do under the CPU profiler, where a file is named.
func profiled(path string, do func() (int, error)) (status int, err error) {
	if path == "" {
		return do()
	}
	f, err := os.Create(path)
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := pprof.StartCPUProfile(f); err != nil {
		return 1, err
	}
	defer pprof.StopCPUProfile()
	return do()
}

// output is where a report goes.
type output struct {
	json     bool
	plot     string
	progress io.Writer
}

// gatesMissed is the exit status for --gates.
const gatesMissed = 3

func run(ctx context.Context, opts options, out output, gates bool) (status int, err error) {
	b, err := start(ctx, opts)
	if err != nil {
		return 1, err
	}
	defer b.close()
	b.progress = out.progress
	r, err := b.measure(ctx)
	if err != nil {
		return 1, err
	}
	if out.plot != "" {
		if err := r.plot(out.plot); err != nil {
			return 1, err
		}
	}
	if out.json {
		enc := json.NewEncoder(os.Stdout)
		enc.SetIndent("", "  ")
		err = enc.Encode(r)
	} else {
		err = r.print(os.Stdout)
	}
	if missed := r.missed(); gates && len(missed) > 0 {
		fmt.Fprintln(out.progress, "bench: gates missed:", strings.Join(missed, ", "))
		return gatesMissed, err
	}
	return 0, err
}
