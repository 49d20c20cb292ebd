package smtpsink

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"time"
)

var errClosing = errors.New("smtpsink: the sink is closing")

// watchedConn can notice that its peer went away while nobody reads from it.
type watchedConn struct {
	net.Conn
	listener *trackingListener
	// ahead is what wait read and nobody has asked for yet. Only the connection's own goroutine uses it.
	ahead []byte
}

func (c *watchedConn) Read(p []byte) (int, error) {
	if len(c.ahead) > 0 {
		n := copy(p, c.ahead)
		c.ahead = c.ahead[n:]
		return n, nil
	}
	return c.Conn.Read(p)
}

// wait blocks until release is closed and the peer is still there. It fails as soon as the peer is gone or closing is
// closed. It must be called by the goroutine that reads.
func (c *watchedConn) wait(release, closing <-chan struct{}) error {
	gone := make(chan error, 1)
	go func() { gone <- c.readAhead() }()

	var err error
	select {
	case err = <-gone:
		return err
	case <-release:
	case <-closing:
		err = errClosing
	}
	// A deadline in the past is how a blocked Read is called back.
	_ = c.SetReadDeadline(time.Unix(1, 0))
	watch := <-gone
	_ = c.SetReadDeadline(time.Time{})
	if err == nil && !errors.Is(watch, os.ErrDeadlineExceeded) {
		err = watch
	}
	return err
}

// maxAhead bounds what a client may send before it has its answer.
const maxAhead = 64 << 10

// readAhead reads until the connection fails, which it always reports.
func (c *watchedConn) readAhead() error {
	buf := make([]byte, 512)
	for len(c.ahead) < maxAhead {
		n, err := c.Conn.Read(buf)
		c.ahead = append(c.ahead, buf[:n]...)
		if err != nil {
			return err
		}
	}
	return io.ErrShortBuffer
}

// reset drops the connection so that the peer sees a reset and not an orderly end.
func (c *watchedConn) reset() {
	if tcp, ok := c.Conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.Close()
}

func (c *watchedConn) Close() error {
	c.listener.forget(c)
	return c.Conn.Close()
}

// trackingListener knows its open connections, which go-smtp keeps to itself.
type trackingListener struct {
	net.Listener

	mu    sync.Mutex
	conns map[*watchedConn]struct{}
}

func trackConns(l net.Listener) *trackingListener {
	return &trackingListener{Listener: l, conns: map[*watchedConn]struct{}{}}
}

func (l *trackingListener) Accept() (net.Conn, error) {
	inner, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &watchedConn{Conn: inner, listener: l}
	l.mu.Lock()
	l.conns[c] = struct{}{}
	l.mu.Unlock()
	return c, nil
}

func (l *trackingListener) forget(c *watchedConn) {
	l.mu.Lock()
	delete(l.conns, c)
	l.mu.Unlock()
}

func (l *trackingListener) open() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.conns)
}

func (l *trackingListener) cutAll() {
	l.mu.Lock()
	open := make([]*watchedConn, 0, len(l.conns))
	for c := range l.conns {
		open = append(open, c)
	}
	l.mu.Unlock()
	for _, c := range open {
		_ = c.Close()
	}
}
