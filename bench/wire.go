package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"net"
	"strings"
	"sync/atomic"
)

// wire counts what this process says to PostgreSQL, at the socket: it is the same for all who are compared, whichever way
// they use their driver, and costs the server nothing.
type wire struct {
	// trips are the times that somebody wrote and then waited for an answer.
	trips atomic.Int64
	// statements are those that were executed: several in one round trip where they are pipelined.
	statements atomic.Int64
	// beats are the statements of heartbeats, which have connections of their own.
	beats atomic.Int64
}

func (w *wire) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return &wireConn{Conn: conn, wire: w}, nil
}

type wireConn struct {
	net.Conn
	wire *wire

	asked atomic.Bool // something was written since the last read
	// Of the goroutine that writes.
	started, beats bool
	rest           int // how much of a message is still to come
}

func (c *wireConn) Write(p []byte) (int, error) {
	c.asked.Store(true)
	c.look(p)
	return c.Conn.Write(p)
}

func (c *wireConn) Read(p []byte) (int, error) {
	if c.asked.Swap(false) {
		c.wire.trips.Add(1)
	}
	return c.Conn.Read(p)
}

const header = 5 // a message's type, and its length, which does not count the type

// look reads the heads of the protocol's messages. pgx writes whole messages, but for their ends.
func (c *wireConn) look(p []byte) {
	if !c.started {
		c.started = true // the first message has no type
		c.beats = bytes.Contains(p, []byte("weir heartbeat"))
		return
	}
	skip := min(c.rest, len(p))
	c.rest -= skip
	p = p[skip:]
	for len(p) >= header {
		length := int(binary.BigEndian.Uint32(p[1:header])) + 1
		n := int64(0)
		switch p[0] {
		case 'E':
			n = 1
		case 'Q':
			n = statementsIn(p[header:min(length, len(p))])
		}
		c.wire.statements.Add(n)
		if c.beats {
			c.wire.beats.Add(n)
		}
		if length > len(p) {
			c.rest = length - len(p)
			return
		}
		p = p[length:]
	}
}

// statementsIn counts those of a simple query, which are ours: none has a semicolon in a text.
func statementsIn(query []byte) int64 {
	text := strings.TrimRight(string(bytes.TrimRight(query, "\x00")), "; \n")
	if text == "" {
		return 0
	}
	return int64(strings.Count(text, ";")) + 1
}
