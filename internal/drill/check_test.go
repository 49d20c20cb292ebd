package drill

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/jobs"
)

var began = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func at(s float64) time.Time { return began.Add(time.Duration(s * float64(time.Second))) }

func judged(t *testing.T, faults []Fault, takeovers ...takeover) *Report {
	t.Helper()
	r := &Report{}
	c := &checker{opts: Options{Lease: 2 * time.Second, Reaper: 500 * time.Millisecond}, faults: faults}
	for _, f := range faults {
		if f.What == faultRestart {
			c.outages = append(c.outages, f)
		}
	}
	c.takeovers(&RunRecord{ID: jobs.RunID{1}, Terminal: true, takeovers: takeovers}, r)
	return r
}

func TestCheck_RecoveryIsMeasuredFromTheFault(t *testing.T) {
	t.Parallel()
	kill := Fault{What: faultKill, Worker: "w1.1", From: at(10), Until: at(10.1)}
	lost := takeover{worker: "w1.1", since: at(9), alive: at(9), at: at(12.2), next: at(12.5)}
	r := judged(t, []Fault{kill}, lost)
	require.Empty(t, r.Broken)
	require.InDelta(t, 2.5, r.MaxRecoveryS, 0.01)
	require.InDelta(t, 2.5, r.MaxKillRecoveryS, 0.01)
	require.Equal(t, 1, r.Takeovers)

	late := lost
	late.next = at(13.7)
	require.Contains(t, strings.Join(judged(t, []Fault{kill}, late).Broken, "\n"), "3.7s after the fault")
	second := Fault{What: faultKill, Worker: "w2.1", From: at(12.4), Until: at(12.5)}
	r = judged(t, []Fault{kill, second}, late)
	require.Empty(t, r.Broken, "whoever heard the doorbell was killed, too")
	require.Zero(t, r.MaxKillRecoveryS, "it is not after SIGKILL alone")
	stop := kill
	stop.What = faultStop
	require.Empty(t, judged(t, []Fault{stop}, late).Broken, "a step's declared time is added for what is not a kill")
	late.next = at(16.7)
	require.NotEmpty(t, judged(t, []Fault{stop}, late).Broken)
	survived := late
	survived.alive = at(10.5)
	require.InDelta(t, 6.2, judged(t, []Fault{stop}, survived).MaxRecoveryS, 0.01, "it went on after the fault, and was lost by another one")
	outage := Fault{What: faultRestart, From: at(12), Until: at(15)}
	require.Empty(t, judged(t, []Fault{kill, outage}, late).Broken, "an outage of the database is nobody's recovery")
}

// A machine that stands still is no slow recovery.
func TestCheck_RecoveryIsMeasuredWithoutStalls(t *testing.T) {
	t.Parallel()
	s := &stalls{list: []span{{at(1), at(2)}, {at(10.5), at(11)}, {at(13.5), at(15)}}}
	require.Equal(t, 700*time.Millisecond, s.during(at(10), at(13.7)))
	require.Equal(t, 3*time.Second, s.total())
	r := &Report{}
	c := &checker{opts: Options{Lease: 2 * time.Second, Reaper: 500 * time.Millisecond}, faults: []Fault{{What: faultKill, Worker: "w1.1", From: at(10), Until: at(10.1)}}, stalls: s}
	c.takeovers(&RunRecord{ID: jobs.RunID{1}, Terminal: true, takeovers: []takeover{{worker: "w1.1", since: at(9), alive: at(9), at: at(12.2), next: at(13.7)}}}, r)
	require.Empty(t, r.Broken)
	require.InDelta(t, 3.0, r.MaxRecoveryS, 0.01)
}

