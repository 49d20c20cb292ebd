package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// The measurement of memory starts this program as a worker.
func TestMain(m *testing.M) {
	if url := os.Getenv(workerEnv); url != "" {
		if err := beWorker(context.Background(), url, os.Getenv(heapEnv), os.Stdin); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// Every contest and every measurement works, in a tiny form whose figures mean nothing, and the report has a figure for
// each key that other tools read.
func TestBench_EveryContestAndMeasurementWorks(t *testing.T) {
	b, err := start(t.Context(), options{careless: true, rounds: 1, scale: 0.002})
	require.NoError(t, err)
	defer b.close()
	r, err := b.measure(t.Context())
	require.NoError(t, err)
	for _, c := range all() {
		require.Len(t, r.results[c.name], 1, c.name)
		require.Positive(t, r.results[c.name][0].Rate, c.name)
	}
	text, err := json.Marshal(r)
	require.NoError(t, err)
	var got map[string]any
	require.NoError(t, json.Unmarshal(text, &got))
	for _, target := range targets {
		if target.key != "hot_share" { // of what PostgreSQL's statistics have seen, for which nobody waits here
			require.IsType(t, 0.0, got[target.key], target.key)
		}
	}

	path := filepath.Join(t.TempDir(), "rates.svg")
	require.NoError(t, r.plot(path))
	svg, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Contains(t, string(svg), "statement step")
}

// A gate is missed when the median is on its wrong side, whichever that is.
func TestReport_SaysWhichGatesAreMissed(t *testing.T) {
	r := newReport()
	r.results["river"] = []result{{Rate: 100}, {Rate: 200}, {Rate: 100}}
	r.results["delivery"] = []result{{Rate: 50}, {Rate: 20}, {Rate: 45}} // 0.5, 0.1 and 0.45 of its own round
	r.compare()
	r.figures["heartbeat_ms_10k"], r.figures["memory_mb"] = spreadOf(151), spreadOf(149, 10, 170)
	require.Equal(t, spread{Median: 0.45, Min: 0.1, Max: 0.5}, r.figures["delivery_vs_river"])
	require.Equal(t, []string{"heartbeat_ms_10k"}, r.missed())
	r.figures["delivery_vs_river"] = spreadOf(0.39)
	require.Equal(t, []string{"delivery_vs_river", "heartbeat_ms_10k"}, r.missed())
}
