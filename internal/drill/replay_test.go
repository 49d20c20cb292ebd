package drill

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/jobs"
)

const testLease = 2 * time.Second

// life writes a history as the triggers do.
type life struct {
	now     time.Time
	xid     uint64
	changes []change
	attempt int64
	state   string
	lease   *time.Time
	line    *time.Time
	reaps   int
	done    bool
	result  *string
	steps   map[int][2]any
}

func newLife() *life {
	l := &life{now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), steps: map[int][2]any{}}
	l.xid = 1
	l.add(change{What: "run", Op: "INSERT", Attempt: ptr(int64(0)), State: ptr("queued"), Reaps: ptr(0), Finished: ptr(false)})
	l.state = "queued"
	return l
}

func ptr[T any](v T) *T { return &v }

func (l *life) add(c change) {
	c.Seq, c.At, c.XID = int64(len(l.changes)+1), l.now, l.xid
	l.changes = append(l.changes, c)
}

// to changes the run in a transaction of its own.
func (l *life) to(worker, state string, raise int64, owned bool, more func(*change)) *life {
	l.now = l.now.Add(100 * time.Millisecond)
	l.xid++
	c := change{
		What: "run", Op: "UPDATE", Worker: worker, OldAttempt: ptr(l.attempt), Attempt: ptr(l.attempt + raise), OldState: ptr(l.state),
		State: ptr(state), OldLease: l.lease, OldDeadline: l.line, Reaps: ptr(l.reaps), OldFinished: ptr(l.done), Result: l.result,
	}
	if owned {
		c.Lease, c.Deadline = ptr(l.now.Add(testLease)), ptr(l.now.Add(3*time.Second))
	}
	c.Finished = ptr(strings.Contains("succeeded failed canceled", state))
	if *c.Finished {
		c.Result = ptr(state)
	}
	if more != nil {
		more(&c)
	}
	l.add(c)
	l.attempt, l.state, l.lease, l.line, l.reaps, l.done, l.result = *c.Attempt, *c.State, c.Lease, c.Deadline, *c.Reaps, *c.Finished, c.Result
	return l
}

func (l *life) claim(w string) *life { return l.to(w, "running", 1, true, nil) }

// step commits a step: fence, receipt and effect in one transaction.
func (l *life) step(w string, i int) *life {
	return l.to(w, "running", 0, true, nil).receipt(w, i, "ok", l.attempt).effect(w, i, l.attempt)
}

func (l *life) receipt(w string, i int, state string, attempt int64) *life {
	c := change{What: "receipt", Op: "INSERT", Worker: w, Step: ptr(i), Attempt: ptr(attempt), State: ptr(state)}
	if old, ok := l.steps[i]; ok {
		oldState, _ := old[0].(string)
		oldAttempt, _ := old[1].(int64)
		c.Op, c.OldState, c.OldAttempt = "UPDATE", ptr(oldState), ptr(oldAttempt)
	}
	l.steps[i] = [2]any{state, attempt}
	l.add(c)
	return l
}

func (l *life) effect(w string, i int, attempt int64) *life {
	l.add(change{What: "effect", Op: "INSERT", Worker: w, Step: ptr(i), Attempt: ptr(attempt)})
	return l
}

// reap is another worker's, after the lease.
func (l *life) reap(w string) *life {
	l.now = l.now.Add(testLease)
	return l.to(w, "running", 1, false, func(c *change) { c.Reaps = ptr(l.reaps + 1) })
}

func (l *life) succeed(w string) *life { return l.to(w, "succeeded", 0, false, nil) }

func (l *life) replayed() *RunRecord {
	r := newRun(jobs.RunID{1}, "k")
	r.replay(l.changes, testLease)
	return r
}

func TestReplay_AGoodLifeHasNoFault(t *testing.T) {
	t.Parallel()
	l := newLife().claim("a").step("a", 0)
	l.to("a", "running", 0, true, func(c *change) { c.Deadline = c.OldDeadline }) // a heartbeat
	l.to("a", "running", 0, true, nil).receipt("a", 1, "started", 1)
	l.reap("b").receipt("b", 1, "unknown", 1)
	l.to("b", "running", 0, false, nil) // the new doorbell is noted
	l.claim("b").receipt("b", 1, "started", 3)
	l.to("b", "running", 0, true, nil).receipt("b", 1, "ok", 3)
	l.to("b", "running", 1, false, nil) // released
	l.claim("c").to("c", "running", 1, true, nil)
	l.step("c", 2).succeed("c")
	r := l.replayed()
	require.Empty(t, r.faults)
	require.Zero(t, r.stale)
	require.True(t, r.Terminal)
	require.Equal(t, map[int]string{0: "ok", 1: "ok", 2: "ok"}, r.Receipts)
	require.Equal(t, map[int]int{1: 1}, r.Unknown)
	require.Len(t, r.takeovers, 1)
	require.Equal(t, "a", r.takeovers[0].worker)
	require.False(t, r.takeovers[0].next.IsZero())
	require.Empty(t, r.inDatabase(0).Faults)
	require.Empty(t, r.outside(1, 2, 1+r.Unknown[1]).Faults)
}

