package faultproxy

import (
	"bufio"
	"encoding/binary"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// conn is one connection through the proxy.
type conn struct {
	proxy   *Proxy
	client  net.Conn
	backend atomic.Uint32
	// deaf: what the server answers does not reach the client any more, and its next ReadyForQuery ends the connection.
	deaf atomic.Bool

	mu     sync.Mutex
	server net.Conn
	ended  sync.Once
	done   chan struct{}
}

func (c *conn) run() {
	defer c.end()
	in := bufio.NewReader(c.client)
	startup, ok := c.startup(in)
	if !ok || !c.pass() {
		return
	}
	server, err := c.proxy.dial()
	if err != nil {
		return
	}
	c.mu.Lock()
	c.server = server
	c.mu.Unlock()
	select {
	case <-c.done:
		_ = server.Close()
		return
	default:
	}
	if _, err := server.Write(startup.raw); err != nil {
		return
	}
	var answers sync.WaitGroup
	answers.Go(func() {
		defer c.end()
		c.answers(server)
	})
	c.requests(in, server, newReader(startup))
	c.end()
	answers.Wait()
}

// startup refuses encryption, and returns the first message that matters.
func (c *conn) startup(in *bufio.Reader) (frame, bool) {
	for {
		f, err := readFrame(in, true)
		if err != nil || len(f.raw) < 8 {
			return frame{}, false
		}
		switch binary.BigEndian.Uint32(f.raw[4:]) {
		case sslRequest, gssRequest:
			if _, err := c.client.Write([]byte{'N'}); err != nil {
				return frame{}, false
			}
		default: // a connection, or the request to cancel what another one does
			return f, true
		}
	}
}

// pass waits while nothing is let through.
func (c *conn) pass() bool {
	for {
		healed, _ := c.proxy.weather()
		if healed == nil {
			return true
		}
		select {
		case <-healed:
		case <-c.done:
			return false
		}
	}
}

// requests forwards what the client says.
func (c *conn) requests(in *bufio.Reader, server net.Conn, r *reader) {
	out := bufio.NewWriter(server)
	for {
		burst := in.Buffered() == 0
		f, err := readFrame(in, false)
		if err != nil {
			return
		}
		if _, delay := c.proxy.weather(); burst && delay > 0 {
			select {
			case <-time.After(delay):
			case <-c.done:
				return
			}
		}
		if !c.pass() {
			return
		}
		if at, ok := r.point(f); ok && !c.trapped(at, out) {
			return
		}
		if _, err := out.Write(f.raw); err != nil {
			return
		}
		if in.Buffered() == 0 && out.Flush() != nil {
			return
		}
	}
}

// trapped springs the trap that is set at the point. It reports whether the message goes on.
func (c *conn) trapped(at Point, out *bufio.Writer) bool {
	trap := c.proxy.take(at)
	if trap == nil {
		return true
	}
	if out.Flush() != nil { // what came before it is with the server
		return false
	}
	switch trap() {
	case CutBefore:
		c.cut()
		return false
	case CutAfter:
		c.deaf.Store(true)
	case Forward:
	}
	return c.pass()
}

// answers forwards what the server says.
func (c *conn) answers(server net.Conn) {
	in, out := bufio.NewReader(server), bufio.NewWriter(c.client)
	for {
		f, err := readFrame(in, false)
		if err != nil {
			return
		}
		if f.kind == 'K' && len(f.raw) >= 9 { // BackendKeyData
			c.backend.Store(binary.BigEndian.Uint32(f.raw[5:]))
		}
		if !c.pass() {
			return
		}
		if c.deaf.Load() {
			if f.kind == 'Z' { // ReadyForQuery
				return
			}
			continue
		}
		if _, err := out.Write(f.raw); err != nil {
			return
		}
		if in.Buffered() == 0 && out.Flush() != nil {
			return
		}
	}
}

// cut resets both sides.
func (c *conn) cut() {
	c.mu.Lock()
	server := c.server
	c.mu.Unlock()
	for _, side := range []net.Conn{c.client, server} {
		if tcp, ok := side.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0)
		}
	}
	c.end()
}

func (c *conn) end() {
	c.ended.Do(func() {
		close(c.done)
		_ = c.client.Close()
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.server != nil {
			_ = c.server.Close()
		}
	})
}
