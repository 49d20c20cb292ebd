package fencing_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/internal/fencing"
	"github.com/weirqueue/weir/internal/fencing/fencetest"
	"github.com/weirqueue/weir/internal/postgres/pgtest"
	"github.com/weirqueue/weir/internal/receipts"
)

// beats is a keeper with what it reported, on connections of its own.
type beats struct {
	*fencing.Keeper
	mu      sync.Mutex
	reports []fencing.BeatReport
	sum     fencing.BeatReport
	sent    []string // the statements
	// onConnect and onQueryEnd let a test act in the middle of a beat.
	onConnect  func()
	onQueryEnd func(sql string)
	conn       *pgx.Conn
}

// always is a beat so slow that half of it covers any lease of the tests: every call of Beat finds every run due.
const always = 5 * time.Minute

func keeper(t *testing.T, pool *pgxpool.Pool, every time.Duration) *beats {
	b := &beats{}
	b.Keeper = fencing.NewKeeper(func(ctx context.Context) (*pgx.Conn, error) {
		if b.onConnect != nil {
			b.onConnect()
		}
		cfg := pool.Config().ConnConfig
		cfg.Tracer = b
		conn, err := pgx.ConnectConfig(ctx, cfg)
		b.conn = conn
		return conn, err
	}, every, func(r fencing.BeatReport) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.reports = append(b.reports, r)
		b.sum.Renewed += r.Renewed
		b.sum.Locked += r.Locked
		b.sum.Lost += r.Lost
		b.sum.Overdue += r.Overdue
		if r.Err != nil {
			b.sum.Err = r.Err
		}
	})
	t.Cleanup(b.hangUp)
	return b
}

func (b *beats) hangUp() {
	if b.conn != nil {
		_ = b.conn.Close(context.Background())
	}
}

type sqlKey struct{}

func (b *beats) TraceQueryStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceQueryStartData) context.Context {
	b.sent = append(b.sent, d.SQL)
	return context.WithValue(ctx, sqlKey{}, d.SQL)
}

func (b *beats) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryEndData) {
	if b.onQueryEnd != nil {
		b.onQueryEnd(ctx.Value(sqlKey{}).(string))
	}
}

func (b *beats) total() fencing.BeatReport {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.sum
}

// hold claims a new run and holds it.
func (b *beats) hold(t *testing.T, pool *pgxpool.Pool, lease time.Duration) (context.Context, *fencing.Held) {
	t.Helper()
	run := fencetest.Insert(t, pool, fencetest.Steps, "queued")
	req := fencetest.Request(fencetest.Steps, run)
	req.Lease = lease
	since := time.Now()
	c, ok, err := receipts.Claim(t.Context(), pool, req)
	require.NoError(t, err)
	require.True(t, ok)
	ctx, h := b.Hold(t.Context(), run, c.Attempt, lease, req.StepTime, since)
	t.Cleanup(h.Drop)
	return ctx, h
}

func shorten(t *testing.T, pool *pgxpool.Pool, run uuid.UUID) {
	fencetest.Update(t, pool, run, "lease_expires_at = clock_timestamp() + interval '1 s'")
}

func TestKeeper_RenewsWhatItHolds(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	b := keeper(t, pool, always)
	ctx, h := b.hold(t, pool, fencetest.Lease)
	shorten(t, pool, h.Run)
	b.Beat(t.Context())
	require.Equal(t, 1, b.total().Renewed)
	require.Greater(t, fencetest.Read(t, pool, h.Run).LeaseLeft, 50*time.Second)
	require.NoError(t, ctx.Err())
	require.True(t, h.Alive())

	h.Drop()
	shorten(t, pool, h.Run)
	b.Beat(t.Context())
	require.Less(t, fencetest.Read(t, pool, h.Run).LeaseLeft, 2*time.Second, "a run that was dropped is not renewed")
	require.Zero(t, b.Len())
	require.ErrorIs(t, context.Cause(ctx), context.Canceled)
}

