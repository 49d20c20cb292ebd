package drill

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/jobs"
)

// A plan that went on although it is not resumed, a step behind one that is not ok, a second effect, a receipt without its
// effect and an end that nothing explains are found; a drill that saw one way only proves nothing.
func TestPlans_CheckFindsWhatIsBroken(t *testing.T) {
	t.Parallel()
	p := newPlans(1)
	p.provider = &provider{done: map[string]int{}}
	n := byte(0)
	plan := func(resume bool, status string, ok int) *RunRecord {
		n++
		r := newRun(jobs.RunID{n}, jobs.KindPlan)
		r.N, r.Status, r.Terminal = 1, status, true
		if resume {
			r.N = 2
		}
		for i := range ok {
			r.Receipts[i] = "ok"
			switch planSteps[i] {
			case noteTool:
				r.effects[i] = 1
			case chargeTool:
				p.provider.done[fmt.Sprintf("once/%s:%d", r.ID, i)] = 1
			case shipTool:
				p.provider.done[fmt.Sprintf("each/%s:%d", r.ID, i)] = 1
			}
		}
		return r
	}
	reaped := []takeover{{worker: "w1"}}
	interrupted, resumed, unknown := plan(false, "failed", 2), plan(true, "executed", 5), plan(true, "failed", 3)
	interrupted.takeovers, resumed.takeovers, unknown.Receipts[3] = reaped, reaped, "unknown"
	good := []*RunRecord{plan(false, "executed", 5), interrupted, resumed, unknown}
	effects, err := p.Check(t.Context(), nil, RecordsOf(good...))
	require.NoError(t, err)
	require.Empty(t, effects.Faults)
	require.Zero(t, effects.Duplicates)
	require.Empty(t, p.Prove(RecordsOf(good...)))
	require.Len(t, p.Prove(RecordsOf(good[0])), 2)

	wentOn, behind, twice, bare, unexplained := plan(false, "executed", 5), plan(true, "failed", 2), plan(true, "executed", 5), plan(true, "executed", 5), plan(true, "failed", 1)
	wentOn.takeovers = reaped
	behind.Receipts[1], behind.Receipts[2], behind.effects[2] = "failed", "ok", 1
	p.provider.done[fmt.Sprintf("each/%s:3", twice.ID)] = 2
	bare.effects[4] = 0
	for what, r := range map[string]*RunRecord{
		"went on": wentOn, "behind a step": behind, "took effect 2 times": twice, "a receipt and no effect": bare, "nothing that was done": unexplained,
	} {
		effects, err := p.Check(t.Context(), nil, RecordsOf(r))
		require.NoError(t, err)
		require.Len(t, effects.Faults, 1, what)
		require.Contains(t, strings.Join(effects.Faults, "\n"), what)
	}
}
