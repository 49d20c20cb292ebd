package workers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"

	"github.com/weirqueue/weir/internal/coalesce"
	"github.com/weirqueue/weir/internal/doorbell"
	"github.com/weirqueue/weir/internal/fencing"
	"github.com/weirqueue/weir/jobs"
)

// chunkTime is for how long one try of a chunk's job claims more runs. Then it comes back later, behind others.
const chunkTime = time.Minute

// chunkWorker works the runs of a chunk: it claims as many as this process can send now, until none is left. What
// fails is rung for by a job of its own.
type chunkWorker struct {
	river.WorkerDefaults[doorbell.ChunkArgs]
	service *Service
	slots   *slots
	crew    *crew
	kind    workKind
	// patience is how long it waits for a slot. Shorter than the grace of the sweep, to which a chunk that owns nothing is
	// one that nobody works.
	patience time.Duration
	claims   *coalesce.Group[int64, chunkClaim, map[uuid.UUID]*fencing.Claimed]
}

func newChunkWorker(d *deliveryWorker) *chunkWorker {
	kind := d.kind
	kind.ringsRetries = true
	w := &chunkWorker{service: d.service, slots: d.slots, crew: newCrew(), kind: kind, patience: min(d.service.cfg.DoorbellGrace/3, 5*time.Second)}
	w.claims = newChunkClaims(d.service, &w.kind)
	return w
}

// chunksAtOnce is how many chunks a process works at once: enough to keep its slots in use while others are claimed.
func chunksAtOnce(slots int) int { return max(2, min(2*slots/doorbell.ChunkSize, 20)) }

// Timeout is finite, and above everything that a chunk may take.
func (w *chunkWorker) Timeout(*river.Job[doorbell.ChunkArgs]) time.Duration {
	return chunkTime + w.kind.stepTime + 2*w.kind.lease + time.Minute
}

// NextRetry is soon: what fails here is the chunk, not a delivery.
func (w *chunkWorker) NextRetry(*river.Job[doorbell.ChunkArgs]) time.Time {
	return time.Now().Add(jitter(2 * time.Second))
}

// ChunkCounts is what River's page of a chunk's job shows, as the job's output.
type ChunkCounts struct {
	Sent    int `json:"sent"`
	Retried int `json:"retried"` // rung for again, each by a job of its own
	Failed  int `json:"failed"`
	Dead    int `json:"dead"`
	Other   int `json:"other"` // somebody else had them, or has them now
}

// Work claims and delivers. Whatever it returns, the runs are the truth: one that still waits when the job has ended is
// found by the sweep.
func (w *chunkWorker) Work(ctx context.Context, job *river.Job[doorbell.ChunkArgs]) error {
	s := w.service
	s.active.enter()
	defer s.active.leave()
	if s.stopping.Load() || s.lastGood.Load() == 0 {
		return river.JobSnooze(jitter(time.Second))
	}
	c := &chunk{worker: w, job: job.JobRow, channel: job.Args.Channel, left: job.Args.RunIDs}
	_ = json.Unmarshal(job.Output(), &c.counts) // of earlier tries of this job
	c.work(ctx)
	err := c.leave(context.WithoutCancel(ctx))
	if rerr := river.RecordOutput(ctx, c.counts); rerr != nil {
		s.log.WarnContext(ctx, "weir: the counts of a chunk could not be recorded", "job", job.ID, "error", rerr)
	}
	switch {
	case err != nil:
		return &chunkError{job: job.ID}
	case len(c.left) > 0:
		return river.JobSnooze(jitter(time.Second))
	}
	return nil
}

// chunkError is what River shows; the log has the error.
type chunkError struct{ job int64 }

func (e *chunkError) Error() string { return fmt.Sprintf("chunk %d: the database refused", e.job) }

// chunk is one try of a chunk's job.
type chunk struct {
	worker  *chunkWorker
	job     *rivertype.JobRow
	channel string
	// left was not tried to claim, odd could not be claimed.
	left, odd []uuid.UUID

	mu     sync.Mutex
	counts ChunkCounts
}

