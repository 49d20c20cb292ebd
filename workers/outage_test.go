package workers_test

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/internal/postgres"
	"github.com/weirqueue/weir/internal/postgres/pgtest"
	"github.com/weirqueue/weir/jobs"
	"github.com/weirqueue/weir/migrations"
	"github.com/weirqueue/weir/workers"
	"github.com/weirqueue/weir/workers/channel"
)

// LF-06: handlers that hold every connection of the pool do not cost their leases.
func TestHeartbeat_SurvivesAPoolThatHandlersHaveUsedUp(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t, pgtest.MaxConns(4))
	var calls atomic.Int32
	s := sail(t, pool, func(ctx context.Context, _ channel.Message) (channel.Sent, error) {
		calls.Add(1)
		conn, err := pool.Acquire(ctx)
		if err != nil {
			return channel.Sent{}, channel.NotSent("pool", err)
		}
		defer conn.Release()
		select { // far beyond a lease without renewals
		case <-time.After(4 * time.Second):
		case <-ctx.Done():
			return channel.Sent{}, errors.New("interrupted")
		}
		return channel.Sent{}, nil
	}, func(c *workers.Config) {
		c.Delivery.Lease, c.Delivery.StepTime, c.Delivery.MaxWorkers = time.Second, 30*time.Second, 4
	})
	var ids []jobs.RunID
	for range 4 {
		ids = append(ids, s.notify("x", nil))
	}
	probe := pgtest.Connect(t, pool.Config().ConnString())
	client, err := jobs.NewClient(probe, nil)
	require.NoError(t, err)
	for _, id := range ids {
		run := waitFor(t, client, id)
		require.Equal(t, jobs.StatusSent, run.Status)
		require.EqualValues(t, 1, run.Attempt, "nobody took it over")
	}
	require.EqualValues(t, 4, calls.Load())
	require.Zero(t, count(s.events, all[workers.RunReaped]))
}

// A handler that hangs and ignores its context loses its lease when its step's time is over; what it returns at last
// changes nothing.
func TestLease_OfAHungHandlerIsLost(t *testing.T) {
	t.Parallel()
	var calls atomic.Int32
	release := make(chan struct{})
	s := sail(t, pgtest.Pool(t), func(context.Context, channel.Message) (channel.Sent, error) {
		if calls.Add(1) == 1 {
			<-release
			return channel.Sent{ExternalRef: "late"}, nil
		}
		return channel.Sent{ExternalRef: "in time"}, nil
	}, func(c *workers.Config) { c.Delivery.Lease, c.Delivery.StepTime = time.Second, 500*time.Millisecond })
	id := s.notify("x", nil)
	run := s.wait(id)
	require.Equal(t, jobs.StatusSent, run.Status)
	require.Equal(t, 1, run.Failures, "its declared time had passed")
	close(release)
	s.eventually("refused", func() bool { return count(s.events, all[workers.LeaseLost]) == 1 })
	after, err := s.client.Get(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, run, after)
	receipts, err := s.client.Receipts(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, "in time", receipts[0].ExternalRef)
}

// ownServer is a migrated database on a server of the test's own.
func ownServer(t *testing.T) (*postgres.Server, string) {
	t.Helper()
	server := pgtest.Cluster(t)
	url := server.URL("postgres")
	require.NoError(t, migrations.Up(t.Context(), url, migrations.Options{}))
	// Test servers do not wait for their log to be written; a crash would lose what was committed just before it.
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	_, err = conn.Exec(t.Context(), "alter database postgres set synchronous_commit = on")
	require.NoError(t, err)
	require.NoError(t, conn.Close(t.Context()))
	return server, url
}

