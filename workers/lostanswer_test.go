package workers_test

import (
	"bytes"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/internal/postgres/pgtest"
	"github.com/weirqueue/weir/jobs"
	"github.com/weirqueue/weir/workers"
)

// cutter is a proxy that cuts a connection at the first statements that contain a text, before they reach the server, or
// after the server has answered and before the client hears of it.
type cutter struct {
	text  []byte
	after bool
	left  atomic.Int64 // how many to cut
}

// listen returns the address of the proxy for the server at address.
func (c *cutter) listen(t *testing.T, address string) string {
	t.Helper()
	u, err := url.Parse(address)
	require.NoError(t, err)
	query := u.Query()
	server := filepath.Join(query.Get("host"), ".s.PGSQL."+query.Get("port"))
	dir, err := os.MkdirTemp("", "weir") // a short path: the address of a socket is at most 107 bytes
	require.NoError(t, err)
	l, err := net.Listen("unix", filepath.Join(dir, ".s.PGSQL."+query.Get("port")))
	require.NoError(t, err)
	var open sync.WaitGroup
	open.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			open.Go(func() { c.serve(client, server) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		open.Wait()
		_ = os.RemoveAll(dir)
	})
	query.Set("host", dir)
	u.RawQuery = query.Encode()
	return u.String()
}

func (c *cutter) serve(client net.Conn, address string) {
	defer client.Close()
	server, err := net.Dial("unix", address)
	if err != nil {
		return
	}
	defer server.Close()
	var cutting atomic.Bool
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		buf := make([]byte, 64<<10)
		for {
			n, err := server.Read(buf)
			if err != nil || cutting.Load() { // the answer, which is not passed on
				_ = client.Close()
				return
			}
			if _, err := client.Write(buf[:n]); err != nil {
				_ = server.Close()
				return
			}
		}
	}()
	buf := make([]byte, 1<<20)
	for {
		n, err := client.Read(buf)
		if err != nil {
			break
		}
		if bytes.Contains(buf[:n], c.text) && bytes.Contains(buf[:n], []byte("E\x00\x00\x00")) && c.left.Add(-1) >= 0 { // E: Execute
			cutting.Store(true)
			if c.after {
				_, _ = server.Write(buf[:n])
				<-answered
			}
			break
		}
		if _, err := server.Write(buf[:n]); err != nil {
			break
		}
	}
	_ = client.Close()
	_ = server.Close()
	<-answered
}

// R10, PL-04: the answer to the terminal write is lost, before the write or after it. The owner finds out which, and the
// message is sent once, and recorded once, without waiting for the lease.
func TestLostAnswer_OfTheTerminalWriteIsResolved(t *testing.T) {
	t.Parallel()
	for name, after := range map[string]bool{"before": false, "after": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			address := pgtest.URL(t)
			direct := pgtest.Connect(t, address)
			client := newClient(t, direct)
			c := &cutter{text: []byte("set status = 'sent'"), after: after}
			pool := pgtest.Connect(t, c.listen(t, address), pgtest.Config(func(p *pgxpool.Config) {
				p.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec // every statement with its text
			}))
			ch := &fake{}
			p := start(t, pool, quickConfig(ch, func(c *workers.Config) { c.Delivery.Lease = 30 * time.Second }))
			untilStatus(t, client, notify(t, client, "warm", nil), jobs.StatusSent)
			c.left.Store(1)
			id := notify(t, client, "x", nil)
			began := time.Now()
			run := untilStatus(t, client, id, jobs.StatusSent)
			require.Less(t, time.Since(began), 20*time.Second, "it did not wait for the lease")
			require.NoError(t, eventually(func() bool { return p.Held() == 0 }))
			require.LessOrEqual(t, c.left.Load(), int64(0), "it was cut")
			require.Equal(t, 1, ch.sent(id))
			require.Zero(t, run.Failures)
			require.Len(t, outcomes(t, client, id), 1)
			require.Empty(t, hows(t, client, id))
			var verdicts []string
			for _, e := range of[workers.DoubtResolved](p.events) {
				verdicts = append(verdicts, e.Verdict)
			}
			require.Equal(t, []string{map[bool]string{false: "still_owner", true: "finished"}[after]}, verdicts)
			require.Empty(t, of[workers.LeaseLost](p.events))
			require.NoError(t, p.stop())
		})
	}
}
