// Package metrics turns what a process of the fleet observes into Prometheus metrics. docs/telemetry.md lists them.
package metrics

import (
	"context"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/weirqueue/weir/jobs"
	"github.com/weirqueue/weir/workers"
)

// Metrics is an Observer. No label holds an id, an address or a text: their number is bounded by kinds, channels and
// codes.
type Metrics struct {
	registry *prometheus.Registry

	claims, notClaimed, tries, codes, lost, doubts, reaped *prometheus.CounterVec
	misconfigured                                          *prometheus.CounterVec
	left, rung, canceledInRiver, cleaned, resetsClosed     prometheus.Counter
	beats                                                  *prometheus.CounterVec
	beatSeconds, waited                                    prometheus.Histogram
	trySeconds                                             *prometheus.HistogramVec
	upkeep                                                 *prometheus.CounterVec
	upkeepLast, oldestDue, dbopsLast                       prometheus.Gauge
}

// New makes the metrics in a registry of their own, with those of the Go runtime and the process. held says how many
// runs this process owns now; it may be nil.
func New(held func() int) *Metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "weir", Name: name, Help: help}, labels)
	}
	one := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Namespace: "weir", Name: name, Help: help})
	}
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Namespace: "weir", Name: name, Help: help})
	}
	seconds := []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300}
	m := &Metrics{
		registry:        prometheus.NewRegistry(),
		claims:          counter("runs_claimed_total", "Runs that this process became the owner of.", "kind"),
		notClaimed:      counter("runs_not_claimed_total", "Doorbells that rang for a run which this process did not claim.", "kind", "reason"),
		tries:           counter("tries_ended_total", "Tries that ended, by how.", "kind", "how", "status"),
		codes:           counter("try_errors_total", "Tries that did not succeed, by error code.", "kind", "code"),
		lost:            counter("leases_lost_total", "Writes that were refused because the run is not this process's any more.", "kind", "write"),
		doubts:          counter("doubts_resolved_total", "Writes whose answer was lost, by what had happened.", "kind", "verdict"),
		reaped:          counter("runs_reaped_total", "Leases that had run out and that this process ended.", "kind", "status"),
		misconfigured:   counter("misconfigured_total", "Tries that a provider refused because of our own settings.", "channel", "code"),
		left:            one("leases_left_total", "Runs that a shutdown left to their leases."),
		rung:            one("doorbells_rung_total", "Doorbells rung again for runs that were due."),
		canceledInRiver: one("runs_canceled_in_river_total", "Runs canceled because their River job was."),
		cleaned:         one("runs_cleaned_total", "Finished runs that were deleted."),
		beats:           counter("heartbeat_renewals_total", "Runs in heartbeats, by result.", "result"),
		upkeep:          counter("upkeep_rounds_total", "Rounds of reaping and sweeping, by result.", "result"),
		upkeepLast:      gauge("upkeep_last_success_timestamp_seconds", "When a round of reaping and sweeping last worked."),
		dbopsLast:       gauge("dbops_reaper_last_success_timestamp_seconds", "When the dbops-reaper last worked in this process."),
		resetsClosed:    one("resets_closed_total", "Branch resets that nobody worked and that upkeep ended."),
		oldestDue:       gauge("oldest_due_seconds", "For how long the run that waits longest has been due."),
		beatSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: "weir", Name: "heartbeat_seconds", Help: "How long one heartbeat took.", Buckets: seconds,
		}),
		waited: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: "weir", Name: "run_age_at_claim_seconds", Help: "How old runs were when they were claimed.", Buckets: seconds,
		}),
		trySeconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "weir", Name: "try_seconds", Help: "How long tries took.", Buckets: seconds,
		}, []string{"kind", "how"}),
	}
	m.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		m.claims, m.notClaimed, m.tries, m.codes, m.lost, m.doubts, m.reaped, m.misconfigured, m.left, m.rung,
		m.canceledInRiver, m.cleaned, m.beats, m.upkeep, m.upkeepLast, m.dbopsLast, m.resetsClosed, m.oldestDue, m.beatSeconds, m.waited, m.trySeconds)
	m.initialise()
	if held != nil {
		m.registry.MustRegister(prometheus.NewGaugeFunc(
			prometheus.GaugeOpts{Namespace: "weir", Name: "runs_held", Help: "Runs that this process owns now."},
			func() float64 { return float64(held()) }))
	}
	return m
}

