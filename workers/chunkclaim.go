package workers

import (
	"context"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weirqueue/weir/internal/coalesce"
	"github.com/weirqueue/weir/internal/doorbell"
	"github.com/weirqueue/weir/internal/fencing"
	"github.com/weirqueue/weir/internal/receipts"
)

// chunkClaim is what one chunk claims at once.
type chunkClaim struct {
	job  int64
	reqs []fencing.ClaimRequest
}

// newChunkClaims makes the claims of chunks that come at the same time one statement.
func newChunkClaims(s *Service, k *workKind) *coalesce.Group[int64, chunkClaim, map[uuid.UUID]*fencing.Claimed] {
	return group(s, maxBatch/doorbell.ChunkSize, k.lease/2, func(c chunkClaim) int64 { return c.job },
		func(ctx context.Context, conn *pgxpool.Conn, c chunkClaim) (map[uuid.UUID]*fencing.Claimed, error) {
			return receipts.ClaimMany(ctx, conn, c.reqs, true)
		},
		func(ctx context.Context, conn *pgxpool.Conn, list []chunkClaim) (map[int64]map[uuid.UUID]*fencing.Claimed, error) {
			return claimChunks(ctx, conn, list)
		})
}

// claimChunks is one claim for all, answered chunk by chunk. A run that two of them have is the first one's; the other leaves it.
func claimChunks(ctx context.Context, db fencing.DB, list []chunkClaim) (map[int64]map[uuid.UUID]*fencing.Claimed, error) {
	var reqs []fencing.ClaimRequest
	chunkOf := map[uuid.UUID]int64{}
	answers := make(map[int64]map[uuid.UUID]*fencing.Claimed, len(list))
	for _, c := range list {
		answers[c.job] = make(map[uuid.UUID]*fencing.Claimed, len(c.reqs))
		for _, r := range c.reqs {
			if _, twice := chunkOf[r.Run]; !twice {
				chunkOf[r.Run] = c.job
				reqs = append(reqs, r)
			}
		}
	}
	claimed, err := receipts.ClaimMany(ctx, db, reqs, true)
	if err != nil {
		return nil, err
	}
	for run, c := range claimed {
		answers[chunkOf[run]][run] = c
	}
	return answers, nil
}
