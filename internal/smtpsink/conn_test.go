package smtpsink

import (
	"io"
	"net"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The end of a pipe returns from Write when the other end has read, so the order of things is certain here.
func TestWait_KeepsWhatItReadAhead(t *testing.T) {
	t.Parallel()
	ours, theirs := net.Pipe()
	t.Cleanup(func() { _, _ = ours.Close(), theirs.Close() })
	c := &watchedConn{Conn: ours, listener: trackConns(nil)}
	release, waited := make(chan struct{}), make(chan error, 1)
	go func() { waited <- c.wait(release, nil) }()
	_, err := theirs.Write([]byte("NOOP\r\n"))
	require.NoError(t, err)
	close(release)
	require.NoError(t, <-waited)

	go func() { _, _ = theirs.Write([]byte("QUIT\r\n")) }()
	got := make([]byte, 12)
	_, err = io.ReadFull(c, got)
	require.NoError(t, err)
	assert.Equal(t, "NOOP\r\nQUIT\r\n", string(got))
}

func TestWait_FailsWhenThePeerIsGone(t *testing.T) {
	t.Parallel()
	ours, theirs := net.Pipe()
	t.Cleanup(func() { _ = ours.Close() })
	c := &watchedConn{Conn: ours, listener: trackConns(nil)}
	require.NoError(t, theirs.Close())
	require.ErrorIs(t, c.wait(nil, nil), io.EOF)

	release := make(chan struct{})
	close(release)
	require.Error(t, c.wait(release, nil), "although it is released: nobody would hear the answer")
}

func TestWait_FailsWhenTheSinkCloses(t *testing.T) {
	t.Parallel()
	ours, theirs := net.Pipe()
	t.Cleanup(func() { _, _ = ours.Close(), theirs.Close() })
	closing := make(chan struct{})
	close(closing)
	require.ErrorIs(t, (&watchedConn{Conn: ours}).wait(nil, closing), errClosing)
}