// initialise makes the series of deliveries whose labels are known: a rate misses the first event of one that was not
// there before.
func (m *Metrics) initialise() {
	const kind = jobs.KindDelivery
	m.claims.WithLabelValues(kind)
	for _, write := range []string{"succeed", "refuse", "fail_try", "snooze", "release"} {
		m.lost.WithLabelValues(kind, write)
	}
	for _, verdict := range []string{"still_owner", "finished", "lost"} {
		m.doubts.WithLabelValues(kind, verdict)
	}
	for _, status := range []jobs.Status{jobs.StatusPending, jobs.StatusFailed, jobs.StatusDead} {
		m.reaped.WithLabelValues(kind, string(status))
	}
	for _, result := range []string{"renewed", "locked", "lost", "overdue", "failed"} {
		m.beats.WithLabelValues(result)
	}
	for _, end := range [][2]string{{"succeeded", "sent"}, {"refused", "failed"}, {"failed", "pending"}, {"failed", "dead"}, {"snoozed", "pending"}, {"released", "pending"}} {
		m.tries.WithLabelValues(kind, end[0], end[1])
	}
}

// Handler serves the metrics.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{})
}

// Observe counts an event.
func (m *Metrics) Observe(_ context.Context, event workers.Event) {
	switch e := event.(type) {
	case workers.RunClaimed:
		m.claims.WithLabelValues(e.Kind).Inc()
		m.waited.Observe(e.Waited.Seconds())
	case workers.RunNotClaimed:
		m.notClaimed.WithLabelValues(e.Kind, e.Reason).Inc()
	case workers.TryEnded:
		m.tries.WithLabelValues(e.Kind, e.How, string(e.Status)).Inc()
		m.trySeconds.WithLabelValues(e.Kind, e.How).Observe(e.Took.Seconds())
		if e.Code != "" {
			m.codes.WithLabelValues(e.Kind, e.Code).Inc()
		}
	case workers.LeaseLost:
		m.lost.WithLabelValues(e.Kind, e.Write).Inc()
	case workers.LeaseLeft:
		m.left.Inc()
	case workers.DoubtResolved:
		m.doubts.WithLabelValues(e.Kind, e.Verdict).Inc()
	case workers.Heartbeat:
		m.heartbeat(e)
	case workers.RunReaped:
		m.reaped.WithLabelValues(e.Kind, string(e.Status)).Inc()
	case workers.DoorbellsRung:
		m.rung.Add(float64(e.Runs))
	case workers.RunCanceledInRiver:
		m.canceledInRiver.Inc()
	case workers.MaintenanceDone:
		m.maintenance(e)
	case workers.RunsCleaned:
		m.cleaned.Add(float64(e.Runs))
	case workers.ResetsTended:
		m.resetsClosed.Add(float64(e.Closed))
		m.rung.Add(float64(e.Rang))
		if e.Periodic && e.Err == nil {
			m.dbopsLast.SetToCurrentTime()
		}
	case workers.Misconfigured:
		m.misconfigured.WithLabelValues(e.Channel, e.Code).Inc()
	}
}

func (m *Metrics) heartbeat(e workers.Heartbeat) {
	m.beatSeconds.Observe(e.Took.Seconds())
	for result, n := range map[string]int{"renewed": e.Renewed, "locked": e.Locked, "lost": e.Lost, "overdue": e.Overdue} {
		m.beats.WithLabelValues(result).Add(float64(n))
	}
	if e.Err != nil {
		m.beats.WithLabelValues("failed").Inc()
	}
}

func (m *Metrics) maintenance(e workers.MaintenanceDone) {
	if e.Err != nil {
		m.upkeep.WithLabelValues("failed").Inc()
		return
	}
	m.upkeep.WithLabelValues("ok").Inc()
	m.upkeepLast.SetToCurrentTime()
	m.oldestDue.Set(e.OldestDue.Seconds())
}
