package workers_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/internal/postgres/pgtest"
	"github.com/weirqueue/weir/jobs"
	"github.com/weirqueue/weir/workers"
	"github.com/weirqueue/weir/workers/channel"
)

// theirArgs are of a kind of the application's own, which has nothing to do with Weir.
type theirArgs struct{}

func (theirArgs) Kind() string { return "theirs" }

type theirWorker struct {
	river.WorkerDefaults[theirArgs]
	worked *atomic.Int32
}

func (w theirWorker) Work(context.Context, *river.Job[theirArgs]) error {
	w.worked.Add(1)
	return nil
}

// theirClient is a River client with theirWorker.
func theirClient(t *testing.T, pool *pgxpool.Pool, worked *atomic.Int32, change func(*river.Config)) *river.Client[pgx.Tx] {
	t.Helper()
	cfg := &river.Config{
		Queues: map[string]river.QueueConfig{"theirs": {MaxWorkers: 5}}, Workers: river.NewWorkers(),
		FetchCooldown: 5 * time.Millisecond, FetchPollInterval: 100 * time.Millisecond, Logger: slog.New(slog.DiscardHandler),
	}
	river.AddWorker(cfg.Workers, theirWorker{worked: worked})
	change(cfg)
	client, err := river.NewClient(riverpgxv5.New(pool), cfg)
	require.NoError(t, err)
	return client
}

func startRiver(t *testing.T, client *river.Client[pgx.Tx]) {
	t.Helper()
	require.NoError(t, client.Start(context.Background()))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = client.StopAndCancel(ctx)
	})
}

func soon(t *testing.T, what string, ok func() bool) {
	t.Helper()
	require.Eventually(t, ok, 30*time.Second, 10*time.Millisecond, what)
}

func number(t *testing.T, pool *pgxpool.Pool, sql string, args ...any) (n int) {
	t.Helper()
	require.NoError(t, pool.QueryRow(t.Context(), sql, args...).Scan(&n), sql)
	return n
}

func TestRegister_InARiverClientOfTheApplicationsOwn(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	var theirs, sends atomic.Int32
	seen := &events{}
	var service *workers.Service
	rc := theirClient(t, pool, &theirs, func(c *river.Config) {
		var err error
		service, err = workers.Register(c.Workers, pool, &workers.Config{
			Channels: map[string]channel.Channel{"fn": sender(func(context.Context, channel.Message) (channel.Sent, error) {
				sends.Add(1)
				return channel.Sent{}, nil
			})},
			ReaperInterval: 200 * time.Millisecond, ShutdownGrace: time.Second, Logger: c.Logger, Observer: seen,
		})
		require.NoError(t, err)
		for name, queue := range service.Queues() {
			c.Queues[name] = queue
		}
		c.PeriodicJobs = append(service.PeriodicJobs(), river.NewPeriodicJob(river.PeriodicInterval(time.Hour),
			func() (river.JobArgs, *river.InsertOpts) { return theirArgs{}, &river.InsertOpts{Queue: "theirs"} },
			&river.PeriodicJobOpts{RunOnStart: true}))
	})
	client, err := jobs.NewClient(pool, nil)
	require.NoError(t, err)
	res, err := client.Notify(t.Context(), jobs.Notification{To: []jobs.Recipient{{Channel: "fn", Address: "x"}}, Text: "t"}, nil)
	require.NoError(t, err)

	// River first: nobody keeps leases yet, so nothing is claimed.
	require.Error(t, service.Healthy())
	startRiver(t, rc)
	soon(t, "rung", func() bool {
		return count(seen, func(e workers.RunNotClaimed) bool { return e.Reason == "stopping" }) > 0
	})
	require.Zero(t, mustGet(t, client, res.Runs[0].ID).Attempt)
	require.Zero(t, count(seen, all[workers.RunClaimed]))

	require.NoError(t, service.Start(t.Context()))
	require.Error(t, service.Start(t.Context()), "once")
	require.NoError(t, service.Healthy())
	require.Equal(t, jobs.StatusSent, waitFor(t, client, res.Runs[0].ID).Status)
	require.EqualValues(t, 1, sends.Load())

	soon(t, "the application's periodic job, and Weir's", func() bool {
		return theirs.Load() == 1 && count(seen, all[workers.RunsCleaned]) > 0 &&
			number(t, pool, "select count(*) from river_job where kind = 'reclaim-stale-deliveries' and state = 'completed'") > 0
	})

	require.NoError(t, service.Stop(t.Context()))
	require.Error(t, service.Healthy())
	_, err = rc.Insert(t.Context(), theirArgs{}, &river.InsertOpts{Queue: "theirs"})
	require.NoError(t, err)
	soon(t, "the application's own jobs go on after Weir's stop", func() bool { return theirs.Load() == 2 })
	res, err = client.Notify(t.Context(), jobs.Notification{To: []jobs.Recipient{{Channel: "fn", Address: "x"}}, Text: "t"}, nil)
	require.NoError(t, err)
	before := count(seen, func(e workers.RunNotClaimed) bool { return e.Reason == "stopping" })
	soon(t, "rung", func() bool {
		return count(seen, func(e workers.RunNotClaimed) bool { return e.Reason == "stopping" }) > before
	})
	require.Zero(t, mustGet(t, client, res.Runs[0].ID).Attempt, "nothing is claimed after the stop")
	require.EqualValues(t, 1, sends.Load())
	require.NoError(t, rc.Stop(t.Context()))
}