// F8: the attempt has moved on, or the row is gone: the context ends, with the cause.
func TestKeeper_LostEndsTheContext(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	b := keeper(t, pool, always)
	for _, sql := range []string{
		"update weir.run set attempt = attempt + 1 where id = $1",
		"update weir.run set attempt = attempt + 1, next_attempt_at = null, finished_at = now(), status = 'canceled', lease_owner = null, lease_expires_at = null, step_deadline_at = null where id = $1",
		"delete from weir.run where id = $1",
	} {
		ctx, h := b.hold(t, pool, fencetest.Lease)
		fencetest.Exec(t, pool, sql, h.Run)
		b.Beat(t.Context())
		require.ErrorIs(t, context.Cause(ctx), fencing.ErrLeaseLost, sql)
		h.Drop()
	}
	require.Equal(t, 3, b.total().Lost)
}

// A stale owner's beat does not keep its successor's lease alive: were the successor dead, nobody would reap it.
func TestKeeper_DoesNotRenewTheSuccessor(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	b := keeper(t, pool, always)
	_, h := b.hold(t, pool, fencetest.Lease)
	fencetest.Update(t, pool, h.Run, "attempt = attempt + 1")
	shorten(t, pool, h.Run)
	b.Beat(t.Context())
	require.Less(t, fencetest.Read(t, pool, h.Run).LeaseLeft, 2*time.Second)
}

// R6: a run is renewed only until the deadline that its step declared.
func TestKeeper_OverdueEndsWithStepDeadline(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	b := keeper(t, pool, always)
	ctx, h := b.hold(t, pool, fencetest.Lease)
	fencetest.Update(t, pool, h.Run, "step_deadline_at = clock_timestamp()")
	shorten(t, pool, h.Run)
	b.Beat(t.Context())
	require.ErrorIs(t, context.Cause(ctx), fencing.ErrStepDeadline)
	require.Equal(t, 1, b.total().Overdue)
	require.Less(t, fencetest.Read(t, pool, h.Run).LeaseLeft, 2*time.Second)
}

// R6: the declared time ends the context without any beat, by the process's own stopwatch.
func TestKeeper_DeclaredTimeIsAlsoAStopwatch(t *testing.T) {
	t.Parallel()
	b := &beats{Keeper: fencing.NewKeeper(nil, always, nil)}
	ctx, h := b.Hold(t.Context(), uuid.Must(uuid.NewV7()), 1, time.Minute, 50*time.Millisecond, time.Now())
	defer h.Drop()
	<-ctx.Done()
	require.ErrorIs(t, context.Cause(ctx), fencing.ErrStepDeadline)
}

// F8: a slow commit of our own locks the row for longer than the lease. That is life, not loss.
func TestKeeper_LockedByOwnSlowCommit(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	const lease = 3 * time.Second
	b := keeper(t, pool, lease/4)
	ctx, h := b.hold(t, pool, lease)
	tx := fencetest.Begin(t, pool)
	require.NoError(t, receipts.StepFence{
		Run: h.Run, Kind: fencetest.Steps, Attempt: h.Attempt(), Step: receipts.Step{Name: "slow"}, Lease: lease, StepTime: time.Minute,
	}.Write(t.Context(), tx))
	stop := run(t, b)
	fencetest.Eventually(t, "six beats find it locked, for one and a half leases", func() bool { return b.total().Locked >= 6 })
	require.NoError(t, ctx.Err())
	require.False(t, h.Alive(), "the lease is not sure to last: the row was not renewed")
	require.NoError(t, tx.Commit(t.Context()))
	fencetest.Eventually(t, "renewed again", func() bool { return b.total().Renewed > 0 })
	stop()
	require.NoError(t, ctx.Err())
	require.Zero(t, b.total().Lost)
}

func run(t *testing.T, b *beats) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); b.Run(ctx) }()
	stop = func() { cancel(); <-done }
	t.Cleanup(stop)
	return stop
}