func TestCheck_ATakeoverWithoutAFaultIsSeen(t *testing.T) {
	t.Parallel()
	lost := takeover{worker: "w1.1", since: at(9), alive: at(9), at: at(12.2), next: at(12.5)}
	require.Equal(t, 1, judged(t, nil, lost).Unprovoked)
	require.Equal(t, 1, judged(t, []Fault{{What: faultKill, Worker: "w2.1", From: at(10), Until: at(10)}}, lost).Unprovoked, "another worker's fault")
	require.Equal(t, 1, judged(t, []Fault{{What: faultKill, Worker: "w1.1", From: at(2), Until: at(3)}}, lost).Unprovoked, "before it owned the run")
	require.Zero(t, judged(t, []Fault{{What: faultLock, Worker: "w1.1", From: at(10), Until: at(11), Runs: []string{jobs.RunID{1}.String()}}}, lost).Unprovoked)
	require.Equal(t, 1, judged(t, []Fault{{What: faultLock, Worker: "w1.1", From: at(10), Until: at(11), Runs: []string{"another"}}}, lost).Unprovoked)
	lost.overdue = true
	require.Zero(t, judged(t, nil, lost).Unprovoked, "its step was hung")
}

func TestCheck_AShortLeaseIsAFaultWhereItsRowWasHeld(t *testing.T) {
	t.Parallel()
	run := &RunRecord{ID: jobs.RunID{1}, shortLeases: []shortLease{{stamped: at(10), written: at(10.4)}}}
	waited := func(f Fault) int { return (&checker{faults: []Fault{f}}).waited(run) }
	held := Fault{What: faultLock, Worker: "w1.1", From: at(9.9), Until: at(10.4), Runs: []string{"another", run.ID.String()}}
	require.Equal(t, 1, waited(held))
	before, after, other, stop := held, held, held, held
	before.Until, after.From, other.Runs, stop.What = at(10), at(10.4), []string{"another"}, faultStop
	for _, f := range []Fault{before, after, other, stop} {
		require.Zero(t, waited(f), "it waited for the machine only: %+v", f)
	}
}

func TestReport_TooLittleIsAFault(t *testing.T) {
	t.Parallel()
	r := &Report{Kills: 20, Stops: 20, Takeovers: 50, FenceRefusals: 19}
	r.prove(time.Minute)
	require.Len(t, r.Broken, 1)
	require.Contains(t, r.Broken[0], "19 fence refusals in 1m0s, and at least 20")
	r = &Report{Kills: 5, Stops: 5, Takeovers: 12, FenceRefusals: 5}
	r.prove(15 * time.Second)
	require.Empty(t, r.Broken)
	r = &Report{Kills: 39, Stops: 40, Takeovers: 100, FenceRefusals: 40}
	r.prove(2 * time.Minute)
	require.Len(t, r.Broken, 1)
}

func TestCommand_UnknownKindsAreRefused(t *testing.T) {
	t.Parallel()
	list, err := pick(Subjects(1), []string{"order"})
	require.NoError(t, err)
	require.Len(t, list, 1)
	_, err = pick(Subjects(1), []string{"delivery", "nothing"})
	require.ErrorContains(t, err, "--kind")
	require.ErrorContains(t, err, "one of delivery, order")
}

func TestReport_TooLittleIsNotCalledBroken(t *testing.T) {
	t.Parallel()
	r := &Report{Kills: 20, Stops: 20, Takeovers: 50}
	r.prove(time.Minute)
	var out strings.Builder
	require.NoError(t, r.Print(&out))
	require.Contains(t, out.String(), "\ntoo little landed to prove anything: 0 fence refusals in 1m0s")
	require.NotContains(t, out.String(), "BROKEN")
	require.Contains(t, r.verdict(), "nothing is broken")
	r.fault("run x is not terminal")
	require.Contains(t, r.verdict(), "not everything is as the contract says")
}

func TestWritable_BeforeTheDrill(t *testing.T) {
	t.Parallel()
	require.NoError(t, writable(""))
	require.NoError(t, writable(filepath.Join(t.TempDir(), "history.jsonl")))
	require.ErrorContains(t, writable(filepath.Join(t.TempDir(), "nowhere", "x")), "--history")
}
