package main

import (
	"encoding/json"
	"fmt"
	"io"
	"runtime"
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

func spreadOf(list ...float64) spread {
	if len(list) == 0 {
		return spread{}
	}
	list = slices.Clone(list)
	sort.Float64s(list)
	middle := list[len(list)/2]
	if len(list)%2 == 0 {
		middle = (middle + list[len(list)/2-1]) / 2
	}
	return spread{Median: middle, Min: list[0], Max: list[len(list)-1]}
}

// contestReport is one contest's rounds: the rate with its spread, and medians of what an operation costs.
type contestReport struct {
	Rate       spread  `json:"rate"`
	Client     float64 `json:"client_cpu_us_per_op"`
	Server     float64 `json:"server_cpu_us_per_op"`
	Commits    float64 `json:"commits_per_op"`
	Trips      float64 `json:"round_trips_per_op"`
	Statements float64 `json:"statements_per_op"`
	WAL        float64 `json:"wal_bytes_per_op"`
}

// targetReport is a figure beside what we ask of it.
type targetReport struct {
	spread
	Gate    float64 `json:"gate,omitempty"`
	Goal    float64 `json:"goal,omitempty"`
	GateMet bool    `json:"gate_met"`
	GoalMet bool    `json:"goal_met"`
}

// report is what a bench prints.
type report struct {
	results map[string][]result
	figures map[string]spread
	// details are what belongs to no target.
	details map[string]spread
}

func newReport() *report {
	return &report{results: map[string][]result{}, figures: map[string]spread{}, details: map[string]spread{}}
}

// compare makes the ratios of contests. Each round's operands ran one after the other, so a ratio is made of each round,
// and the median is of those.
func (r *report) compare() {
	for _, t := range targets {
		if of, over := r.results[t.of], r.results[t.over]; len(of) > 0 && len(over) > 0 {
			r.figures[t.key] = ratioOf(of, over)
		}
	}
}

func ratioOf(of, over []result) spread {
	var list []float64
	for i := range min(len(of), len(over)) {
		list = append(list, of[i].Rate/over[i].Rate)
	}
	return spreadOf(list...)
}

func (r *report) contests() map[string]contestReport {
	out := map[string]contestReport{}
	for name, rounds := range r.results {
		pick := func(f func(result) float64) spread {
			var list []float64
			for _, one := range rounds {
				list = append(list, f(one))
			}
			return spreadOf(list...)
		}
		out[name] = contestReport{
			Rate:   pick(func(x result) float64 { return x.Rate }),
			Client: pick(func(x result) float64 { return x.Client }).Median, Server: pick(func(x result) float64 { return x.Server }).Median,
			Commits: pick(func(x result) float64 { return x.Commits }).Median, Trips: pick(func(x result) float64 { return x.Trips }).Median,
			Statements: pick(func(x result) float64 { return x.Statements }).Median, WAL: pick(func(x result) float64 { return x.WAL }).Median,
		}
	}
	return out
}

func (r *report) targets() map[string]targetReport {
	out := map[string]targetReport{}
	for _, t := range targets {
		if s, ok := r.figures[t.key]; ok {
			out[t.key] = targetReport{spread: s, Gate: t.gate, Goal: t.goal, GateMet: t.met(s.Median, t.gate), GoalMet: t.met(s.Median, t.goal)}
		}
	}
	return out
}

// missed are the gates that are not met.
func (r *report) missed() []string {
	var list []string
	for _, t := range targets {
		if s, ok := r.figures[t.key]; ok && t.gate != 0 && !t.met(s.Median, t.gate) {
			list = append(list, t.key)
		}
	}
	return list
}

// MarshalJSON puts each figure's median at the top, under its key; the spreads, with gates and goals, are under targets.
func (r *report) MarshalJSON() ([]byte, error) {
	out := map[string]any{
		"targets": r.targets(), "contests": r.contests(), "details": r.details,
		"machine": map[string]any{"cpus": runtime.NumCPU(), "go": runtime.Version()},
	}
	for key, s := range r.figures {
		out[key] = s.Median
	}
	return json.Marshal(out)
}

func (r *report) print(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(t, "CONTEST\tPER SECOND\tMIN\tMAX\tCLIENT µs\tSERVER µs\tROUND TRIPS\tSTATEMENTS\tCOMMITS\tWAL BYTES")
	contests := r.contests()
	for _, name := range r.contestNames() {
		x := contests[name]
		fmt.Fprintf(t, "%s\t%.0f\t%.0f\t%.0f\t%.0f\t%.0f\t%.2f\t%.2f\t%.2f\t%.0f\n",
			name, x.Rate.Median, x.Rate.Min, x.Rate.Max, x.Client, x.Server, x.Trips, x.Statements, x.Commits, x.WAL)
	}
	fmt.Fprintln(t, "\nFIGURE\tMEDIAN\tMIN\tMAX\tGATE\tGOAL\t")
	for _, one := range targets {
		s, ok := r.figures[one.key]
		if !ok {
			continue
		}
		gate, goal := "", ""
		if one.gate != 0 {
			gate, goal = fmt.Sprintf("%.2f", one.gate), fmt.Sprintf("%.2f", one.goal)
		}
		fmt.Fprintf(t, "%s\t%.2f\t%.2f\t%.2f\t%s\t%s\t%s\n", one.key, s.Median, s.Min, s.Max, gate, goal, one.verdict(s.Median))
	}
	if len(r.details) > 0 {
		fmt.Fprintln(t, "\nDETAIL\tMEDIAN\tMIN\tMAX")
		for _, key := range sortedKeys(r.details) {
			fmt.Fprintf(t, "%s\t%.2f\t%.2f\t%.2f\n", key, r.details[key].Median, r.details[key].Min, r.details[key].Max)
		}
	}
	return t.Flush()
}

func (t target) verdict(value float64) string {
	switch {
	case t.gate == 0:
		return ""
	case t.met(value, t.goal):
		return "goal met"
	case t.met(value, t.gate):
		return "gate met"
	}
	return "MISSED"
}

// contestNames are those that ran, in the order of a round, and then what the full run made of them.
func (r *report) contestNames() []string {
	var names []string
	for _, c := range all() {
		if _, ok := r.results[c.name]; ok {
			names = append(names, c.name)
		}
	}
	for _, name := range sortedKeys(r.results) {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}
