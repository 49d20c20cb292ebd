package workers

import (
	"context"

	"github.com/weirqueue/weir/internal/fencing"
)

// expireAtOnce bounds one round: the rest is for the next.
const expireAtOnce = 500

// expirePlans ends the plans that nobody decided, or took up, within their limit. Every node does it.
func (s *Service) expirePlans(ctx context.Context) error {
	expired, err := fencing.ExpirePlans(ctx, s.pool, expireAtOnce)
	if len(expired) > 0 {
		s.log.InfoContext(ctx, "weir: plans expired", "plans", len(expired))
	}
	return err
}
