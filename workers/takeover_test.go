package workers_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/internal/postgres/pgtest"
	"github.com/weirqueue/weir/jobs"
	"github.com/weirqueue/weir/workers"
	"github.com/weirqueue/weir/workers/channel"
)

// L1, L2, L3, L9, RV-02: whatever a stale owner returns, late, changes nothing: not the run, not its receipt, not a River
// job. The first handler of each run ignores its context and outlives its step's deadline and its lease; the second, in
// the same process, sends.
func TestTakeover_LateReturnChangesNothing(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	client := newClient(t, pool)
	late := map[string]func() (channel.Sent, error){
		"nil":       func() (channel.Sent, error) { return channel.Sent{ExternalRef: "<stale>"}, nil },
		"error":     func() (channel.Sent, error) { return channel.Sent{}, errors.New("stale") },
		"temporary": func() (channel.Sent, error) { return channel.Sent{}, channel.Temporary("stale", errors.New("stale")) },
		"snooze":    func() (channel.Sent, error) { return channel.Sent{}, channel.Throttled(time.Hour, "stale", nil) },
		"refused":   func() (channel.Sent, error) { return channel.Sent{}, channel.Refused("stale", errors.New("stale")) },
		"panic":     func() (channel.Sent, error) { panic("stale") },
	}
	wake, returned := make(chan struct{}), make(chan struct{}, len(late))
	ch := &fake{do: func(_ context.Context, m channel.Message, n int) (channel.Sent, error) {
		if n > 1 {
			return taken()
		}
		<-wake
		name, _, _ := strings.Cut(m.Address, "@")
		defer func() { returned <- struct{}{} }()
		return late[name]()
	}}
	p := start(t, pool, quickConfig(ch, func(c *workers.Config) {
		c.Delivery.Lease, c.Delivery.StepTime = 2*time.Second, 2*time.Second
	}))
	ids := map[string]jobs.RunID{}
	first := map[string]int64{}
	for name := range late {
		ids[name] = notify(t, client, name, nil)
		first[name] = *get(t, client, ids[name]).DoorbellID
	}
	type state struct {
		run             *jobs.Run
		outcomes, tries []string
		sends           int
	}
	look := func(id jobs.RunID) state {
		return state{get(t, client, id), outcomes(t, client, id), hows(t, client, id), ch.sent(id)}
	}
	before := map[string]state{}
	for name, id := range ids {
		untilStatus(t, client, id, jobs.StatusSent)
		before[name] = look(id)
		require.Equal(t, "reaped", before[name].tries[0], name)
		require.Contains(t, before[name].outcomes[0], "ok")
		require.Equal(t, "discarded", jobByID(t, pool, first[name]).State, "the dead job is retired (D5)")
		untilJob(t, pool, *before[name].run.DoorbellID, "completed")
	}
	close(wake)
	for range late {
		<-returned
	}
	require.NoError(t, eventually(func() bool { return len(of[workers.LeaseLost](p.events)) >= len(late) }), "each refusal is reported")
	require.NoError(t, p.stop(), "River has written what it wanted to")
	for name, id := range ids {
		require.Equal(t, before[name], look(id), "nothing changed, and nothing was sent again: %s", name)
		j := jobByID(t, pool, first[name])
		require.Equal(t, "discarded", j.State, name)
		require.Contains(t, j.Errors, "lease expired", name)
		require.Equal(t, "completed", jobByID(t, pool, *before[name].run.DoorbellID).State, name)
	}
	require.GreaterOrEqual(t, len(of[workers.RunReaped](p.events)), len(late), "takeovers")
}

// LF-08: the context of work whose time is over ends, with a cause that says so.
func TestTakeover_ContextEndsAtTheStepsDeadline(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	client := newClient(t, pool)
	causes := make(chan error, 1)
	p := start(t, pool, quickConfig(&fake{do: func(ctx context.Context, _ channel.Message, n int) (channel.Sent, error) {
		if n > 1 {
			return taken()
		}
		<-ctx.Done()
		causes <- context.Cause(ctx)
		return channel.Sent{}, ctx.Err()
	}}, func(c *workers.Config) { c.Delivery.StepTime = 300 * time.Millisecond }))
	id := notify(t, client, "slow", nil)
	run := untilStatus(t, client, id, jobs.StatusSent)
	require.ErrorContains(t, <-causes, "declared time")
	require.Equal(t, 1, run.Failures, "a step that takes too long is a failed try")
	tries, err := client.Tries(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, "step_deadline", tries[0].ErrorCode)
	require.Empty(t, of[workers.RunReaped](p.events))
}

// L10, NO-01: a claim that committed and whose answer never came is recovered by its lease alone. The doorbell is
// completed, as River has it then.
func TestTakeover_ClaimWhoseAnswerWasLost(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	client := newClient(t, pool)
	id := notify(t, client, "x", nil)
	execSQL(t, pool, `update weir.run set status = 'processing', attempt = 1, lease_owner = 'gone:1:x', next_attempt_at = 'infinity',
		claimed_at = clock_timestamp(), lease_expires_at = clock_timestamp() + interval '1 s', step_deadline_at = clock_timestamp() + interval '1 h' where id = $1`, id.String())
	execSQL(t, pool, "update river_job set state = 'completed', finalized_at = now()")
	ch := &fake{}
	start(t, pool, quickConfig(ch))
	run := untilStatus(t, client, id, jobs.StatusSent)
	require.Equal(t, []any{int64(3), 0, 1}, []any{run.Attempt, run.Failures, ch.sent(id)})
	tries, err := client.Tries(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, []any{"reaped", "gone:1:x"}, []any{tries[0].How, tries[0].Owner})
}

