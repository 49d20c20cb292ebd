package telegram

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/weirqueue/weir/workers/channel"
)

// longestWait is how long a Send holds its worker while it waits for its turn, for its chat and again for the bot.
const longestWait = 2 * time.Second

// pace says when the next message may go: for each chat, and for the bot as a whole.
type pace struct {
	chatEvery, botEvery time.Duration

	mu      sync.Mutex
	chats   map[chatID]*turn
	sweepAt int // clears out chats when there are so many
	botFree time.Time
}

// turn is where one chat stands.
type turn struct {
	free    time.Time // the next message may go
	blocked time.Time // until then Telegram wants to hear nothing
	waiting bool      // a Send waits until it may go
	later   time.Time // what the Send that was put off last was told
}

const sweepFrom = 1000

func newPace(cfg Config) *pace {
	return &pace{
		chatEvery: cfg.ChatInterval, botEvery: time.Second / time.Duration(cfg.MaxPerSecond),
		chats: map[chatID]*turn{}, sweepAt: sweepFrom,
	}
}

// wait returns nil when a message for the chat may go now, Throttled when it may not go soon, and NotSent when ctx ended.
// The chat comes first: while it waits, it takes nothing from the others.
func (p *pace) wait(ctx context.Context, chat chatID) error {
	now := time.Now()
	d, ok := p.takeChat(chat, now)
	if !ok {
		return paced(d)
	}
	if d > 0 {
		err := sleep(ctx, d)
		if left := p.arrive(chat); err == nil && left > 0 {
			return paced(left)
		}
		if err != nil {
			return err
		}
	}
	if d, ok = p.takeBot(time.Now()); !ok {
		return paced(d)
	}
	return sleep(ctx, d)
}

// takeChat takes the chat's next turn and says how long to wait for it. ok is false where that is too long, or another
// Send waits already: then d is when to come back.
func (p *pace) takeChat(chat chatID, now time.Time) (d time.Duration, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.turnOf(chat, now)
	at := latest(now, t.free)
	if t.waiting || t.blocked.After(now) || at.Sub(now) > longestWait {
		return p.putOff(t, now), false
	}
	t.free = at.Add(p.chatEvery)
	t.waiting = at.After(now)
	return at.Sub(now), true
}

// arrive ends a wait. left is what Telegram asked for meanwhile.
func (p *pace) arrive(chat chatID) (left time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	t := p.turnOf(chat, now)
	t.waiting = false
	if t.blocked.After(now) {
		return p.putOff(t, now)
	}
	return 0
}

// putOff finds a time that nobody else was told, so that those who were put off do not come back together. It needs
// p.mu.
func (p *pace) putOff(t *turn, now time.Time) time.Duration {
	at := latest(now, t.free, t.blocked, t.later)
	t.later = at.Add(p.chatEvery)
	return max(at.Sub(now), time.Millisecond)
}

func (p *pace) takeBot(now time.Time) (d time.Duration, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	at := latest(now, p.botFree)
	if at.Sub(now) > longestWait {
		return at.Sub(now), false
	}
	p.botFree = at.Add(p.botEvery)
	return at.Sub(now), true
}

// block remembers what Telegram asked for. Whoever heard it comes back first.
func (p *pace) block(chat chatID, d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	t := p.turnOf(chat, now)
	t.blocked = latest(t.blocked, now.Add(d))
	t.later = latest(t.later, t.blocked.Add(p.chatEvery))
}

// turnOf needs p.mu. It forgets chats that nothing is to be known of any more.
func (p *pace) turnOf(chat chatID, now time.Time) *turn {
	if t := p.chats[chat]; t != nil {
		return t
	}
	if len(p.chats) >= p.sweepAt {
		for id, t := range p.chats {
			if !t.waiting && !latest(t.free, t.blocked, t.later).After(now) {
				delete(p.chats, id)
			}
		}
		p.sweepAt = max(2*len(p.chats), sweepFrom)
	}
	t := &turn{}
	p.chats[chat] = t
	return t
}

func latest(times ...time.Time) (last time.Time) {
	for _, t := range times {
		if t.After(last) {
			last = t
		}
	}
	return last
}

func paced(d time.Duration) error {
	return channel.Throttled(d, "telegram_paced", fmt.Errorf("telegram: it is not its turn for another %s", d.Round(time.Millisecond)))
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	if ctx.Err() != nil {
		return channel.NotSent(codeOfEnd(ctx), errors.Join(errors.New("telegram: it was not its turn yet"), context.Cause(ctx)))
	}
	return nil
}
