package drill_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/internal/drill"
)

// The drill's workers are this program again.
func TestMain(m *testing.M) {
	if drill.IsWorker() {
		if err := drill.RunWorker(context.Background(), drill.Subjects(0)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

func options(t *testing.T, d time.Duration) (drill.Options, *bytes.Buffer) {
	t.Helper()
	var said bytes.Buffer
	logs, err := os.Create(filepath.Join(t.TempDir(), "workers.log"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = logs.Close() })
	return drill.Options{
		Duration: d, Workers: 4, Lease: 2 * time.Second, Seed: 20, HistoryFile: filepath.Join(t.TempDir(), "history.jsonl"),
		Again: "worker drill", Progress: &said, WorkerLogs: logs,
	}, &said
}

// children are the worker processes that this one has.
func children(t *testing.T) int {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	list, err := filepath.Glob("/proc/[0-9]*/stat")
	require.NoError(t, err)
	n := 0
	for _, file := range list {
		stat, err := os.ReadFile(file)
		if err != nil {
			continue // it has just ended
		}
		_, rest, _ := strings.Cut(string(stat), ") ")
		if f := strings.Fields(rest); len(f) > 1 && f[1] == fmt.Sprint(os.Getpid()) {
			if exe, err := os.Readlink(filepath.Dir(file) + "/exe"); err == nil && exe == self {
				n++
			}
		}
	}
	return n
}

// Everything that Weir promises, under real faults, for a short time.
func TestDrill_EveryPromiseIsKeptUnderFaults(t *testing.T) {
	opts, said := options(t, 15*time.Second)
	report, err := drill.Run(t.Context(), opts, drill.Subjects(opts.Seed))
	require.NoError(t, err, said)
	out, err := json.MarshalIndent(report, "", "  ")
	require.NoError(t, err)
	t.Logf("%s", out)
	require.True(t, report.OK, "%s\n%s", out, said)
	require.Zero(t, report.LostRuns+report.DuplicateEffects+report.StaleCommits)
	require.Zero(t, children(t))

	kept, err := os.ReadFile(report.History)
	require.NoError(t, err)
	lines := bytes.Count(kept, []byte("\n"))
	require.Greater(t, lines, report.Runs+report.Steps, "every change is in the history")
}

// Ctrl-C, and a process that is stopped at that moment.
func TestDrill_LeavesNoProcessBehindWhenItIsInterrupted(t *testing.T) {
	opts, _ := options(t, time.Minute)
	opts.Only = []string{"stop"}
	ctx, cancel := context.WithTimeout(t.Context(), 6*time.Second)
	defer cancel()
	_, err := drill.Run(ctx, opts, drill.Subjects(opts.Seed))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Zero(t, children(t))
}
