package metrics

import (
	"errors"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/jobs"
	"github.com/weirqueue/weir/workers"
)

var run = jobs.RunID{0xab, 0xcd, 0xef, 1, 2, 3}

// oneOfEach has every field set that could end up in a label.
var oneOfEach = []workers.Event{
	workers.RunClaimed{Run: run, Kind: "delivery", Attempt: 987_654, Reaps: 1, Failures: 1, Waited: time.Second},
	workers.RunNotClaimed{Run: run, Kind: "delivery", Reason: "owned"},
	workers.TryEnded{Run: run, Kind: "delivery", Channel: "email", Attempt: 987_654, Status: jobs.StatusSent, How: "failed", Code: "smtp_451", Took: time.Second},
	workers.LeaseLost{Run: run, Kind: "delivery", Attempt: 987_654, Write: "succeed"},
	workers.LeaseLeft{Run: run, Kind: "delivery", Attempt: 987_654},
	workers.DoubtResolved{Run: run, Kind: "delivery", Verdict: "lost"},
	workers.Heartbeat{Renewed: 1, Locked: 1, Lost: 1, Overdue: 1, Took: time.Second, Err: errors.New("secret-error")},
	workers.RunReaped{Run: run, Kind: "delivery", Status: jobs.StatusPending, Attempt: 987_654, Reaps: 1, Owner: "host-7:1:abc"},
	workers.DoorbellsRung{Runs: 3},
	workers.RunCanceledInRiver{Run: run},
	workers.MaintenanceDone{Took: time.Second, OldestDue: time.Minute, OldestQueue: "q"},
	workers.MaintenanceDone{Took: time.Second, Err: errors.New("secret-error")},
	workers.RunsCleaned{Runs: 5, Took: time.Second},
	workers.ResetsTended{Periodic: true, Took: time.Second, Rang: 1, Closed: 1},
	workers.ResetsTended{Err: errors.New("secret-error")},
	workers.Misconfigured{Run: run, Channel: "email", Code: "smtp_535"},
}

func TestOneOfEach_HoldsEveryEvent(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile("../../workers/observer.go")
	require.NoError(t, err)
	seen := map[string]bool{}
	for _, e := range oneOfEach {
		seen[e.EventName()] = true
	}
	for _, m := range regexp.MustCompile(`EventName\(\) string \{ return "(\w+)" \}`).FindAllStringSubmatch(string(source), -1) {
		require.True(t, seen[m[1]], "an event %s is observed in these tests", m[1])
	}
}

func TestMetrics_EachIsDocumentedWithItsLabelsAndNoOther(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/telemetry.md")
	require.NoError(t, err)
	documented := map[string][]string{} // labels by name
	for _, row := range regexp.MustCompile("(?m)^\\| `(weir_\\w+)` \\| (\\w+) \\| ([^|]*)\\|").FindAllStringSubmatch(string(text), -1) {
		var labels []string
		for _, m := range regexp.MustCompile("`(\\w+)`").FindAllStringSubmatch(row[3], -1) {
			labels = append(labels, m[1])
		}
		slices.Sort(labels)
		documented[row[1]] = append([]string{row[2]}, labels...)
	}
	m := New(func() int { return 7 })
	for _, e := range oneOfEach {
		m.Observe(t.Context(), e)
	}
	families, err := m.registry.Gather()
	require.NoError(t, err)
	got := map[string][]string{}
	for _, f := range families {
		if !strings.HasPrefix(f.GetName(), "weir_") {
			continue
		}
		row := []string{strings.ToLower(f.GetType().String())}
		for _, l := range f.GetMetric()[0].GetLabel() {
			row = append(row, l.GetName())
		}
		got[f.GetName()] = row
		if documented[f.GetName()] == nil {
			t.Errorf("docs/telemetry.md has no row for the metric %s", f.GetName())
		}
	}
	require.Equal(t, got, documented)
}

// A label that names a run, an owner or an attempt would make a series for each of them.
func TestMetrics_NoLabelNamesARunAnOwnerAnAttemptOrAnError(t *testing.T) {
	t.Parallel()
	m := New(nil)
	for _, e := range oneOfEach {
		m.Observe(t.Context(), e)
	}
	families, err := m.registry.Gather()
	require.NoError(t, err)
	uuids := regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-`)
	for _, f := range families {
		for _, metric := range f.GetMetric() {
			for _, l := range metric.GetLabel() {
				for _, word := range []string{run.String(), "987654", "host-7", "secret-error"} {
					require.NotContains(t, l.GetValue(), word, "%s{%s}", f.GetName(), l.GetName())
				}
				require.NotRegexp(t, uuids, l.GetValue(), "%s{%s}", f.GetName(), l.GetName())
			}
		}
	}
}

func TestMetrics_CountWhatHappened(t *testing.T) {
	t.Parallel()
	m := New(func() int { return 7 })
	for range 2 {
		for _, e := range oneOfEach {
			m.Observe(t.Context(), e)
		}
	}
	families, err := m.registry.Gather()
	require.NoError(t, err)
	got := map[string]float64{}
	for _, f := range families {
		for _, metric := range f.GetMetric() {
			name := f.GetName()
			for _, l := range metric.GetLabel() {
				name += " " + l.GetValue()
			}
			switch {
			case metric.GetCounter() != nil:
				got[name] = metric.GetCounter().GetValue()
			case metric.GetGauge() != nil:
				got[name] = metric.GetGauge().GetValue()
			case metric.GetHistogram() != nil:
				got[name] = float64(metric.GetHistogram().GetSampleCount())
			}
		}
	}
	for name, want := range map[string]float64{
		"weir_runs_claimed_total delivery": 2, "weir_run_age_at_claim_seconds": 2, "weir_runs_not_claimed_total delivery owned": 2,
		"weir_tries_ended_total failed delivery sent": 2, "weir_try_errors_total smtp_451 delivery": 2, "weir_try_seconds failed delivery": 2,
		"weir_leases_lost_total delivery succeed": 2, "weir_leases_left_total": 2, "weir_doubts_resolved_total delivery lost": 2,
		"weir_heartbeat_renewals_total renewed": 2, "weir_heartbeat_renewals_total failed": 2, "weir_heartbeat_seconds": 2,
		"weir_runs_reaped_total delivery pending": 2, "weir_doorbells_rung_total": 8, "weir_runs_canceled_in_river_total": 2,
		"weir_upkeep_rounds_total ok": 2, "weir_upkeep_rounds_total failed": 2, "weir_oldest_due_seconds": 60,
		"weir_runs_cleaned_total": 10, "weir_misconfigured_total email smtp_535": 2, "weir_runs_held": 7,
	} {
		require.Contains(t, got, name)
		require.InDelta(t, want, got[name], 0, name)
	}
	require.InDelta(t, float64(time.Now().Unix()), got["weir_upkeep_last_success_timestamp_seconds"], 60)
}
