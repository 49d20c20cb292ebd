// Package coalesce carries out calls that wait at the same time as one. A call that comes when nothing is under way is
// carried out at once, by itself, so an idle process is as fast as without it. A busy one finds its batches in what
// arrives while the last ones are under way, and lets them grow for a moment before the next.
package coalesce

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"
)

// ErrNotSent says that a call's context ended before anything was sent for it.
var ErrNotSent = errors.New("weir: the call ended before it was sent")

// Config says how calls are carried out.
type Config[K comparable, In, Out any] struct {
	// Key is what two calls of one batch must not share: the later one waits for the next batch.
	Key func(In) K
	// One carries out a single call, with the call's own context.
	One func(context.Context, In) (Out, error)
	// Many carries out a batch. A key without a result is carried out by One: Many leaves out what it cannot decide.
	Many func(context.Context, []In) (map[K]Out, error)
	// InDoubt reports an error of Many after which the batch may have been carried out: each call gets it. After any other
	// error each call is carried out by One, so that one bad element fails alone.
	InDoubt func(error) bool
	// Max is the largest batch, Flushers how many are under way at once, Timeout how long one may take.
	Max, Flushers int
	Timeout       time.Duration
	// Patience is how long a batch is under way before another goes beside it, unless half of Max wait already: a batch
	// costs more than its elements. Zero is not at all.
	Patience time.Duration
	// Linger is how long a flusher that has just written waits for more before it takes a batch that is not large. Zero is
	// not at all.
	Linger time.Duration
	// Hold is how long a call that goes alone keeps its flusher: after that another may start in its place, so that calls
	// which wait for something do not hold up all that come after them. Zero is until it has ended.
	Hold time.Duration
}

// Group coalesces calls. Its methods are safe for concurrent use. It holds no goroutine while nothing waits.
type Group[K comparable, In, Out any] struct {
	cfg Config[K, In, Out]

	mu      sync.Mutex
	queue   []*call[In, Out]
	flushes int
	began   time.Time // the last batch
	armed   bool      // a timer calls beside
}

type call[In, Out any] struct {
	ctx  context.Context //nolint:containedctx // of the caller, who waits
	in   In
	done chan struct{}
	out  Out
	err  error
}

// New makes a group.
func New[K comparable, In, Out any](cfg Config[K, In, Out]) *Group[K, In, Out] {
	return &Group[K, In, Out]{cfg: cfg}
}

// Do carries out a call, alone or with others. When ctx ends while it waits to be sent, it returns ErrNotSent with ctx's
// cause. Once it is sent, ctx does not end it: what becomes of it must be known.
func (g *Group[K, In, Out]) Do(ctx context.Context, in In) (Out, error) {
	c := &call[In, Out]{ctx: ctx, in: in, done: make(chan struct{})}
	if ctx.Err() != nil {
		return c.out, notSent(ctx)
	}
	g.mu.Lock()
	g.queue = append(g.queue, c)
	switch {
	case g.flushes == 0, g.flushes < g.cfg.Flushers && (g.cfg.Patience == 0 || len(g.queue) >= g.cfg.Max/2):
		g.flushes++
		go g.flush()
	case g.flushes < g.cfg.Flushers && !g.armed:
		g.armed = true
		time.AfterFunc(g.cfg.Patience, g.beside)
	}
	g.mu.Unlock()
	select {
	case <-c.done:
	case <-ctx.Done():
		if g.leave(c) {
			return c.out, notSent(ctx)
		}
		<-c.done
	}
	return c.out, c.err
}

// beside starts another flusher when the batch that is under way takes long and somebody waits.
func (g *Group[K, In, Out]) beside() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.armed = false
	if len(g.queue) == 0 || g.flushes == 0 || g.flushes == g.cfg.Flushers {
		return
	}
	if early := g.cfg.Patience - time.Since(g.began); early > 0 {
		g.armed = true
		time.AfterFunc(early, g.beside)
		return
	}
	g.flushes++
	go g.flush()
}

