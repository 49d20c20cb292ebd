package workers

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/weirqueue/weir/internal/delivery"
	"github.com/weirqueue/weir/internal/fencing"
	"github.com/weirqueue/weir/internal/receipts"
)

// sendParts sends the parts of a message that have no receipt yet, in their order, each as a step. The last one ends
// the run with its own receipt.
func (w *deliveryWorker) sendParts(ctx context.Context, held *fencing.Held, c *fencing.Claimed, payload delivery.Payload) result {
	effect := receipts.Effect(w.service.cfg.Channels[payload.Channel].Effect())
	steps := make([]receipts.Step, len(payload.Parts))
	for i := range steps {
		steps[i] = receipts.Step{Index: i, Name: fmt.Sprintf("part_%d", i+1), Effect: effect}
	}
	t := &try{service: w.service, kind: &w.kind, held: held, claimed: c, outputs: map[string]json.RawMessage{}}
	began := time.Now()
	res := t.through(ctx, steps, func(ctx context.Context, i int, before receipts.Receipt) (result, bool) {
		if time.Since(began) > w.kind.stepTime {
			// Many slow parts: the try ends before River takes the job for stuck, and another goes on.
			return result{step: steps[i], event: fencing.Snooze, code: "parts_left", delay: minRetry, notSent: true}, true
		}
		s := boundStep{Step: steps[i]}
		if _, res, stop := t.start(ctx, s); stop {
			return res, true
		}
		res := w.send(ctx, c, payload, s.Step)
		if res.event != fencing.Succeed && mayHaveHappened(s, before, res) {
			res.outcome, res.notSent = receipts.Unknown, false
		}
		if res.event != fencing.Succeed || i == len(steps)-1 {
			return res, true
		}
		return t.settle(ctx, s, nil, res.externalRef)
	})
	res.label = payload.Channel
	return res
}