// RV-08, RV-19: a database that goes away in the middle, and backends that are terminated all the time: every process
// goes on without a restart, and nothing is lost.
func TestFleet_OutlivesItsDatabase(t *testing.T) {
	t.Parallel()
	server, url := ownServer(t)
	pool := pgtest.Connect(t, url)
	var sends atomic.Int32
	s := sail(t, pool, func(context.Context, channel.Message) (channel.Sent, error) {
		sends.Add(1)
		<-time.After(20 * time.Millisecond)
		return channel.Sent{}, nil
	}, func(c *workers.Config) { c.Delivery.MaxWorkers, c.Delivery.StepTime = 5, 30*time.Second })
	var ids []jobs.RunID
	for range 100 {
		ids = append(ids, s.notify("x", nil))
	}
	s.eventually("under way", func() bool { return sends.Load() > 10 })
	require.NoError(t, server.Restart(t.Context(), postgres.Immediate))
	for range 10 {
		<-time.After(200 * time.Millisecond)
		_, _ = pool.Exec(t.Context(), "select pg_terminate_backend(pid) from pg_stat_activity where datname = 'postgres' and pid <> pg_backend_pid()")
	}
	for _, id := range ids {
		var run *jobs.Run // from within: a read may still meet a connection that was cut
		s.eventually("sent", func() bool {
			var err error
			run, err = s.client.Get(t.Context(), id)
			return err == nil && run.Status == jobs.StatusSent
		})
		require.Zero(t, run.Failures, "an outage is no failure of the delivery")
	}
	extra := int(sends.Load()) - len(ids)
	taken := count(s.events, all[workers.RunReaped]) + count(s.events, all[workers.DoubtResolved])
	require.LessOrEqual(t, extra, taken, "sent again only where the outcome was unknown")
	t.Logf("%d sends for %d deliveries; %d takeovers and doubts", sends.Load(), len(ids), taken)
}

// RV-09: after a failover the connections lead to a server that takes no writes; they are dropped.
func TestFleet_LeavesAServerThatBecameReadOnly(t *testing.T) {
	t.Parallel()
	_, url := ownServer(t)
	pool := pgtest.Connect(t, url)
	s := sail(t, pool, func(context.Context, channel.Message) (channel.Sent, error) { return channel.Sent{}, nil }, nil)
	first := s.notify("x", nil)
	require.Equal(t, jobs.StatusSent, s.wait(first).Status)
	admin := pgtest.Connect(t, url)
	_, err := admin.Exec(t.Context(), "alter system set default_transaction_read_only = on")
	require.NoError(t, err)
	_, err = admin.Exec(t.Context(), "select pg_reload_conf()")
	require.NoError(t, err)
	s.eventually("read-only", func() bool {
		_, err = s.client.Notify(t.Context(), jobs.Notification{To: []jobs.Recipient{{Channel: "fn", Address: "x"}}, Text: "t"}, nil)
		return err != nil
	})
	_, err = admin.Exec(t.Context(), "alter system reset default_transaction_read_only")
	require.NoError(t, err)
	_, err = admin.Exec(t.Context(), "select pg_reload_conf()")
	require.NoError(t, err)
	var id jobs.RunID
	s.eventually("writable again", func() bool {
		res, err := s.client.Notify(t.Context(), jobs.Notification{To: []jobs.Recipient{{Channel: "fn", Address: "x"}}, Text: "t"}, nil)
		if err != nil {
			return false
		}
		id = res.Runs[0].ID
		return true
	})
	require.Equal(t, jobs.StatusSent, s.wait(id).Status)
}

// A process that cannot work says why in one sentence.
func TestStart_SaysWhyItCannotWork(t *testing.T) {
	t.Parallel()
	start := func(url string) error {
		cfg, err := pgxpool.ParseConfig(url)
		require.NoError(t, err)
		cfg.MaxConns = 2
		pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
		require.NoError(t, err)
		defer pool.Close()
		fleet, err := workers.New(pool, nil)
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		return fleet.Run(ctx)
	}
	require.ErrorIs(t, start(pgtest.Empty(t)), workers.ErrNotMigrated)

	url := pgtest.URL(t)
	pool := pgtest.Connect(t, url)
	var name string
	require.NoError(t, pool.QueryRow(t.Context(), "select current_database()").Scan(&name))
	_, err := pool.Exec(t.Context(), "alter database "+name+" set default_transaction_read_only = on")
	require.NoError(t, err)
	require.ErrorIs(t, start(url), workers.ErrReadOnly)

	// PgBouncer refuses a startup parameter that it does not know.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	go refuseStartup(l)
	require.ErrorIs(t, start("postgres://u@"+l.Addr().String()+"/d?sslmode=disable"), workers.ErrPooler)
}

func refuseStartup(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		buf := make([]byte, 4096)
		_, _ = c.Read(buf)
		text := "SFATAL\x00C08P01\x00Munsupported startup parameter: idle_in_transaction_session_timeout\x00\x00"
		n := len(text) + 4
		_, _ = c.Write(append([]byte{'E', byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}, text...))
		_ = c.Close()
	}
}
