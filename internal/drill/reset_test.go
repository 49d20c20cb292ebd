package drill

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/internal/postgres/pgtest"
	"github.com/weirqueue/weir/jobs"
)

// A second issue, a success without a receipt, and an end that nothing explains are found.
func TestResets_CheckFindsWhatIsBroken(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	good, twice, bare, unexplained, unknown := newRun(jobs.RunID{1}, jobs.KindBranchReset), newRun(jobs.RunID{2}, jobs.KindBranchReset),
		newRun(jobs.RunID{3}, jobs.KindBranchReset), newRun(jobs.RunID{4}, jobs.KindBranchReset), newRun(jobs.RunID{5}, jobs.KindBranchReset)
	for _, r := range []*RunRecord{good, twice, bare} {
		r.Status, r.Terminal, r.Receipts = "succeeded", true, map[int]string{0: "ok", 1: "ok"}
	}
	delete(bare.Receipts, 1)
	unexplained.Status, unexplained.Terminal = "failed", true
	unknown.Status, unknown.Terminal, unknown.Unknown[0] = "failed", true, 1
	r := newResets(1)
	r.provider = &provider{done: map[string]int{}}
	for run, n := range map[*RunRecord]int{good: 1, twice: 2, bare: 1} {
		r.provider.done["each/"+run.ID.String()] = n
	}
	effects, err := r.Check(t.Context(), pool, RecordsOf(good, twice, bare, unexplained, unknown))
	require.NoError(t, err)
	require.Equal(t, 4, effects.Count)
	require.Equal(t, 1, effects.Duplicates)
	require.Len(t, effects.Faults, 3, strings.Join(effects.Faults, "\n"))
}