// RV-07: River's leader knows neither our kinds nor our periodic jobs. What its rescuer does with jobs of kinds it does
// not know, and what its scheduler does not do, costs no delivery.
func TestRiver_ALeaderThatLacksOurKindsLosesNothing(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	client, err := jobs.NewClient(pool, nil)
	require.NoError(t, err)
	var ids []jobs.RunID
	for _, subject := range []string{"stuck", "stuck", "waiting", "fails once"} {
		res, err := client.Notify(t.Context(), jobs.Notification{To: []jobs.Recipient{{Channel: "fn", Address: "x"}}, Subject: subject, Text: "t"}, nil)
		require.NoError(t, err)
		ids = append(ids, res.Runs[0].ID)
	}
	for _, id := range ids[:2] { // as a process that is gone left them
		_, err = pool.Exec(t.Context(), "update river_job set state = 'running', attempt = 1, attempted_at = now() - interval '2 h' where id = $1",
			*mustGet(t, client, id).DoorbellID)
		require.NoError(t, err)
	}
	var theirs atomic.Int32
	leader := theirClient(t, pool, &theirs, func(c *river.Config) {
		c.ID, c.FetchOnlyKnownKinds = "leader-without-weir", false
		c.JobTimeout, c.RescueStuckJobsAfter = time.Second, 2*time.Second
	})
	startRiver(t, leader)
	soon(t, "the leader discards jobs of kinds it does not know", func() bool {
		return number(t, pool, "select count(*) from river_job where state = 'discarded'") == 2
	})

	var failed atomic.Bool
	s := sail(t, pool, func(_ context.Context, m channel.Message) (channel.Sent, error) {
		if m.Subject == "fails once" && !failed.Swap(true) {
			return channel.Sent{}, channel.Temporary("smtp_451", errors.New("later"))
		}
		return channel.Sent{}, nil
	}, nil)
	for _, id := range ids {
		require.Equal(t, jobs.StatusSent, s.wait(id).Status)
	}
	require.Equal(t, jobs.StatusSent, s.wait(s.notify("new", &jobs.Opts{ScheduledAt: time.Now().Add(time.Second)})).Status)
	require.Equal(t, 1, number(t, pool, "select count(*) from river_leader where leader_id = 'leader-without-weir'"), "still the leader")
	_, err = leader.Insert(t.Context(), theirArgs{}, &river.InsertOpts{Queue: "theirs"})
	require.NoError(t, err)
	soon(t, "the leader's own jobs go on", func() bool { return theirs.Load() == 1 })
}

