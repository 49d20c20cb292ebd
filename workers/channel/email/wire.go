package email

import (
	"context"
	"errors"
	"net"
)

// maxReplyBytes bounds what a server may say in one dialog, TLS included: its replies are kept in memory.
const maxReplyBytes = 1 << 20

var errTooMuchReply = errors.New("the server sends too much")

// wire is the TCP connection under a dialog. It counts what has left this process, which is how a Send knows whether
// the final dot may have reached the server.
type wire struct {
	net.Conn
	// written is what the kernel took. Only the goroutine of the dialog uses it.
	written int64
	// allowance is how many bytes the server may still send in this dialog.
	allowance int64
	// readErr is why reading ended. textproto takes what came before it for a line, though it may be half of one.
	readErr error
}

func (w *wire) Read(p []byte) (int, error) {
	if w.allowance <= 0 {
		w.readErr = errTooMuchReply
		return 0, w.readErr
	}
	n, err := w.Conn.Read(p[:min(int64(len(p)), w.allowance)])
	w.allowance -= int64(n)
	if err != nil {
		w.readErr = err
	}
	return n, err
}

func (w *wire) Write(p []byte) (int, error) {
	n, err := w.Conn.Write(p)
	w.written += int64(n)
	return n, err
}

// drop closes the connection at once: a goodbye on a stuck link would block, and what the kernel still holds is
// better not sent when nobody waits for the answer. It may be called by any goroutine.
func (w *wire) drop() {
	if tcp, ok := w.Conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = w.Conn.Close()
}

// boundBy drops the connection when ctx ends. It is the only deadline of a dialog, so nothing that the server does
// extends it. The returned function ends the watch and reports whether the connection is still unharmed.
func (w *wire) boundBy(ctx context.Context) (stop func() bool) {
	return context.AfterFunc(ctx, w.drop)
}
