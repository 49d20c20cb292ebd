package workers

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/riverqueue/river"

	"github.com/weirqueue/weir/internal/delivery"
	"github.com/weirqueue/weir/internal/doorbell"
	"github.com/weirqueue/weir/internal/fencing"
	"github.com/weirqueue/weir/internal/receipts"
	"github.com/weirqueue/weir/jobs"
	"github.com/weirqueue/weir/workers/channel"
)

// deliveryArgs are the arguments of a delivery's doorbell.
type deliveryArgs struct {
	RunID   uuid.UUID `json:"run_id"`
	Channel string    `json:"channel"`
	// next is how long from now River should ring again. It travels from Work to NextRetry, which River calls with the
	// same job.
	next time.Duration
}

func (deliveryArgs) Kind() string { return doorbell.RiverKind(jobs.KindDelivery) }

type deliveryWorker struct {
	river.WorkerDefaults[deliveryArgs]
	service *Service
	kind    workKind
	slots   *slots
}

func newDeliveryWorker(s *Service) *deliveryWorker {
	names := slices.Collect(maps.Keys(s.cfg.Channels))
	w := &deliveryWorker{service: s, slots: newSlots(len(names), s.cfg.Delivery.MaxWorkers)}
	for i, name := range names {
		names[i] = delivery.Need(name)
	}
	w.kind = workKind{
		offers: append(names, receipts.ManySteps),
		kind:   jobs.KindDelivery,
		lease:  s.cfg.Delivery.Lease, stepTime: s.cfg.Delivery.StepTime, backoff: s.cfg.Delivery.Backoff,
		start: &receipts.Send,
		do:    w.deliver,
	}
	w.kind.writes = s.newWrites(&w.kind)
	return w
}

// Timeout is finite, since River never rescues a job without one, and above everything that a delivery may take.
func (w *deliveryWorker) Timeout(*river.Job[deliveryArgs]) time.Duration {
	return w.kind.stepTime + 2*w.kind.lease + time.Minute
}

// NextRetry passes on when the run is due, by the database's clock, as a delay from now.
func (w *deliveryWorker) NextRetry(job *river.Job[deliveryArgs]) time.Time {
	return time.Now().Add(max(job.Args.next, minRetry))
}

// Work delivers.
func (w *deliveryWorker) Work(ctx context.Context, job *river.Job[deliveryArgs]) error {
	give, ok := w.slots.take(ctx, job.Args.Channel)
	if !ok {
		return river.JobSnooze(jitter(2 * time.Second))
	}
	defer give()
	return w.service.work(ctx, job.JobRow, job.Args.RunID, &job.Args.next, &w.kind)
}

// deliver sends what is not sent yet: one message, or the parts of one.
func (w *deliveryWorker) deliver(ctx context.Context, held *fencing.Held, c *fencing.Claimed) result {
	step, begun := w.kind.begun(c)
	payload, err := delivery.Decode(c.Payload, c.Digest)
	if err == nil && begun != (len(payload.Parts) < 2) {
		err = errors.New("the parts of the payload are not those that the run was made for")
	}
	if err != nil {
		res := result{step: step, event: fencing.Refuse, code: "payload_unreadable", err: err, notSent: true}
		if begun {
			res.outcome = receipts.Failed
		}
		return res
	}
	if begun {
		return w.send(ctx, c, payload, step)
	}
	return w.sendParts(ctx, held, c, payload)
}

// send hands one message to its channel and reads what the outcome means.
func (w *deliveryWorker) send(ctx context.Context, c *fencing.Claimed, payload delivery.Payload, step receipts.Step) result {
	ch := w.service.cfg.Channels[payload.Channel] // there: the claim asked for it
	step.Effect = receipts.Effect(ch.Effect())
	run := c.Run.String()
	m := channel.Message{
		RunID: run, IdempotencyKey: run + ":" + strconv.Itoa(step.Index), Address: payload.Address,
		Subject: payload.Subject, Text: payload.Text, HTML: payload.HTML, Part: 1, Parts: 1, CreatedAt: c.CreatedAt,
	}
	if len(payload.Parts) > 1 { // they hold the subject
		m.Subject, m.Text, m.Part, m.Parts = "", payload.Parts[step.Index], step.Index+1, len(payload.Parts)
	}
	sent, err := ch.Send(ctx, m)
	if err == nil {
		return result{step: step, event: fencing.Succeed, outcome: receipts.OK, externalRef: sent.ExternalRef, label: payload.Channel}
	}
	res := w.judge(ctx, c, payload.Channel, err)
	res.step = step
	return res
}

func (w *deliveryWorker) judge(ctx context.Context, c *fencing.Claimed, name string, err error) result {
	res := result{event: fencing.FailTry, outcome: receipts.Unknown, code: "unknown_outcome", err: err, label: name}
	res.delay = w.service.cfg.Delivery.Backoff.Delay(c.Failures + 1)
	if errors.Is(err, channel.ErrNotSent) {
		res.outcome, res.notSent, res.code = receipts.Failed, true, "not_sent"
	}
	var classified *channel.Error
	if !errors.As(err, &classified) {
		return res
	}
	res.code = clean(classified.Code, maxCode)
	switch classified.Class {
	case channel.ClassRefused:
		res.event = fencing.Refuse
	case channel.ClassThrottled:
		return w.putOff(ctx, c, res, classified.After)
	case channel.ClassMisconfigured:
		w.service.log.ErrorContext(ctx, "weir: a provider refuses our settings; deliveries wait", "channel", name, "code", res.code)
		w.service.cfg.Observer.Observe(ctx, Misconfigured{Run: jobs.RunID(c.Run), Channel: name, Code: res.code})
		return w.putOff(ctx, c, res, 0)
	case channel.ClassUnknown, channel.ClassTemporary:
	}
	return res
}

// maxAfter bounds what a provider may ask for.
const maxAfter = 24 * time.Hour

// putOff comes back later without counting a failure, but not for ever: after the throttle limit it counts as one.
func (w *deliveryWorker) putOff(_ context.Context, c *fencing.Claimed, res result, after time.Duration) result {
	res.outcome = receipts.Failed
	if c.Now.Sub(c.CreatedAt) >= w.service.cfg.Delivery.ThrottleLimit {
		res.event = fencing.FailTry
		res.delay = w.service.cfg.Delivery.Backoff.Delay(c.Failures + 1)
		return res
	}
	res.event = fencing.Snooze
	if after <= 0 {
		after = w.service.cfg.Delivery.Backoff.Delay(1)
	}
	res.delay = min(after, maxAfter)
	return res
}
