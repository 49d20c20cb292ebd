package smtpsink

import (
	"context"
	"sync"
)

// mailbox keeps the newest mails within its bounds, and counts all of them.
type mailbox struct {
	keep      int
	keepBytes int64

	mu       sync.Mutex
	mails    []Mail
	bytes    int64
	received int
	// changed is closed and replaced at every mail.
	changed chan struct{}
}

func newMailbox(keep int, keepBytes int64) *mailbox {
	return &mailbox{keep: keep, keepBytes: keepBytes, changed: make(chan struct{})}
}

func (b *mailbox) add(m Mail) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.received++
	b.mails = append(b.mails, m)
	b.bytes += int64(len(m.Raw))
	for len(b.mails) > b.keep || b.bytes > b.keepBytes {
		b.bytes -= int64(len(b.mails[0].Raw))
		b.mails[0] = Mail{} // the array behind the slice would keep its bytes
		b.mails = b.mails[1:]
	}
	close(b.changed)
	b.changed = make(chan struct{})
}

func (b *mailbox) count() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.received
}

func (b *mailbox) list() []Mail {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]Mail(nil), b.mails...)
}

func (b *mailbox) wait(ctx context.Context, n int) error {
	for {
		b.mu.Lock()
		received, changed := b.received, b.changed
		b.mu.Unlock()
		if received >= n {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// tries counts the attempts for each recipient. It grows by one small entry for each recipient ever named.
type tries struct {
	mu sync.Mutex
	by map[string]int
}

func newTries() *tries { return &tries{by: map[string]int{}} }

func (t *tries) next(recipient string) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.by[recipient]++
	return t.by[recipient]
}
