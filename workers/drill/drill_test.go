package drill

import (
	"testing"

	"github.com/stretchr/testify/require"

	inner "github.com/weirqueue/weir/internal/drill"
	"github.com/weirqueue/weir/internal/postgres/pgtest"
	"github.com/weirqueue/weir/jobs"
)

func TestMain_NamesWhatIsMissing(t *testing.T) {
	t.Parallel()
	err := Main(t.Context(), []string{"drill"}, Of(Config[int]{}), nil)
	for _, what := range []string{"Config.Kind", "Config.Bind", "Config.Payload", "subject 1 is nil"} {
		require.ErrorContains(t, err, what)
	}
	require.ErrorContains(t, Main(t.Context(), []string{"drill"}), "no subject")
}

// A run that says that it succeeded, and has not the receipts of all of its steps, is a fault whatever Check says.
func TestCheck_ASuccessWithoutAReceiptIsAFault(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	oneTwo := jobs.MustKind[int]("one_two", jobs.KindConfig{Steps: []jobs.Step{{Name: "one", Effect: jobs.AtLeastOnce}, {Name: "two", Effect: jobs.AtLeastOnce}}})
	client, err := jobs.NewClient(pool, nil)
	require.NoError(t, err)
	res, err := client.Enqueue(t.Context(), oneTwo.Of(1), nil)
	require.NoError(t, err)
	k := &kind[int]{cfg: Config[int]{Kind: oneTwo, Payload: func(n int64) int { return int(n) }}}
	run := &inner.RunRecord{ID: res.Run.ID, Kind: "one_two", N: 1, Status: "succeeded", Terminal: true, Receipts: map[int]string{1: "ok"}}
	effects, err := k.Check(t.Context(), pool, inner.RecordsOf(run))
	require.NoError(t, err)
	require.Len(t, effects.Faults, 1)
	require.Contains(t, effects.Faults[0], "step 0")
}
