package workers

import (
	"context"

	"github.com/riverqueue/river"

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

type healPlansArgs struct{}

func (healPlansArgs) Kind() string { return "heal-stale-plans" }

// healPlansWorker is the upkeep that every node does by itself, once more on River's clock. It is safe beside them.
type healPlansWorker struct {
	river.WorkerDefaults[healPlansArgs]
	service *Service
}

func (w *healPlansWorker) Work(ctx context.Context, _ *river.Job[healPlansArgs]) error {
	_, err := w.service.reaper.Reap(ctx)
	return err
}

type expirePlansArgs struct{}

func (expirePlansArgs) Kind() string { return "expire-plans" }

// expirePlansWorker is the expiry that every node does by itself, once more on River's clock.
type expirePlansWorker struct {
	river.WorkerDefaults[expirePlansArgs]
	service *Service
}

func (w *expirePlansWorker) Work(ctx context.Context, _ *river.Job[expirePlansArgs]) error {
	return w.service.expirePlans(ctx)
}
