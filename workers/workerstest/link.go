package workerstest

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
)

// link is all that leads from one process of the suite to PostgreSQL. It can be cut, which is what a crash looks like
// from the server, and held up, which is what a partition looks like from both sides. It reads what the process sends,
// so that a connection can be cut exactly at a commit.
type link struct {
	dialer func(ctx context.Context, network, addr string) (net.Conn, error)

	mu     sync.Mutex
	dead   bool
	paused chan struct{} // not nil while paused; closed by resume
	beats  bool          // only the heartbeat's connection is paused
	conns  map[*linkConn]struct{}
	atNext cut
	onCut  func()
}

// cut is what happens to the next write that carries a receipt.
type cut int

const (
	cutNone      cut = iota
	cutCommitted     // it reaches the server, which answers; the answer is lost
	cutUnsent        // it is lost on its way
	cutHeld          // all but its COMMIT is sent; the COMMIT waits for onCut
)

var errCut = errors.New("workerstest: the connection was cut")

func (l *link) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	for {
		l.mu.Lock()
		dead, paused := l.dead, l.paused
		if l.beats {
			paused = nil // its connection is there already
		}
		l.mu.Unlock()
		if dead {
			return nil, errCut
		}
		if paused == nil {
			break
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-paused:
		}
	}
	inner, err := l.dialer(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	c := &linkConn{Conn: inner, link: l, receipts: map[string]bool{}}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dead {
		_ = inner.Close()
		return nil, errCut
	}
	if l.conns == nil {
		l.conns = map[*linkConn]struct{}{}
	}
	l.conns[c] = struct{}{}
	return c, nil
}

// die cuts everything, for good.
func (l *link) die() {
	l.mu.Lock()
	l.dead = true
	conns := l.conns
	l.conns = nil
	l.mu.Unlock()
	l.resume()
	for c := range conns {
		_ = c.Conn.Close()
	}
}

// pause holds up what the process sends, or only its heartbeats; resume delivers it.
func (l *link) pause(beatsOnly bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.paused, l.beats = make(chan struct{}), beatsOnly
}

func (l *link) resume() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.paused == nil {
		return
	}
	close(l.paused)
	l.paused, l.beats = nil, false
	for c := range l.conns {
		if len(c.delayed) > 0 {
			_, _ = c.Conn.Write(c.delayed) // a connection that the server gave up shows that on the next use
			c.delayed = nil
		}
	}
}

// cutAtNext arms the link. then is called when it happened; for cutHeld the COMMIT goes out when it returns.
func (l *link) cutAtNext(how cut, then func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.atNext, l.onCut = how, then
}

type linkConn struct {
	net.Conn
	link *link

	beat     bool
	started  bool
	partial  []byte
	receipts map[string]bool // prepared statements that write receipts
	delayed  []byte          // what a pause holds up

	mu   sync.Mutex
	deaf bool
}

func (c *linkConn) Write(b []byte) (int, error) {
	carries, commitAt := c.read(b)
	l := c.link
	l.mu.Lock()
	if l.paused != nil && (!l.beats || c.beat) {
		c.delayed = append(c.delayed, b...)
		l.mu.Unlock()
		return len(b), nil
	}
	how, then := cutNone, func() {}
	if carries && l.atNext != cutNone && (l.atNext != cutHeld || commitAt > 0) {
		how, l.atNext = l.atNext, cutNone
		if l.onCut != nil {
			then = l.onCut
		}
	}
	l.mu.Unlock()
	switch how {
	case cutUnsent:
		_ = c.Conn.Close()
		then()
		return len(b), nil
	case cutCommitted:
		c.mu.Lock()
		c.deaf = true
		c.mu.Unlock()
		defer then()
	case cutHeld:
		if n, err := c.Conn.Write(b[:commitAt]); err != nil {
			return n, err
		}
		then()
		n, err := c.Conn.Write(b[commitAt:])
		return commitAt + n, err
	case cutNone:
	}
	return c.Conn.Write(b)
}

// Read of a connection whose answer is to be lost waits until the server has answered, and then fails.
func (c *linkConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.mu.Lock()
	deaf := c.deaf
	c.mu.Unlock()
	if !deaf || err != nil {
		return n, err
	}
	answer := bytes.Clone(b[:n])
	for !bytes.HasSuffix(answer, []byte{'Z', 0, 0, 0, 5, 'I'}) && !bytes.HasSuffix(answer, []byte{'Z', 0, 0, 0, 5, 'E'}) {
		n, err := c.Conn.Read(b)
		if err != nil {
			break
		}
		answer = append(answer, b[:n]...)
	}
	_ = c.Conn.Close()
	return 0, io.ErrUnexpectedEOF
}

func (c *linkConn) Close() error {
	c.link.mu.Lock()
	delete(c.link.conns, c)
	c.link.mu.Unlock()
	return c.Conn.Close()
}

// read follows the protocol from the client's side. It reports whether b ends a message that writes a receipt, and
// where in b the COMMIT of a step begins.
func (c *linkConn) read(b []byte) (carries bool, commitAt int) {
	before := len(c.partial)
	c.partial = append(c.partial, b...)
	at := 0
	for {
		rest := c.partial[at:]
		head := 5
		if !c.started {
			head = 4 // the first message has no type
		}
		if len(rest) < head {
			break
		}
		size := int(binary.BigEndian.Uint32(rest[head-4:])) + head - 4
		if len(rest) < size {
			break
		}
		message := rest[:size]
		if !c.started {
			c.started = true
			c.beat = bytes.Contains(message, []byte("heartbeat"))
		} else if writes, commits := c.message(message[0], message[5:]); writes || commits {
			carries = true
			if commits && at >= before {
				commitAt = at - before
			}
		}
		at += size
	}
	c.partial = append([]byte(nil), c.partial[at:]...)
	return carries, commitAt
}

// carriesReceipt reports SQL that writes a receipt. A delivery that goes well at once is its own.
func carriesReceipt(sql []byte) bool {
	return bytes.Contains(sql, []byte("insert into weir.receipt")) || bytes.Contains(sql, []byte("update weir.run r set status = 'sent'"))
}

func (c *linkConn) message(kind byte, body []byte) (writes, commits bool) {
	first, rest, _ := bytes.Cut(body, []byte{0})
	switch kind {
	case 'P': // Parse: name, text
		c.receipts[string(first)] = carriesReceipt(rest)
	case 'B': // Bind: portal, name
		name, _, _ := bytes.Cut(rest, []byte{0})
		return c.receipts[string(name)], string(name) == "weir_commit"
	case 'Q':
		return carriesReceipt(first), false
	}
	return false, false
}
