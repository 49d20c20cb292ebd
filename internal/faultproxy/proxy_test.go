package faultproxy_test

import (
	"context"
	"fmt"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weirqueue/weir/internal/faultproxy"
	"github.com/weirqueue/weir/internal/postgres/pgtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T) (*faultproxy.Proxy, *pgx.ConnConfig, *pgx.Conn) {
	t.Helper()
	direct := pgtest.URL(t)
	p, err := faultproxy.New(direct)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close()) })
	cfg, err := pgx.ParseConfig(direct)
	require.NoError(t, err)
	through := url.URL{Scheme: "postgres", Host: fmt.Sprintf("127.0.0.1:%d", p.Port()), Path: cfg.Database, User: url.User(cfg.User)}
	throughCfg, err := pgx.ParseConfig(through.String())
	require.NoError(t, err)
	admin, err := pgx.Connect(t.Context(), direct)
	require.NoError(t, err)
	t.Cleanup(func() { _ = admin.Close(context.Background()) })
	return p, throughCfg, admin
}

func connect(t *testing.T, cfg *pgx.ConnConfig) *pgx.Conn {
	t.Helper()
	conn, err := pgx.ConnectConfig(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func number(t *testing.T, conn *pgx.Conn, sql string, args ...any) (n int) {
	t.Helper()
	require.NoError(t, conn.QueryRow(t.Context(), sql, args...).Scan(&n))
	return n
}

func within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func TestProxy_LetsEverythingThrough(t *testing.T) {
	t.Parallel()
	p, cfg, _ := open(t)
	conn := connect(t, cfg)
	require.Equal(t, []uint32{conn.PgConn().PID()}, p.Backends())
	var text string
	require.NoError(t, conn.QueryRow(t.Context(), "select repeat('x', 3000000)").Scan(&text))
	require.Len(t, text, 3000000)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := conn.Exec(ctx, "select pg_sleep(60)") // the request to cancel goes through, too
	require.Error(t, err)
}

func TestProxy_CutEndsBothSides(t *testing.T) {
	t.Parallel()
	p, cfg, admin := open(t)
	conn := connect(t, cfg)
	pid := conn.PgConn().PID()
	require.Equal(t, 1, p.Cut())
	_, err := conn.Exec(t.Context(), "select 1")
	require.Error(t, err)
	require.Eventually(t, func() bool {
		return number(t, admin, "select count(*) from pg_stat_activity where pid = $1", pid) == 0
	}, 10*time.Second, 10*time.Millisecond)
	require.Equal(t, 1, number(t, connect(t, cfg), "select 1"), "a new connection is fine")
}

func TestProxy_BlackholeHoldsEverythingUntilHeal(t *testing.T) {
	t.Parallel()
	p, cfg, _ := open(t)
	conn := connect(t, cfg)
	p.Blackhole()
	_, err := pgx.ConnectConfig(within(t, 200*time.Millisecond), cfg)
	require.ErrorIs(t, err, context.DeadlineExceeded, "a new connection gets no answer")
	answered := make(chan error, 1)
	go func() { answered <- conn.Ping(context.Background()) }()
	select {
	case err := <-answered:
		t.Fatalf("something came through: %v", err)
	case <-time.After(200 * time.Millisecond):
	}
	p.Heal()
	require.NoError(t, <-answered, "and it arrives afterwards")
}

func TestProxy_DelayIsOneWayAndOncePerBurst(t *testing.T) {
	t.Parallel()
	p, cfg, _ := open(t)
	conn := connect(t, cfg)
	require.Equal(t, 1, number(t, conn, "select 1"))
	p.Delay(100 * time.Millisecond)
	began := time.Now()
	require.Equal(t, 1, number(t, conn, "select 1"))
	require.GreaterOrEqual(t, time.Since(began), 100*time.Millisecond)
	p.Heal()
}

// writing is a connection with a statement that looks like one that writes a receipt: its row, or a run that is its own.
func writing(t *testing.T, cfg *pgx.ConnConfig, like string) *pgx.Conn {
	conn := connect(t, cfg)
	_, err := conn.Exec(t.Context(), "create table mark (n int)")
	require.NoError(t, err)
	_, err = conn.Prepare(t.Context(), "end", "insert into mark /* "+like+" */ values ($1)")
	require.NoError(t, err)
	return conn
}

func TestTrap_DecidesWhatBecomesOfOneWrite(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		verdict faultproxy.Verdict
		fails   bool
		rows    int
		like    string
	}{
		"forward":             {faultproxy.Forward, false, 1, "insert into weir.receipt"},
		"cut before":          {faultproxy.CutBefore, true, 0, "insert into weir.receipt"},
		"cut after":           {faultproxy.CutAfter, true, 1, "insert into weir.receipt"},
		"cut before, no rows": {faultproxy.CutBefore, true, 0, "update weir.run r set status = 'sent'"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, cfg, admin := open(t)
			conn := writing(t, cfg, c.like)
			var sprung atomic.Int32
			p.Set(faultproxy.AtWrite, func() faultproxy.Verdict { sprung.Add(1); return c.verdict })
			_, err := conn.Exec(t.Context(), "end", 1)
			require.Equal(t, c.fails, err != nil, "%v", err)
			if c.fails {
				var pgErr *pgconn.PgError
				require.NotErrorAs(t, err, &pgErr, "the server did not refuse it: its answer is lost")
			}
			require.Eventually(t, func() bool { return number(t, admin, "select count(*) from mark") == c.rows }, 10*time.Second, 10*time.Millisecond)
			require.Equal(t, int32(1), sprung.Load())
			require.False(t, p.Unset(faultproxy.AtWrite), "a trap is sprung once")
		})
	}
}