// work claims and delivers until nothing is left, or it is time to stop. It returns when the deliveries have ended.
func (c *chunk) work(ctx context.Context) {
	s, w := c.worker.service, c.worker
	// The runs do not end when somebody cancels the chunk in River, which cancels none of them.
	runs, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stop(nil)
	defer context.AfterFunc(ctx, func() {
		if cause := context.Cause(ctx); !errors.Is(cause, river.ErrJobCancelledRemotely) {
			stop(cause)
		}
	})()
	var deliveries sync.WaitGroup
	defer deliveries.Wait()
	for began := time.Now(); len(c.left) > 0 && time.Since(began) < chunkTime && !s.stopping.Load(); {
		n := c.takeSlots(ctx, len(c.left))
		if n == 0 {
			return
		}
		if s.stopping.Load() {
			w.slots.give(c.channel, n)
			return
		}
		sent := time.Now()
		batch := c.left[:n]
		claimed, err := c.claim(ctx, batch)
		w.slots.give(c.channel, n-len(claimed))
		if err != nil {
			s.log.WarnContext(ctx, "weir: runs of a chunk could not be claimed", "job", c.job.ID, "runs", n, "error", err)
			dropReadOnly(s.pool, err)
			if inDoubt(err) { // the reaper or the sweep sees to them
				c.left = c.left[n:]
				c.mu.Lock()
				c.counts.Other += n
				c.mu.Unlock()
			}
			return
		}
		c.left = c.left[n:]
		for _, run := range batch {
			cl, ok := claimed[run]
			if !ok {
				c.odd = append(c.odd, run)
				continue
			}
			deliveries.Add(1)
			w.crew.do(s.runs, func() {
				defer deliveries.Done()
				defer w.slots.give(c.channel, 1)
				c.count(s.carryOut(runs, cl, &w.kind, sent))
			})
		}
	}
}

func (c *chunk) takeSlots(ctx context.Context, want int) int {
	ctx, cancel := context.WithTimeout(ctx, c.worker.patience)
	defer cancel()
	defer context.AfterFunc(c.worker.service.runs, cancel)()
	return c.worker.slots.takeMany(ctx, c.channel, want)
}

func (c *chunk) claim(ctx context.Context, runs []uuid.UUID) (map[uuid.UUID]*fencing.Claimed, error) {
	s, k := c.worker.service, &c.worker.kind
	claim := chunkClaim{job: c.job.ID, reqs: make([]fencing.ClaimRequest, len(runs))}
	for i, run := range runs {
		claim.reqs[i] = s.claimRequest(c.job, run, k)
	}
	// Once it is sent, what becomes of it must be known: so it does not end with the job's context.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), k.lease/2)
	defer cancel()
	return c.worker.claims.Do(ctx, claim)
}

func (c *chunk) count(t tried) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch status := jobs.Status(t.ended.Status); {
	case !t.written:
		c.counts.Other++
	case status == jobs.StatusSent:
		c.counts.Sent++
	case status == jobs.StatusDead:
		c.counts.Dead++
	case t.ended.Terminal:
		c.counts.Failed++
	default:
		c.counts.Retried++
	}
}

// leave gives doorbells of their own to the runs that this process could not claim and that still wait: for a channel that
// it does not have, for a process without another suspect, or for a lock.
func (c *chunk) leave(ctx context.Context) error {
	if len(c.odd) == 0 {
		return nil
	}
	s := c.worker.service
	ctx, cancel := context.WithTimeout(ctx, writeTimeout(c.worker.kind.lease))
	defer cancel()
	tx, err := fencing.Begin(ctx, s.pool)
	if err != nil {
		return c.leaveFailed(ctx, err)
	}
	defer fencing.RollbackQuietly(ctx, tx)
	rung, err := s.bells.LeaveChunk(ctx, tx, c.job.ID, c.channel, c.odd)
	if err == nil {
		err = tx.Commit(ctx)
	}
	if err != nil {
		return c.leaveFailed(ctx, err)
	}
	c.counts.Retried, c.counts.Other = c.counts.Retried+rung, c.counts.Other+len(c.odd)-rung
	return nil
}

func (c *chunk) leaveFailed(ctx context.Context, err error) error {
	dropReadOnly(c.worker.service.pool, err)
	c.worker.service.log.WarnContext(ctx, "weir: runs of a chunk could not be rung for yet", "job", c.job.ID, "runs", len(c.odd), "error", err)
	return err
}