// A queue that an operator has paused is left alone: its doorbells live, so nothing is rung again.
func TestRiver_APausedQueueIsLeftAloneAndWorksAfterResume(t *testing.T) {
	t.Parallel()
	s := sail(t, pgtest.Pool(t), func(context.Context, channel.Message) (channel.Sent, error) { return channel.Sent{}, nil }, nil)
	require.Equal(t, jobs.StatusSent, s.wait(s.notify("before", nil)).Status)
	require.NoError(t, s.river.QueuePause(t.Context(), "weir_delivery", nil))
	var id jobs.RunID
	s.eventually("the pause is heeded", func() bool {
		id = s.notify("x", nil)
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		_, err := s.client.Wait(ctx, id)
		return errors.Is(err, context.DeadlineExceeded)
	})
	doorbell := *mustGet(t, s.client, id).DoorbellID
	n := count(s.events, all[workers.MaintenanceDone])
	s.eventually("many rounds of upkeep, beyond the doorbell's grace", func() bool {
		return count(s.events, all[workers.MaintenanceDone]) > n+12
	})
	run := mustGet(t, s.client, id)
	require.Equal(t, jobs.StatusPending, run.Status)
	require.Zero(t, run.Attempt)
	require.Equal(t, doorbell, *run.DoorbellID)
	require.Equal(t, "available", s.job(id).State)
	require.Zero(t, count(s.events, all[workers.DoorbellsRung]))
	require.NoError(t, s.river.QueueResume(t.Context(), "weir_delivery", nil))
	run = s.wait(id)
	require.Equal(t, jobs.StatusSent, run.Status)
	require.Equal(t, doorbell, *run.DoorbellID)
}

// RV-21: whoever may insert into River may write anything.
func TestRiver_JobsThatNameNoRunEndWithoutHarm(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	unknown := []string{`{"run_id": "00000000-0000-7000-8000-000000000001"}`, `{}`, `{"run_id": null}`, `{"run_id": "00000000-0000-7000-8000-000000000002", "channel": "nobody's"}`}
	malformed := []string{`[]`, `"x"`, `7`, `{"run_id": 5}`, `{"run_id": "not a uuid"}`, `{"run_id": {"a": [1]}}`, `{"channel": 1}`}
	for _, kind := range []string{"weir_delivery", "weir_order"} {
		queue := map[string]string{"weir_delivery": "weir_delivery", "weir_order": orderKind.Queue()}[kind]
		for _, args := range append(append([]string{}, unknown...), malformed...) {
			_, err := pool.Exec(t.Context(), "insert into river_job (args, kind, queue, max_attempts, state) values ($1::jsonb, $2, $3, 1, 'available')", args, kind, queue)
			require.NoError(t, err)
		}
	}
	s := sail(t, pool, func(context.Context, channel.Message) (channel.Sent, error) { return channel.Sent{}, nil },
		func(c *workers.Config) { c.Kinds = []workers.Binding{orderSteps{}.bind()} })
	s.eventually("all have ended", func() bool {
		return number(t, pool, "select count(*) from river_job where kind like 'weir\\_%' and state not in ('completed', 'discarded', 'cancelled')") == 0
	})
	require.GreaterOrEqual(t, count(s.events, func(e workers.RunNotClaimed) bool { return e.Reason == "unknown" }), 2*len(unknown))
	require.Zero(t, count(s.events, all[workers.RunClaimed]))
	require.Equal(t, jobs.StatusSent, s.wait(s.notify("a neighbour", nil)).Status)
	require.Zero(t, number(t, pool, "select count(*) from river_job where errors::text like '%panic%' or errors::text like '%goroutine%'"))
}

