// Package faultproxy is a TCP proxy between a process and PostgreSQL that breaks connections on demand: it cuts them,
// lets nothing through while they stay open, delays them, and does these at exact places in the conversation, such as
// between a fence and its COMMIT.
package faultproxy

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// Verdict is what becomes of the message at which a trap was sprung.
type Verdict int

// The verdicts.
const (
	// Forward it.
	Forward Verdict = iota
	// CutBefore it: the server never sees it.
	CutBefore
	// CutAfter it: the server acts and answers, and the answer is lost.
	CutAfter
)

// Trap is called at a point of one connection, which waits for it.
type Trap func() Verdict

// Proxy leads to one server. Its methods are safe for concurrent use.
type Proxy struct {
	listener net.Listener
	upstream *pgconn.Config

	mu      sync.Mutex
	conns   map[*conn]struct{}
	traps   map[Point]Trap
	healed  chan struct{} // not nil while nothing is let through; closed by Heal
	delay   time.Duration
	closed  bool
	serving sync.WaitGroup
}

// New listens on a free loopback port. Connections lead to the server of a pgx connection string. What comes in is in
// the clear; the way out is encrypted when the connection string says so.
func New(databaseURL string) (*Proxy, error) {
	upstream, err := pgconn.ParseConfig(databaseURL)
	if err != nil {
		return nil, errors.New("faultproxy: the database's address is not a PostgreSQL URL or keyword/value string")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // a loopback address is there at once
	if err != nil {
		return nil, fmt.Errorf("faultproxy: %w", err)
	}
	p := &Proxy{listener: l, upstream: upstream, conns: map[*conn]struct{}{}, traps: map[Point]Trap{}}
	p.serving.Go(p.serve)
	return p, nil
}

// Port is where it listens on 127.0.0.1.
func (p *Proxy) Port() int {
	addr, _ := p.listener.Addr().(*net.TCPAddr)
	return addr.Port
}

func (p *Proxy) serve() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		c := &conn{proxy: p, client: client, done: make(chan struct{})}
		p.mu.Lock()
		closed := p.closed
		if !closed {
			p.conns[c] = struct{}{}
		}
		p.mu.Unlock()
		if closed {
			_ = client.Close()
			return
		}
		p.serving.Go(func() {
			c.run()
			p.mu.Lock()
			delete(p.conns, c)
			p.mu.Unlock()
		})
	}
}

// dial opens the way to the server.
func (p *Proxy) dial() (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	network, addr := pgconn.NetworkAddress(p.upstream.Host, p.upstream.Port)
	var d net.Dialer
	server, err := d.DialContext(ctx, network, addr)
	if err != nil || p.upstream.TLSConfig == nil || network == "unix" {
		return server, err
	}
	request := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, 8), sslRequest)
	answer := make([]byte, 1)
	if _, err = server.Write(request); err == nil {
		_, err = io.ReadFull(server, answer)
	}
	switch {
	case err == nil && answer[0] == 'S':
		return tls.Client(server, p.upstream.TLSConfig), nil
	case err == nil && len(p.upstream.Fallbacks) > 0: // sslmode=prefer
		return server, nil
	}
	_ = server.Close()
	return nil, errors.Join(errors.New("faultproxy: the server does not speak TLS"), err)
}

// Set sets a trap: once, at the next such point of any connection.
func (p *Proxy) Set(at Point, t Trap) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.traps[at] = t
}

// Unset takes a trap back. It reports whether it was still there.
func (p *Proxy) Unset(at Point) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, ok := p.traps[at]
	delete(p.traps, at)
	return ok
}

func (p *Proxy) take(at Point) Trap {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.traps[at]
	delete(p.traps, at)
	return t
}

// Cut resets all connections, on both sides. It returns how many there were.
func (p *Proxy) Cut() int {
	list := p.list()
	for _, c := range list {
		c.cut()
	}
	return len(list)
}

func (p *Proxy) list() []*conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := make([]*conn, 0, len(p.conns))
	for c := range p.conns {
		list = append(list, c)
	}
	return list
}

// Blackhole lets nothing through until Heal: connections stay open, and new ones are accepted and not answered. What
// was on its way arrives afterwards, as it does when TCP sends it again.
func (p *Proxy) Blackhole() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.healed == nil {
		p.healed = make(chan struct{})
	}
}

// Delay makes everything that the client says arrive this much later; zero ends that.
func (p *Proxy) Delay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

// Heal ends Blackhole and Delay.
func (p *Proxy) Heal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.healed != nil {
		close(p.healed)
		p.healed = nil
	}
	p.delay = 0
}

func (p *Proxy) weather() (healed chan struct{}, delay time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.healed, p.delay
}

// Backends are the process ids of the server's sides of the connections.
func (p *Proxy) Backends() []uint32 {
	var out []uint32
	for _, c := range p.list() {
		if pid := c.backend.Load(); pid != 0 {
			out = append(out, pid)
		}
	}
	return out
}

// Close ends the proxy and its connections.
func (p *Proxy) Close() error {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.Heal()
	err := p.listener.Close()
	p.Cut()
	p.serving.Wait()
	return err
}
