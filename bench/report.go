package main

import (
	"fmt"
	"io"
	"slices"
	"sort"
	"text/tabwriter"
)

// spread is the median of some rounds, with the ends.
type spread struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

func spreadOf(list []float64) spread {
	if len(list) == 0 {
		return spread{}
	}
	list = slices.Clone(list)
	sort.Float64s(list)
	return spread{Median: list[len(list)/2], Min: list[0], Max: list[len(list)-1]}
}

// contestReport is one contest's rounds.
type contestReport struct {
	Rate    spread  `json:"rate"`
	Client  float64 `json:"client_cpu_us_per_op"`
	Server  float64 `json:"server_cpu_us_per_op"`
	Commits float64 `json:"commits_per_op"`
	WAL     float64 `json:"wal_bytes_per_op"`
}

// ratio is a median over a median, with what we ask of it.
type ratio struct {
	key, of, over string
	gate, goal    float64
}

var ratios = []ratio{
	{"delivery_vs_river", "delivery", "river", 0.40, 0.60},
	{"bulk_vs_river", "bulk", "river", 1.20, 2.0},
	{"live_step_vs_floor", "live step", "floor pipelined", 0, 0},
	{"statement_step_vs_floor", "statement step", "floor pipelined", 0.42, 0.60},
	{"statement_step_vs_river_resumable", "statement step", "river resumable", 1.5, 2.0},
}

// report is what a bench prints.
type report struct {
	Ratios   map[string]float64       `json:"ratios"`
	Contests map[string]contestReport `json:"contests"`
	More     map[string]float64       `json:"more,omitempty"`
}

func newReport(results map[string][]result) *report {
	r := &report{Ratios: map[string]float64{}, Contests: map[string]contestReport{}, More: map[string]float64{}}
	for name, rounds := range results {
		pick := func(f func(result) float64) []float64 {
			var out []float64
			for _, one := range rounds {
				out = append(out, f(one))
			}
			return out
		}
		r.Contests[name] = contestReport{
			Rate: spreadOf(pick(func(x result) float64 { return x.Rate })), Client: spreadOf(pick(func(x result) float64 { return x.Client })).Median,
			Server:  spreadOf(pick(func(x result) float64 { return x.Server })).Median,
			Commits: spreadOf(pick(func(x result) float64 { return x.Commits })).Median, WAL: spreadOf(pick(func(x result) float64 { return x.WAL })).Median,
		}
	}
	for _, x := range ratios {
		of, over := r.Contests[x.of], r.Contests[x.over]
		if of.Rate.Median > 0 && over.Rate.Median > 0 {
			r.Ratios[x.key] = of.Rate.Median / over.Rate.Median
		}
	}
	return r
}

func (r *report) print(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(t, "CONTEST\t/S\tMIN\tMAX\tCLIENT µs\tSERVER µs\tCOMMITS\tWAL bytes")
	for _, c := range all() {
		if x, ok := r.Contests[c.name]; ok {
			fmt.Fprintf(t, "%s\t%.0f\t%.0f\t%.0f\t%.0f\t%.0f\t%.2f\t%.0f\n", c.name, x.Rate.Median, x.Rate.Min, x.Rate.Max, x.Client, x.Server, x.Commits, x.WAL)
		}
	}
	fmt.Fprintln(t, "\nRATIO\t\tGATE\tGOAL")
	for _, x := range ratios {
		if v, ok := r.Ratios[x.key]; ok {
			fmt.Fprintf(t, "%s\t%.2f\t%.2f\t%.2f\n", x.key, v, x.gate, x.goal)
		}
	}
	for _, k := range slices.Sorted(func(yield func(string) bool) {
		for k := range r.More {
			if !yield(k) {
				return
			}
		}
	}) {
		fmt.Fprintf(t, "%s\t%.2f\n", k, r.More[k])
	}
	return t.Flush()
}