// RV-14: a run that somebody deletes while its handler runs is gone; nothing of it comes back.
func TestRun_DeletedUnderItsHandlerLeavesNothing(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	s := sail(t, pgtest.Pool(t), func(_ context.Context, m channel.Message) (channel.Sent, error) {
		if m.Subject == "deleted" {
			<-release
		}
		return channel.Sent{ExternalRef: "sent"}, nil
	}, func(c *workers.Config) { c.Delivery.StepTime = 20 * time.Second })
	id := s.notify("deleted", nil)
	s.eventually("running", func() bool { return count(s.events, all[workers.RunClaimed]) == 1 })
	doorbell := *mustGet(t, s.client, id).DoorbellID
	_, err := s.pool.Exec(t.Context(), "delete from weir.run where id = $1", id.String())
	require.NoError(t, err)
	close(release)
	s.eventually("refused", func() bool {
		return count(s.events, func(e workers.LeaseLost) bool { return e.Run == id && e.Write == "succeed" }) == 1
	})
	_, err = s.client.Get(t.Context(), id)
	require.ErrorIs(t, err, jobs.ErrNotFound)
	for _, table := range []string{"receipt", "payload", "ended_try"} {
		require.Zero(t, number(t, s.pool, "select count(*) from weir."+table+" where run_id = $1", id.String()), table)
	}
	s.eventually("River's job has ended", func() bool {
		return number(t, s.pool, "select count(*) from river_job where id = $1 and state = 'completed'", doorbell) == 1
	})
	require.Equal(t, jobs.StatusSent, s.wait(s.notify("a neighbour", nil)).Status)
	require.Equal(t, 1, count(s.events, all[workers.TryEnded]), "the neighbour's")
}

// NO-10: a provider that hangs does not silence the others, however much waits for it.
func TestChannels_OneThatHangsDoesNotSilenceAnother(t *testing.T) {
	t.Parallel()
	var hanging atomic.Int32
	s := sail(t, pgtest.Pool(t), func(context.Context, channel.Message) (channel.Sent, error) { return channel.Sent{}, nil },
		func(c *workers.Config) {
			c.Channels["hangs"] = sender(func(ctx context.Context, _ channel.Message) (channel.Sent, error) {
				hanging.Add(1)
				<-ctx.Done()
				return channel.Sent{}, channel.NotSent("hung", ctx.Err())
			})
			c.Delivery.Lease, c.Delivery.StepTime = time.Minute, time.Minute
		})
	to := make([]jobs.Recipient, 100)
	for i := range to {
		to[i] = jobs.Recipient{Channel: "hangs", Address: fmt.Sprint("x", i)}
	}
	for range 5 {
		_, err := s.client.Notify(t.Context(), jobs.Notification{To: to, Text: "t"}, nil)
		require.NoError(t, err)
	}
	s.eventually("half of the workers hang", func() bool { return hanging.Load() == 10 })
	for range 5 {
		began := time.Now()
		require.Equal(t, jobs.StatusSent, s.wait(s.notify("x", nil)).Status)
		require.Less(t, time.Since(began), 8*time.Second)
	}
	require.EqualValues(t, 10, hanging.Load())
}

// A process that lacks the channel leaves the run to one that has it, and says on the run why.
func TestChannels_ARunThatThisProcessCannotSendIsLeftToOneThatCan(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	var wrong, right atomic.Int32
	lacks := sail(t, pool, func(context.Context, channel.Message) (channel.Sent, error) {
		wrong.Add(1)
		return channel.Sent{}, nil
	}, func(c *workers.Config) {
		c.Channels = map[string]channel.Channel{"other": c.Channels["fn"]}
	})
	id := lacks.notify("x", &jobs.Opts{MaxAttempts: 1})
	lacks.eventually("blocked", func() bool { return mustGet(t, lacks.client, id).BlockedReason != "" })
	run := mustGet(t, lacks.client, id)
	require.Equal(t, "this process lacks channel:fn", run.BlockedReason)
	require.Equal(t, jobs.StatusPending, run.Status)
	n := count(lacks.events, func(e workers.RunNotClaimed) bool { return e.Reason == "blocked" })
	lacks.eventually("it comes back", func() bool {
		return count(lacks.events, func(e workers.RunNotClaimed) bool { return e.Reason == "blocked" }) > n+1
	})
	// Who gets the doorbell each time is chance: one of four, and the pauses grow.
	for range 3 {
		sail(t, pool, func(context.Context, channel.Message) (channel.Sent, error) {
			right.Add(1)
			return channel.Sent{}, nil
		}, nil)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	run, err := lacks.client.Wait(ctx, id)
	require.NoError(t, err)
	require.Equal(t, jobs.StatusSent, run.Status)
	require.Empty(t, run.BlockedReason)
	require.EqualValues(t, 1, run.Attempt)
	require.Zero(t, run.Failures)
	require.Zero(t, wrong.Load())
	require.EqualValues(t, 1, right.Load())
}
