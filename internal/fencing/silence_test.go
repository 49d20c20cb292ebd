package fencing_test

import (
	"context"
	"io"
	"net"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/internal/fencing"
	"github.com/weirqueue/weir/internal/fencing/fencetest"
	"github.com/weirqueue/weir/internal/postgres/pgtest"
)

// LF-08: the database is silent, and the stopwatch ends the context before the lease can have run out. It was started
// before the claim was sent, so an answer that took long counts against it.
func TestStopwatch_EndsTheContextBeforeTheLease(t *testing.T) {
	t.Parallel()
	b := &beats{Keeper: fencing.NewKeeper(nil, always, nil)}
	const lease = 400 * time.Millisecond
	since := time.Now().Add(-200 * time.Millisecond)
	ctx, h := b.Hold(t.Context(), uuid.Must(uuid.NewV7()), 1, lease, time.Minute, since)
	defer h.Drop()
	require.True(t, h.Alive())
	<-ctx.Done()
	require.ErrorIs(t, context.Cause(ctx), fencing.ErrLeaseLost)
	require.False(t, h.Alive())
	require.Less(t, time.Since(since), lease, "the owner outlived its lease")

	// L12: a frozen process asks the clock, not its timers.
	_, frozen := b.Hold(t.Context(), uuid.Must(uuid.NewV7()), 1, time.Minute, time.Minute, time.Now().Add(-time.Minute))
	defer frozen.Drop()
	require.False(t, frozen.Alive())
}

// A run that a beat found locked gets one more beat, not a lease: then the silence of the database ends it.
func TestStopwatch_LockedIsNoRenewal(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	const lease = 4 * time.Second
	b := keeper(t, pool, always)
	ctx, h := b.hold(t, pool, lease)
	began := time.Now()
	holder := fencetest.Begin(t, pool)
	fencetest.Exec(t, holder, "select from weir.run where id = $1 for update", h.Run)
	fencetest.Exec(t, pool, "select pg_sleep(1)")
	b.Beat(t.Context()) // and no other
	require.Equal(t, 1, b.total().Locked)
	<-ctx.Done()
	require.ErrorIs(t, context.Cause(ctx), fencing.ErrLeaseLost)
	require.Less(t, time.Since(began), lease, "a beat that renewed nothing moved the stopwatch beyond the lease")
}

// A connection that swallows what is sent to it, like a network partition, costs one beat. The next one is made anew
// (F5), and beats never overlap (LF-07).
func TestKeeper_RecoversFromABlackHole(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	const every = time.Second
	proxy := newProxy(t, pool)
	b := &beats{}
	var mu sync.Mutex
	var reports []fencing.BeatReport
	var ends []time.Time
	b.Keeper = fencing.NewKeeper(proxy.connect, every, func(r fencing.BeatReport) {
		mu.Lock()
		defer mu.Unlock()
		reports, ends = append(reports, r), append(ends, time.Now())
	})
	ctx, h := b.hold(t, pool, 10*time.Second)
	renewed := func() (n, failed int) {
		mu.Lock()
		defer mu.Unlock()
		for _, r := range reports {
			n += r.Renewed
			if r.Err != nil {
				failed++
			}
		}
		return n, failed
	}
	stop := run(t, b)
	fencetest.Eventually(t, "renewed", func() bool { n, _ := renewed(); return n > 0 })
	proxy.swallow.Store(true)
	fencetest.Eventually(t, "three beats fail", func() bool { _, failed := renewed(); return failed >= 3 })
	before, _ := renewed()
	proxy.swallow.Store(false)
	fencetest.Eventually(t, "renewed again", func() bool { n, _ := renewed(); return n > before })
	require.NoError(t, ctx.Err())
	stop()
	h.Drop()

	for i := range reports {
		require.Less(t, reports[i].Took, 4*every, "a beat outlived the leases that it renews")
		if i > 0 {
			require.False(t, ends[i].Add(-reports[i].Took).Before(ends[i-1].Add(-5*time.Millisecond)), "two beats at a time")
		}
	}
}

// RV-09: a server that takes no writes any more still answers. Its connection is not kept.
func TestKeeper_LeavesAReadOnlyServer(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	connections := 0
	var last fencing.BeatReport
	b := &beats{}
	b.Keeper = fencing.NewKeeper(func(ctx context.Context) (*pgx.Conn, error) {
		conn, err := pgx.ConnectConfig(ctx, pool.Config().ConnConfig)
		if connections++; err == nil && connections == 1 {
			_, err = conn.Exec(ctx, "set default_transaction_read_only = on")
		}
		b.conn = conn
		return conn, err
	}, always, func(r fencing.BeatReport) { last = r })
	t.Cleanup(b.hangUp)
	ctx, _ := b.hold(t, pool, fencetest.Lease)
	b.Beat(t.Context())
	require.True(t, fencing.IsReadOnly(last.Err), "%v", last.Err)
	b.Beat(t.Context())
	require.NoError(t, last.Err)
	require.Equal(t, 1, last.Renewed)
	require.Equal(t, 2, connections)
	require.NoError(t, ctx.Err())
}

// proxy is TCP in front of the server's socket. It can swallow all that comes from the client.
type proxy struct {
	pool    *pgxpool.Pool
	addr    *net.TCPAddr
	swallow atomic.Bool
}

func newProxy(t *testing.T, pool *pgxpool.Pool) *proxy {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &proxy{pool: pool, addr: l.Addr().(*net.TCPAddr)}
	cfg := pool.Config().ConnConfig
	socket := filepath.Join(cfg.Host, ".s.PGSQL."+strconv.Itoa(int(cfg.Port)))
	var wg sync.WaitGroup
	var mu sync.Mutex
	var open []net.Conn
	wg.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("unix", socket)
			if err != nil {
				_ = client.Close()
				continue
			}
			mu.Lock()
			open = append(open, client, server)
			mu.Unlock()
			wg.Go(func() { p.pump(server, client, true) })
			wg.Go(func() { p.pump(client, server, false) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		mu.Lock()
		for _, c := range open {
			_ = c.Close()
		}
		mu.Unlock()
		wg.Wait()
	})
	return p
}

func (p *proxy) pump(to io.WriteCloser, from io.Reader, fromClient bool) {
	defer to.Close()
	buf := make([]byte, 16<<10)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		if fromClient && p.swallow.Load() {
			continue
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}

func (p *proxy) connect(ctx context.Context) (*pgx.Conn, error) {
	cfg := p.pool.Config().ConnConfig
	cfg.Host, cfg.Port = p.addr.IP.String(), uint16(p.addr.Port)
	cfg.Fallbacks = nil
	return pgx.ConnectConfig(ctx, cfg)
}
