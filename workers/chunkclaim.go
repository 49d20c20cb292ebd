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
func newChunkClaims(s *Service, k workKind) *coalesce.Group[int64, chunkClaim, map[uuid.UUID]fencing.Claimed] {
	return group(s, maxBatch/doorbell.ChunkSize, k.lease/2, func(c chunkClaim) int64 { return c.job },
		func(ctx context.Context, conn *pgxpool.Conn, c chunkClaim) (map[uuid.UUID]fencing.Claimed, error) {
			return receipts.ClaimMany(ctx, conn, c.reqs, k.start)
		},
		func(ctx context.Context, conn *pgxpool.Conn, list []chunkClaim) (map[int64]map[uuid.UUID]fencing.Claimed, error) {
			var reqs []fencing.ClaimRequest
			chunkOf := map[uuid.UUID]int64{}
			for _, c := range list {
				for _, r := range c.reqs {
					if _, twice := chunkOf[r.Run]; !twice { // else the other chunk has it, and this one leaves it
						chunkOf[r.Run] = c.job
						reqs = append(reqs, r)
					}
				}
			}
			claimed, err := receipts.ClaimMany(ctx, conn, reqs, k.start)
			if err != nil {
				return nil, err
			}
			answers := make(map[int64]map[uuid.UUID]fencing.Claimed, len(list))
			for _, c := range list {
				answers[c.job] = make(map[uuid.UUID]fencing.Claimed, len(c.reqs))
			}
			for run, c := range claimed {
				answers[chunkOf[run]][run] = c
			}
			return answers, nil
		})
}