// Each is one thing that a stale owner, or a missing guard, would do.
func TestReplay_SeesWhatMayNotBe(t *testing.T) {
	t.Parallel()
	for want, play := range map[string]func() *life{
		"the attempt went from 1 back to 0":              func() *life { return newLife().claim("a").to("a", "running", -1, true, nil) },
		"claimed without a new attempt":                  func() *life { return newLife().to("a", "running", 0, true, nil) },
		"a owns it, and somebody else renewed it":        func() *life { return newLife().claim("a").to("b", "running", 0, true, nil) },
		"and somebody else ended that":                   func() *life { return newLife().claim("a").succeed("b") },
		"nobody owns it, and somebody wrote":             func() *life { return newLife().claim("a").reap("b").succeed("a") },
		"given away under an attempt that is still good": func() *life { return newLife().claim("a").to("a", "running", 0, false, nil) },
		"a terminal run was changed":                     func() *life { return newLife().claim("a").succeed("a").to("b", "failed", 0, false, nil) },
		"before its lease ran out": func() *life {
			return newLife().claim("a").to("b", "running", 1, false, func(c *change) { c.Reaps = ptr(1) })
		},
		"after its step's deadline":          lateBeat,
		"in a transaction without a fence":   func() *life { l := newLife().claim("a"); l.xid++; return l.receipt("a", 0, "ok", 1) },
		"was ok, and was changed":            func() *life { l := newLife().claim("a").step("a", 0); return l.step("a", 0) },
		"has attempt 7, the run has another": func() *life { return newLife().claim("a").receipt("a", 0, "started", 7) },
		"by somebody who did not own the run": func() *life {
			l := newLife().claim("a").to("a", "running", 0, true, nil)
			return l.receipt("b", 0, "ok", 1)
		},
		"was committed without its receipt":                    func() *life { return newLife().claim("a").effect("a", 0, 1) },
		"attempt 1, was committed without its receipt":         func() *life { return newLife().claim("a").reap("b").claim("b").step("b", 0).effect("a", 0, 1) },
		"change 3 by the parent: the run was deleted":          deleted,
		"the receipt of step 0 has attempt 1, the run has ano": func() *life { return newLife().claim("a").reap("b").claim("b").receipt("b", 0, "ok", 1) },
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			r := play().replayed()
			require.Contains(t, strings.Join(r.faults, "\n"), want)
		})
	}
}

func lateBeat() *life {
	l := newLife().claim("a")
	for range 40 {
		l.to("a", "running", 0, true, func(c *change) { c.Deadline = c.OldDeadline })
	}
	return l
}

func deleted() *life {
	l := newLife().claim("a")
	l.add(change{What: "run", Op: "DELETE"})
	return l
}

func TestReplay_CountsLeasesThatWereStampedTooEarly(t *testing.T) {
	t.Parallel()
	l := newLife().to("a", "running", 1, true, func(c *change) { c.Lease = ptr(c.At.Add(testLease / 2)) })
	require.Len(t, l.replayed().shortLeases, 1)
	require.Empty(t, newLife().claim("a").replayed().shortLeases)
}

func TestEffects_AreCountedAgainstTheReceipts(t *testing.T) {
	t.Parallel()
	twice := newLife().claim("a").step("a", 0).effect("a", 0, 1).succeed("a").replayed()
	e := twice.inDatabase(0)
	require.Equal(t, 1, e.Duplicates)
	require.Contains(t, strings.Join(e.Faults, "\n"), "2 times in the database")
	none := newLife().claim("a").to("a", "running", 0, true, nil).receipt("a", 0, "ok", 1).replayed()
	require.Contains(t, strings.Join(none.inDatabase(0).Faults, "\n"), "a receipt and no effect")
	require.Contains(t, strings.Join(none.outside(0, 0, 1).Faults, "\n"), "nothing is outside")
	skipped := newLife().claim("a").step("a", 0).succeed("a").replayed()
	require.Contains(t, strings.Join(skipped.inDatabase(1).Faults, "\n"), "has succeeded, and the receipt of step 1")
	require.Contains(t, strings.Join(skipped.outside(1, 0, 1).Faults, "\n"), "has succeeded, and the receipt of step 1")
	e = none.outside(0, 3, 2)
	require.Equal(t, 1, e.Duplicates)
	require.Contains(t, strings.Join(e.Faults, "\n"), "3 times outside, at most 2")
}

func TestEffects_ARunThatEndsBadlyNeedsAReason(t *testing.T) {
	t.Parallel()
	run := &RunRecord{Kind: orderKind.Name(), Status: "failed", Terminal: true, Receipts: map[int]string{}, Unknown: map[int]int{}, effects: map[int]int{}}
	provider := &provider{done: map[string]int{}}
	check := func() []string {
		effects, err := (&orders{hosting: hosting{provider: provider}}).Check(t.Context(), nil, RecordsOf(run))
		require.NoError(t, err)
		return effects.Faults
	}
	require.Len(t, check(), 1)
	run.Unknown[stepShip] = 1
	require.Empty(t, check())
	run.Kind = jobs.KindDelivery
	effects, err := (&deliveries{}).Check(t.Context(), nil, RecordsOf(run))
	require.NoError(t, err)
	require.Len(t, effects.Faults, 1)
}