// Somebody else's lock on one row does not keep the others from being renewed.
func TestKeeper_OneLockedRowDelaysNobody(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	b := keeper(t, pool, always)
	var held []*fencing.Held
	for range 5 {
		_, h := b.hold(t, pool, fencetest.Lease)
		shorten(t, pool, h.Run)
		held = append(held, h)
	}
	holder := fencetest.Begin(t, pool)
	fencetest.Exec(t, holder, "select from weir.run where id = $1 for update", held[1].Run)
	began := time.Now()
	b.Beat(t.Context())
	require.Less(t, time.Since(began), 5*time.Second)
	require.Equal(t, 4, b.total().Renewed)
	require.Equal(t, 1, b.total().Locked)
	for i, h := range held {
		require.Equal(t, i != 1, fencetest.Read(t, pool, h.Run).LeaseLeft > 10*time.Second)
	}
}

// L9: one process holds its own lost run and the successor of it. The token tells them apart, not the run id.
func TestKeeper_SameRunTwiceInOneProcess(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	b := keeper(t, pool, always)
	oldCtx, old := b.hold(t, pool, fencetest.Lease)
	fencetest.Update(t, pool, old.Run, "attempt = attempt + 1")
	newCtx, successor := b.Hold(t.Context(), old.Run, old.Attempt()+1, fencetest.Lease, fencetest.Lease, time.Now())
	t.Cleanup(successor.Drop)
	shorten(t, pool, old.Run)
	b.Beat(t.Context())
	require.ErrorIs(t, context.Cause(oldCtx), fencing.ErrLeaseLost)
	require.NoError(t, newCtx.Err())
	require.Equal(t, 1, b.total().Renewed)
	require.Equal(t, 1, b.total().Lost)
	old.Drop()
	require.Equal(t, 1, b.Len(), "dropping the one keeps the other")
}

// R10: a beat that is under way while an unknown COMMIT is resolved finds a newer attempt than its own, or an older one
// than the token. Neither is a loss.
func TestKeeper_NoFalseLossWhileADoubtIsResolved(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	t.Run("the attempt is raised and the token not yet swapped", func(t *testing.T) {
		b := keeper(t, pool, always)
		ctx, h := b.hold(t, pool, fencetest.Lease)
		b.onConnect = func() {
			h.Skip()
			verdict, _, err := fencing.ResolveDoubt(context.Background(), pool, h.Run, h.Attempt(), fencetest.Lease)
			require.NoError(t, err)
			require.Equal(t, fencing.StillOwner, verdict)
		}
		b.Beat(t.Context())
		require.NoError(t, context.Cause(ctx))
		require.Zero(t, b.total().Lost)
		h.Swap(h.Attempt()+1, time.Now())
		b.Beat(t.Context())
		require.Equal(t, 1, b.total().Renewed)
	})
	t.Run("the row was read before the token was swapped", func(t *testing.T) {
		b := keeper(t, pool, always)
		ctx, h := b.hold(t, pool, fencetest.Lease)
		doubt := fencetest.Begin(t, pool)
		fencetest.Exec(t, doubt, "select from weir.run where id = $1 for no key update", h.Run)
		b.onQueryEnd = func(sql string) {
			if !strings.HasPrefix(sql, "select id, attempt") {
				return
			}
			require.NoError(t, doubt.Rollback(context.Background()))
			_, raised, err := fencing.ResolveDoubt(context.Background(), pool, h.Run, h.Attempt(), fencetest.Lease)
			require.NoError(t, err)
			h.Swap(raised, time.Now())
		}
		b.Beat(t.Context())
		require.NoError(t, context.Cause(ctx))
		require.Zero(t, b.total().Lost)
	})
}