// L11: a worker whose clock was hours ahead put the doorbell off for hours. The run is due by the database's clock, and
// the sweep rings.
func TestSweep_RingsAgain(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	client := newClient(t, pool)
	cases := map[string]string{
		"skewed available": "update river_job set scheduled_at = now() + interval '3 h' where id = $1",
		"skewed scheduled": "update river_job set state = 'scheduled', scheduled_at = now() + interval '3 h' where id = $1",
		"skewed retryable": "update river_job set state = 'retryable', scheduled_at = now() + interval '3 h' where id = $1",
		"deleted":          "delete from river_job where id = $1",
		"completed":        "update river_job set state = 'completed', finalized_at = now() where id = $1",
		"discarded":        "update river_job set state = 'discarded', finalized_at = now() where id = $1",
		"cancelled by SQL": "update river_job set state = 'cancelled', finalized_at = now() where id = $1",
		// River itself rescues what has run for an hour, and may be first.
		"left running": "update river_job set state = 'running', attempt = 1, attempted_at = now() - interval '50 min', attempted_by = '{gone}' where id = $1",
	}
	ids := map[string]jobs.RunID{}
	for name, sql := range cases {
		ids[name] = notify(t, client, "x", nil)
		execSQL(t, pool, sql, *get(t, client, ids[name]).DoorbellID)
	}
	ch := &fake{}
	p := start(t, pool, quickConfig(ch, func(c *workers.Config) { c.DoorbellGrace = 500 * time.Millisecond }))
	for name, id := range ids {
		run := untilStatus(t, client, id, jobs.StatusSent)
		require.Equal(t, []any{int64(1), 0}, []any{run.Attempt, run.Failures}, name)
		require.Equal(t, 1, ch.sent(id), name)
	}
	require.NoError(t, eventually(func() bool { // the last run may be sent before the sweep has said that it rang
		rang := 0
		for _, e := range of[workers.DoorbellsRung](p.events) {
			rang += e.Runs
		}
		return rang >= len(cases)
	}))
}

// A queue that an operator has paused is left alone: nothing is rung again, and nothing is lost.
func TestSweep_LeavesAPausedQueueAlone(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	client := newClient(t, pool)
	p := start(t, pool, quickConfig(&fake{}))
	require.NoError(t, eventually(func() bool {
		return value[bool](t, pool, "select exists (select from river_queue where name = 'weir_delivery')")
	}))
	require.NoError(t, p.River().QueuePause(t.Context(), "weir_delivery", nil))
	paused := func() bool {
		return value[bool](t, pool, "select exists (select from river_queue where name = 'weir_delivery' and paused_at is not null)")
	}
	require.NoError(t, eventually(paused))
	// The producer hears of it a moment later: ask until a delivery stays.
	var id jobs.RunID
	require.NoError(t, eventually(func() bool {
		id = notify(t, client, "x", nil)
		rounds := len(of[workers.MaintenanceDone](p.events))
		_ = eventually(func() bool { return len(of[workers.MaintenanceDone](p.events)) > rounds+1 })
		return get(t, client, id).Status == jobs.StatusPending
	}))
	execSQL(t, pool, "update weir.run set next_attempt_at = next_attempt_at - interval '1 h' where id = $1", id.String())
	doorbell := *get(t, client, id).DoorbellID
	rounds := len(of[workers.MaintenanceDone](p.events))
	require.NoError(t, eventually(func() bool { return len(of[workers.MaintenanceDone](p.events)) > rounds+3 }))
	require.Empty(t, of[workers.DoorbellsRung](p.events))
	require.Equal(t, doorbell, *get(t, client, id).DoorbellID)
	require.NoError(t, p.River().QueueResume(t.Context(), "weir_delivery", nil))
	untilStatus(t, client, id, jobs.StatusSent)
}

// RV-14: whatever is deleted under a running handler, nothing panics, no orphan stays, and the others go on.
func TestTakeover_DeletedUnderARunningHandler(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	client := newClient(t, pool)
	entered, wake := make(chan struct{}, 2), make(chan struct{})
	p := start(t, pool, quickConfig(&fake{do: func(_ context.Context, m channel.Message, _ int) (channel.Sent, error) {
		if !strings.HasPrefix(m.Address, "after") {
			entered <- struct{}{}
			<-wake
		}
		return taken()
	}}))
	noRun, noJob := notify(t, client, "norun", nil), notify(t, client, "nojob", nil)
	<-entered
	<-entered
	execSQL(t, pool, "delete from weir.run where id = $1", noRun.String())
	execSQL(t, pool, "delete from river_job where id = $1", *get(t, client, noJob).DoorbellID)
	close(wake)
	untilStatus(t, client, noJob, jobs.StatusSent)
	require.NoError(t, eventually(func() bool { return len(of[workers.LeaseLost](p.events)) == 1 }))
	untilStatus(t, client, notify(t, client, "after", nil), jobs.StatusSent)
	require.Equal(t, "0 0 0", value[string](t, pool, `select (select count(*) from weir.receipts where run_id = $1) || ' ' ||
		(select count(*) from weir.payload where run_id = $1) || ' ' || (select count(*) from weir.ended_try where run_id = $1)`, noRun.String()))
	require.NoError(t, p.stop())
}
