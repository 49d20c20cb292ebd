package workers

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/internal/fencing"
	"github.com/weirqueue/weir/internal/fencing/fencetest"
	"github.com/weirqueue/weir/internal/postgres/pgtest"
)

// Chunks that claim together get each its own runs, and a run that two of them have is owned through the first alone: its
// row names the job that works it.
func TestChunkClaims_EachGetsItsOwn(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	var runs []uuid.UUID
	for range 3 {
		runs = append(runs, fencetest.Insert(t, pool, fencetest.Delivery, "pending"))
	}
	gone := uuid.Must(uuid.NewV7())
	chunk := func(job int64, of ...uuid.UUID) chunkClaim {
		c := chunkClaim{job: job}
		for _, run := range of {
			c.reqs = append(c.reqs, fencing.ClaimRequest{
				Run: run, Kind: "delivery", Owner: "w", Doorbell: job, DoorbellAttemptedAt: time.Now(), Lease: time.Minute, StepTime: time.Minute,
				Offers: []string{},
			})
		}
		return c
	}
	got, err := claimChunks(t.Context(), pool, []chunkClaim{chunk(1, runs[0], runs[1], gone), chunk(2, runs[1], runs[2]), chunk(3, gone)})
	require.NoError(t, err)
	require.Len(t, got, 3)
	owned := map[int64][]uuid.UUID{}
	for job, claimed := range got {
		for run, c := range claimed {
			require.Equal(t, run, c.Run)
			owned[job] = append(owned[job], run)
			require.Equal(t, job, fencetest.Value[int64](t, pool, "select doorbell_id from weir.run where id = $1", run))
		}
	}
	require.ElementsMatch(t, []uuid.UUID{runs[0], runs[1]}, owned[1])
	require.Equal(t, []uuid.UUID{runs[2]}, owned[2])
	require.Empty(t, owned[3])
	require.Equal(t, 3, fencetest.Value[int](t, pool, "select count(*)::int from weir.receipts where outcome = 'started'"))
}
