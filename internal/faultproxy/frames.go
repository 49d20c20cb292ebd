package faultproxy

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
)

// Point is a place in the conversation of a worker with PostgreSQL at which a fault can be set off.
type Point string

// The points.
const (
	// AtBegin: the transaction of a live step has been asked for.
	AtBegin Point = "begin"
	// AtCommit: fence and receipt of a live step are sent, and its COMMIT is next.
	AtCommit Point = "commit"
	// AtWrite: a statement that writes a receipt is next: a claim, an end, a statement step.
	AtWrite Point = "write"
	// AtBeat: a heartbeat is next.
	AtBeat Point = "beat"
)

const (
	maxFrame   = 64 << 20
	sslRequest = 80877103
	gssRequest = 80877104
)

// frame is one message of PostgreSQL's protocol, as it came.
type frame struct {
	kind byte // 0 for the first message of a connection, which has none
	raw  []byte
}

func (f frame) body() []byte {
	if f.kind == 0 {
		return f.raw[4:]
	}
	return f.raw[5:]
}

func readFrame(r *bufio.Reader, first bool) (frame, error) {
	head := 5
	if first {
		head = 4
	}
	start, err := r.Peek(head)
	if err != nil {
		return frame{}, err
	}
	size := int64(binary.BigEndian.Uint32(start[head-4:])) + int64(head-4)
	if size < int64(head) || size > maxFrame {
		return frame{}, fmt.Errorf("faultproxy: a message of %d bytes is not PostgreSQL's protocol", size)
	}
	f := frame{raw: make([]byte, size)}
	if !first {
		f.kind = start[0]
	}
	_, err = io.ReadFull(r, f.raw)
	return f, err
}

// reader follows what a client says, as far as the points go.
type reader struct {
	beats    bool            // it is the heartbeat's connection
	receipts map[string]bool // prepared statements that write receipts
}

func newReader(startup frame) *reader {
	return &reader{beats: bytes.Contains(startup.raw, []byte("weir heartbeat")), receipts: map[string]bool{}}
}

var (
	receiptInsert = []byte("insert into weir.receipt")
	// A delivery that goes well at once is its own receipt.
	runSent   = []byte("update weir.run r set status = 'sent'")
	liveBegin = []byte("weir_mark_tx")
)

// point says what comes next, if it is something to break.
func (r *reader) point(f frame) (Point, bool) {
	first, rest, _ := bytes.Cut(f.body(), []byte{0})
	switch f.kind {
	case 'P': // Parse: name, text
		r.receipts[string(first)] = bytes.Contains(rest, receiptInsert) || bytes.Contains(rest, runSent)
	case 'B': // Bind: portal, name
		name, _, _ := bytes.Cut(rest, []byte{0})
		switch {
		case r.beats:
			return AtBeat, true
		case string(name) == "weir_commit":
			return AtCommit, true
		case r.receipts[string(name)] && !bytes.HasPrefix(name, []byte("fence")): // those are followed by a COMMIT
			return AtWrite, true
		}
	case 'Q':
		if bytes.HasPrefix(first, []byte("begin")) && bytes.Contains(first, liveBegin) {
			return AtBegin, true
		}
	}
	return "", false
}