// A COMMIT that is held leaves the transaction open, with its locks.
func TestTrap_AtCommitHoldsTheCommit(t *testing.T) {
	t.Parallel()
	p, cfg, admin := open(t)
	conn := connect(t, cfg)
	_, err := conn.Exec(t.Context(), "create table mark (n int); insert into mark values (1)")
	require.NoError(t, err)
	_, err = conn.Prepare(t.Context(), "weir_commit", "commit")
	require.NoError(t, err)
	_, err = conn.Exec(t.Context(), "begin; update mark set n = 2")
	require.NoError(t, err)
	reached, goOn := make(chan struct{}), make(chan struct{})
	p.Set(faultproxy.AtCommit, func() faultproxy.Verdict { close(reached); <-goOn; return faultproxy.Forward })
	done := make(chan error, 1)
	go func() {
		_, err := conn.Exec(context.Background(), "weir_commit")
		done <- err
	}()
	<-reached
	require.Equal(t, 1, number(t, admin, "select n from mark"))
	require.Equal(t, 1, number(t, admin, "select count(*) from pg_stat_activity where pid = $1 and state like 'idle in transaction%'", conn.PgConn().PID()))
	close(goOn)
	require.NoError(t, <-done)
	require.Equal(t, 2, number(t, admin, "select n from mark"))
}

func TestTrap_KnowsTheHeartbeatAndTheBeginOfAStep(t *testing.T) {
	t.Parallel()
	p, cfg, _ := open(t)
	beat := cfg.Copy()
	beat.RuntimeParams["application_name"] = "weir heartbeat"
	var beats, begins atomic.Int32
	p.Set(faultproxy.AtBeat, func() faultproxy.Verdict { beats.Add(1); return faultproxy.Forward })
	p.Set(faultproxy.AtBegin, func() faultproxy.Verdict { begins.Add(1); return faultproxy.Forward })
	conn := connect(t, cfg)
	require.Equal(t, 1, number(t, conn, "select $1::int", 1))
	require.Zero(t, beats.Load()+begins.Load(), "another connection's statement")
	require.Equal(t, 1, number(t, connect(t, beat), "select $1::int", 1))
	tx, err := conn.BeginTx(t.Context(), pgx.TxOptions{BeginQuery: "begin; select 1 as weir_mark_tx"})
	require.NoError(t, err)
	require.NoError(t, tx.Rollback(t.Context()))
	require.Equal(t, [2]int32{1, 1}, [2]int32{beats.Load(), begins.Load()})
}

func TestNew_RefusesWhatIsNoAddress(t *testing.T) {
	t.Parallel()
	_, err := faultproxy.New("postgres://u:secret@:notaport/x")
	require.Error(t, err)
	require.NotContains(t, err.Error(), "secret")
}
