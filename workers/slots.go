package workers

import (
	"context"
	"slices"
	"sync"
	"time"
)

// slots bounds how many deliveries this process sends at once, in all and for each channel.
//
// Where a process has several channels, each may use half of the slots, so a provider that hangs does not silence the
// others (NO-10). Chunks, which would take whatever is free, leave some slots to deliveries with a doorbell of their own,
// and let those go first.
type slots struct {
	limit, reserve, perChannel int

	mu        sync.Mutex
	used      int
	byChannel map[string]int
	singles   []*slotWaiter
	chunks    []*slotWaiter
}

type slotWaiter struct {
	channel     string
	want, least int
	granted     chan int
}

func newSlots(channels, limit int) *slots {
	s := &slots{limit: limit, reserve: limit / 10, perChannel: limit, byChannel: map[string]int{}}
	if channels > 1 {
		s.perChannel = max(limit/2, 1)
	}
	return s
}

// take waits for a slot for one delivery. ok is false when its channel has used up its own, or ctx ended.
func (s *slots) take(ctx context.Context, channel string) (give func(), ok bool) {
	s.mu.Lock()
	if s.byChannel[channel] >= s.perChannel {
		s.mu.Unlock()
		return nil, false
	}
	w := &slotWaiter{channel: channel, want: 1, least: 1, granted: make(chan int, 1)}
	s.singles = append(s.singles, w)
	s.grant()
	s.mu.Unlock()
	if s.wait(ctx, w, &s.singles) == 0 {
		return nil, false
	}
	return func() { s.give(channel, 1) }, true
}

const (
	// fewSlots is how long a chunk waits for enough slots to make its claim worth a statement.
	fewSlots = 10 * time.Millisecond
	// manySlots is which part of all slots is enough.
	manySlots = 8
)

// takeMany waits for slots for a chunk, up to want of them. It returns 0 when ctx ended first. The caller gives them back.
func (s *slots) takeMany(ctx context.Context, channel string, want int) int {
	w := &slotWaiter{channel: channel, want: want, least: max(min(want, s.limit/manySlots), 1), granted: make(chan int, 1)}
	s.mu.Lock()
	s.chunks = append(s.chunks, w)
	s.grant()
	s.mu.Unlock()
	timer := time.AfterFunc(fewSlots, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		w.least = 1
		s.grant()
	})
	defer timer.Stop()
	return s.wait(ctx, w, &s.chunks)
}

func (s *slots) wait(ctx context.Context, w *slotWaiter, queue *[]*slotWaiter) int {
	select {
	case n := <-w.granted:
		return n
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case n := <-w.granted: // in the same moment
		s.free(w.channel, n)
		s.grant()
	default:
		*queue = slices.DeleteFunc(*queue, func(o *slotWaiter) bool { return o == w })
	}
	return 0
}

func (s *slots) give(channel string, n int) {
	if n == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free(channel, n)
	s.grant()
}

func (s *slots) free(channel string, n int) {
	s.used -= n
	if s.byChannel[channel] -= n; s.byChannel[channel] == 0 {
		delete(s.byChannel, channel)
	}
}

// grant needs s.mu. Whoever cannot be served yet does not keep others from it whose channel has room.
func (s *slots) grant() {
	s.singles = s.serve(s.singles, s.limit)
	if len(s.singles) == 0 {
		s.chunks = s.serve(s.chunks, s.limit-s.reserve)
	}
}

func (s *slots) serve(queue []*slotWaiter, limit int) []*slotWaiter {
	if len(queue) == 0 {
		return queue
	}
	return slices.DeleteFunc(queue, func(w *slotWaiter) bool {
		n := min(w.want, limit-s.used, s.perChannel-s.byChannel[w.channel])
		if n < w.least {
			return false
		}
		s.used += n
		s.byChannel[w.channel] += n
		w.granted <- n
		return true
	})
}