func notSent(ctx context.Context) error { return fmt.Errorf("%w: %w", ErrNotSent, context.Cause(ctx)) }

// leave takes a call that was not sent back out of the queue.
func (g *Group[K, In, Out]) leave(c *call[In, Out]) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for i, q := range g.queue {
		if q == c {
			g.queue = append(g.queue[:i], g.queue[i+1:]...)
			return true
		}
	}
	return false
}

// flush carries out batches until nothing waits.
func (g *Group[K, In, Out]) flush() {
	for first := true; ; first = false {
		if n := g.Waiting(); !first && g.cfg.Linger > 0 && n > 0 && n < g.cfg.Max/4 {
			time.Sleep(g.cfg.Linger)
		}
		batch := g.take()
		switch len(batch) {
		case 0:
			return
		case 1:
			if !g.alone(batch[0]) {
				return
			}
		default:
			g.many(batch)
		}
	}
}

// take takes the next batch, in the order of arrival and no key twice. With nothing to take it ends the flusher, in the
// same breath in which Do decides whether to start one.
func (g *Group[K, In, Out]) take() []*call[In, Out] {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.queue) == 0 {
		g.flushes--
		return nil
	}
	seen := make(map[K]bool, min(len(g.queue), g.cfg.Max))
	var batch, rest []*call[In, Out]
	for i, c := range g.queue {
		if len(batch) == g.cfg.Max {
			rest = append(rest, g.queue[i:]...)
			break
		}
		if key := g.cfg.Key(c.in); seen[key] {
			rest = append(rest, c)
		} else {
			seen[key] = true
			batch = append(batch, c)
		}
	}
	g.queue, g.began = rest, time.Now()
	return batch
}

// alone carries out one call. kept is false when it took so long that its flusher counts no more.
func (g *Group[K, In, Out]) alone(c *call[In, Out]) (kept bool) {
	if g.cfg.Hold == 0 {
		g.one(c)
		return true
	}
	timer := time.AfterFunc(g.cfg.Hold, g.passOn)
	g.one(c)
	return timer.Stop()
}

// passOn takes a flusher off the count, and starts one in its place where somebody waits.
func (g *Group[K, In, Out]) passOn() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.queue) > 0 {
		go g.flush()
		return
	}
	g.flushes--
}

func (g *Group[K, In, Out]) one(c *call[In, Out]) {
	defer close(c.done)
	defer func() {
		if p := recover(); p != nil {
			c.err = fmt.Errorf("weir: panic: %v\n%s", p, debug.Stack())
		}
	}()
	c.out, c.err = g.cfg.One(c.ctx, c.in)
}

func (g *Group[K, In, Out]) many(batch []*call[In, Out]) {
	results, doubt, err := g.sendMany(batch)
	for _, c := range batch {
		out, ok := results[g.cfg.Key(c.in)]
		switch {
		case err == nil && ok:
			c.out = out
			close(c.done)
		case doubt:
			c.err = err
			close(c.done)
		default:
			go g.one(c) // what it waits for must not hold up the next batch
		}
	}
}

// sendMany sends a batch. doubt says that it may have been carried out although there is an error: nobody knows where a
// panic came from.
func (g *Group[K, In, Out]) sendMany(batch []*call[In, Out]) (results map[K]Out, doubt bool, err error) {
	defer func() {
		if p := recover(); p != nil {
			results, doubt, err = nil, true, fmt.Errorf("weir: panic: %v\n%s", p, debug.Stack())
		}
	}()
	ctx, cancel := context.WithTimeout(context.Background(), g.cfg.Timeout)
	defer cancel()
	in := make([]In, len(batch))
	for i, c := range batch {
		in[i] = c.in
	}
	results, err = g.cfg.Many(ctx, in)
	return results, err != nil && g.cfg.InDoubt(err), err
}

// Waiting is how many calls are not sent yet.
func (g *Group[K, In, Out]) Waiting() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.queue)
}
