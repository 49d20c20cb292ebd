package email

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"
)

var (
	errBusy   = errors.New("email: no connection became free within WaitTimeout")
	errClosed = errors.New("email: the channel is closed")
)

// quitTimeout bounds a goodbye. It happens in the background, after the outcome of the mail is known.
const quitTimeout = 2 * time.Second

// pool limits the open connections and keeps some of them for the next mail.
//
// A Send holds a slot while it has a connection, and gives it back with the connection. An idle connection has no
// slot, but whoever gets a slot takes an idle connection if there is one. So busy and idle ones together never exceed
// the number of slots.
type pool struct {
	wait, idleTimeout time.Duration
	maxIdle           int
	log               *slog.Logger
	slots             chan struct{}
	closing           chan struct{}

	mu       sync.Mutex
	closed   bool
	idle     []*link
	goodbyes sync.WaitGroup
}

func newPool(cfg Config) *pool {
	return &pool{
		wait: cfg.WaitTimeout, idleTimeout: cfg.IdleTimeout, maxIdle: max(cfg.MaxIdle, 0), log: cfg.Logger,
		slots: make(chan struct{}, cfg.MaxConns), closing: make(chan struct{}),
	}
}

// acquire waits for a slot. It fails with errBusy, errClosed, or ctx's cause.
func (p *pool) acquire(ctx context.Context) error {
	// select chooses at random, and an ended context must win.
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	timer := time.NewTimer(p.wait)
	defer timer.Stop()
	select {
	case <-p.closing:
		return errClosed
	default:
	}
	select {
	case p.slots <- struct{}{}:
		return nil
	case <-timer.C:
		return errBusy
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-p.closing:
		return errClosed
	}
}

func (p *pool) release() { <-p.slots }

// takeIdle returns the idle connection that was used last, or nil. The caller holds a slot.
func (p *pool) takeIdle() *link {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.idle) == 0 {
		return nil
	}
	l := p.idle[len(p.idle)-1]
	p.idle = p.idle[:len(p.idle)-1]
	l.expiry.Stop()
	return l
}

// keep gives back a slot and a connection that is in order.
func (p *pool) keep(l *link) {
	p.mu.Lock()
	if p.closed || len(p.idle) >= p.maxIdle || l.mails >= maxMailsPerLink {
		p.mu.Unlock()
		p.leave(l)
		return
	}
	l.expiry = time.AfterFunc(p.idleTimeout, func() { p.expire(l) })
	p.idle = append(p.idle, l)
	p.mu.Unlock()
	p.release()
}

// leave gives back a slot after a goodbye in the background.
func (p *pool) leave(l *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		l.wire.drop()
		p.release()
		return
	}
	p.goodbyes.Go(func() {
		p.goodbye(l)
		p.release()
	})
}

// discard gives back a slot and drops the connection without a word.
func (p *pool) discard(l *link) {
	l.wire.drop()
	p.release()
}

// expire ends an idle connection that nobody wanted.
func (p *pool) expire(l *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.removeIdle(l) {
		return
	}
	select {
	case p.slots <- struct{}{}:
		p.goodbyes.Go(func() {
			p.goodbye(l)
			p.release()
		})
	default: // somebody is about to open a connection in this one's place
		l.wire.drop()
	}
}

func (p *pool) removeIdle(l *link) bool {
	for i, other := range p.idle {
		if other == l {
			p.idle = append(p.idle[:i], p.idle[i+1:]...)
			return true
		}
	}
	return false
}

// close ends the idle connections and waits until every goodbye is said.
func (p *pool) close() {
	p.mu.Lock()
	if !p.closed {
		p.closed = true
		close(p.closing)
		for _, l := range p.idle {
			l.expiry.Stop()
			p.goodbyes.Go(func() { p.goodbye(l) })
		}
		p.idle = nil
	}
	p.mu.Unlock()
	p.goodbyes.Wait()
}

func (p *pool) goodbye(l *link) {
	if err := l.quit(quitTimeout); err != nil {
		p.log.Debug("email: the server did not take the goodbye", "error", err)
	}
}