// LF-09: beats race with the own finish, 2,000 times. A finish never fails for it, and no loss is reported.
func TestKeeper_OwnFinishIsNeverALoss(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	b := keeper(t, pool, always)
	runs := fencetest.InsertMany(t, pool, 2000, fencetest.Delivery, "pending", "")
	ctx, cancel := context.WithCancel(t.Context())
	var beating, finishing sync.WaitGroup
	beating.Go(func() {
		for ctx.Err() == nil {
			b.Beat(ctx)
		}
	})
	next := make(chan uuid.UUID)
	for range 4 {
		finishing.Go(func() {
			for id := range next {
				since := time.Now()
				c, ok, err := receipts.ClaimStarted(ctx, pool, fencetest.Request(fencetest.Delivery, id))
				if err != nil || !ok {
					t.Errorf("claim: %v %v", ok, err)
					continue
				}
				held, h := b.Hold(ctx, id, c.Attempt, fencetest.Lease, fencetest.Lease, since)
				h.Finishing()
				_, err = receipts.End{
					Event: fencing.Succeed, Run: id, Kind: fencetest.Delivery, Attempt: h.Attempt(), Step: sendStep, Outcome: receipts.OK,
				}.Write(ctx, pool)
				if err != nil || held.Err() != nil {
					t.Errorf("finish: %v, context: %v", err, context.Cause(held))
				}
				h.Drop()
			}
		})
	}
	for _, id := range runs {
		next <- id
	}
	close(next)
	finishing.Wait()
	cancel()
	beating.Wait()
	sum := b.total()
	require.NoError(t, sum.Err)
	require.Zero(t, sum.Lost)
	require.Positive(t, sum.Renewed, "no beat met a run")
	require.Equal(t, 2000, fencetest.Value[int](t, pool, "select count(*)::int from weir.run where status = 'sent'"))
}

// A shutdown ends the contexts of all runs that are held, and of those that are claimed while it goes on. They are held on, so that
// what their owners write last is still fenced by a lease.
func TestKeeper_EndAllEndsWhatIsHeldAndWhatComes(t *testing.T) {
	t.Parallel()
	k := fencing.NewKeeper(nil, time.Minute, nil)
	over := errors.New("over")
	before, a := k.Hold(t.Context(), uuid.New(), 1, time.Minute, time.Minute, time.Now())
	require.NoError(t, before.Err())
	k.EndAll(over)
	require.ErrorIs(t, context.Cause(before), over)
	after, b := k.Hold(t.Context(), uuid.New(), 1, time.Minute, time.Minute, time.Now())
	require.ErrorIs(t, context.Cause(after), over)
	require.ElementsMatch(t, []uuid.UUID{a.Run, b.Run}, k.Runs())
	require.True(t, a.Alive())
	a.Drop()
	b.Drop()
	require.Zero(t, k.Len())
}

// A process that wakes up when the step's time and the lease are both over says which was over first.
func TestHeld_EndsForWhatCameFirst(t *testing.T) {
	t.Parallel()
	k := fencing.NewKeeper(nil, time.Minute, nil)
	long := time.Now().Add(-time.Hour)
	for cause, times := range map[error][2]time.Duration{
		fencing.ErrLeaseLost: {time.Minute, 2 * time.Minute}, fencing.ErrStepDeadline: {2 * time.Minute, time.Minute},
	} {
		ctx, held := k.Hold(t.Context(), uuid.New(), 1, times[0], times[1], long)
		<-ctx.Done()
		require.ErrorIs(t, context.Cause(ctx), cause)
		held.Drop()
	}
}

// Renewals move both ends on, however often, and neither is forgotten: the stopwatch looks again when it rings.
func TestHeld_RenewalsMoveTheStopwatchOn(t *testing.T) {
	t.Parallel()
	k := fencing.NewKeeper(nil, time.Minute, nil)
	const unit = 300 * time.Millisecond
	for cause, times := range map[error][2]time.Duration{
		fencing.ErrLeaseLost: {4 * unit, 40 * unit}, fencing.ErrStepDeadline: {40 * unit, 4 * unit},
	} {
		t.Run(cause.Error(), func(t *testing.T) {
			t.Parallel()
			ctx, held := k.Hold(t.Context(), uuid.New(), 1, times[0], times[1], time.Now())
			defer held.Drop()
			var renewed time.Time
			for range 6 {
				time.Sleep(unit)
				renewed = time.Now()
				held.Renewed(renewed)
			}
			require.NoError(t, ctx.Err(), "it ended although it was renewed")
			require.Eventually(t, func() bool { return ctx.Err() != nil }, 20*time.Second, unit/10, "it never ended")
			require.ErrorIs(t, context.Cause(ctx), cause)
			require.GreaterOrEqual(t, time.Since(renewed), 3*unit, "too early")
		})
	}
}
