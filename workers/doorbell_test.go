package workers_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/riverqueue/river"
	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/internal/postgres/pgtest"
	"github.com/weirqueue/weir/jobs"
	"github.com/weirqueue/weir/workers"
	"github.com/weirqueue/weir/workers/channel"
)

// The table of the doorbell: what a try's end does to the run, and what River shows of it. Ada's name is in every
// error, and River must not see it.
func TestDoorbell_TryEnds(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	client := newClient(t, pool)
	personal := errors.New("550 ada@example.com is unknown")
	var log bytes.Buffer
	cfg := quickConfig(&fake{do: func(_ context.Context, m channel.Message, n int) (channel.Sent, error) {
		switch name, _, _ := strings.Cut(m.Address, "@"); name {
		case "refused":
			return channel.Sent{}, channel.Refused("smtp_550", personal)
		case "dead":
			return channel.Sent{}, channel.Temporary("smtp_451", personal)
		case "later":
			return channel.Sent{}, channel.Throttled(time.Hour, "smtp_421", personal)
		case "unknown":
			return channel.Sent{}, personal
		case "panic":
			panic(personal)
		case "retried":
			if n == 1 {
				return channel.Sent{}, channel.Temporary("smtp_451", personal)
			}
		}
		return taken()
	}})
	cfg.Logger = slog.New(slog.NewJSONHandler(&log, nil))
	p := start(t, pool, cfg)
	type want struct {
		status   jobs.Status
		code     string
		failures int
		receipt  string
		tries    []string
		job      []string
		river    string // in the job's errors
	}
	retries := []string{"available", "retryable", "scheduled"}
	cases := map[string]want{
		"sent":    {jobs.StatusSent, "", 0, "ok 1", []string{}, []string{"completed"}, ""},
		"retried": {jobs.StatusSent, "", 1, "ok 3", []string{"failed"}, []string{"completed"}, "smtp_451"},
		"refused": {jobs.StatusFailed, "smtp_550", 1, "failed 1", []string{"failed"}, []string{"cancelled"}, "smtp_550"},
		"dead":    {jobs.StatusDead, "smtp_451", 2, "failed 3", []string{"failed", "failed"}, []string{"cancelled"}, "smtp_451"},
		"unknown": {jobs.StatusDead, "unknown_outcome", 2, "unknown 3", []string{"failed", "failed"}, []string{"cancelled"}, "unknown_outcome"},
		"panic":   {jobs.StatusDead, "panic", 2, "unknown 3", []string{"failed", "failed"}, []string{"cancelled"}, "panic"},
		"later":   {jobs.StatusPending, "smtp_421", 0, "failed 1", []string{"snoozed"}, retries, ""},
	}
	ids := map[string]jobs.RunID{}
	for name := range cases {
		ids[name] = notify(t, client, name, &jobs.Opts{MaxAttempts: 2})
	}
	for name, w := range cases {
		id := ids[name]
		run := until(t, client, id, name, func(r *jobs.Run) bool { return r.Status == w.status && r.ErrorCode == w.code })
		require.Equal(t, w.failures, run.Failures, name)
		require.Equal(t, []string{w.receipt}, outcomes(t, client, id), name)
		require.Equal(t, w.tries, hows(t, client, id), name)
		j := untilJob(t, pool, *run.DoorbellID, w.job...)
		require.Contains(t, j.Errors, w.river, name)
		require.NotContains(t, j.Errors, "ada@", name)
		require.NotContains(t, j.Errors, ".go", "no stack in River")
		if w.code != "" {
			require.Contains(t, run.ErrorMessage, "ada@example.com", "the text is on the run: %s", name)
		}
	}
	require.Contains(t, get(t, client, ids["panic"]).ErrorMessage, "doorbell_test.go", "with the stack of a panic")
	later := get(t, client, ids["later"])
	j := jobByID(t, pool, *later.DoorbellID)
	require.Equal(t, 1, j.Snoozes)
	require.InDelta(t, 3600, j.DueIn, 60, "River rings when the database says that the run is due")
	require.InDelta(t, 3600, time.Until(*later.NextAttemptAt).Seconds(), 60)
	require.Empty(t, of[workers.LeaseLost](p.events))
	require.Zero(t, p.Held())

	require.NoError(t, p.stop())
	ended := 0
	for line := range strings.Lines(log.String()) {
		require.NotContains(t, line, "ada@")
		var said struct{ Msg, Run, Kind, Status, Code string }
		require.NoError(t, json.Unmarshal([]byte(line), &said))
		if said.Msg != "weir: a run has ended without success" {
			continue
		}
		ended++
		for name, id := range ids {
			if said.Run == id.String() {
				require.Equal(t, []string{"delivery", string(cases[name].status), cases[name].code}, []string{said.Kind, said.Status, said.Code})
			}
		}
	}
	require.Equal(t, 4, ended, "the log names each run that failed or is dead, once")
}

// A doorbell that rings for nothing changes nothing.
func TestDoorbell_RingsForNothing(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	client := newClient(t, pool)
	release := make(chan struct{})
	ch := &fake{do: func(ctx context.Context, m channel.Message, _ int) (channel.Sent, error) {
		if strings.HasPrefix(m.Address, "slow") {
			<-release
		}
		return taken()
	}}
	p := start(t, pool, quickConfig(ch))
	sent, slow := notify(t, client, "sent", nil), notify(t, client, "slow", nil)
	tomorrow := notify(t, client, "tomorrow", &jobs.Opts{ScheduledAt: time.Now().Add(24 * time.Hour)})
	before := untilStatus(t, client, sent, jobs.StatusSent)
	owned := untilStatus(t, client, slow, jobs.StatusProcessing)

	ring := func(run string) int64 {
		res, err := p.River().Insert(t.Context(), doorbellArgs{RunID: run, Channel: "email"}, &river.InsertOpts{Queue: "weir_delivery"})
		require.NoError(t, err)
		return res.Job.ID
	}
	j := untilJob(t, pool, ring(sent.String()), "completed")
	require.Empty(t, j.Errors)
	untilJob(t, pool, ring(slow.String()), "completed")
	// RV-21: an unknown run is nothing to do; arguments that cannot be read fail by themselves and stop nobody.
	unknown := uuid.Must(uuid.NewV7()).String()
	untilJob(t, pool, ring(unknown), "completed")
	malformed := ring("no uuid")
	require.NoError(t, eventually(func() bool { return jobByID(t, pool, malformed).Errors != "" }))
	early := untilJob(t, pool, ring(tomorrow.String()), "scheduled")
	require.InDelta(t, 24*3600, early.DueIn, 60)
	require.Equal(t, 1, early.Snoozes)

	require.Equal(t, []string{"terminal"}, p.events.notClaimed(sent))
	require.Equal(t, []string{"owned"}, p.events.notClaimed(slow))
	require.Equal(t, []string{"not_due"}, p.events.notClaimed(tomorrow))
	require.Equal(t, before, get(t, client, sent))
	require.Equal(t, owned.Attempt, get(t, client, slow).Attempt)
	require.Equal(t, []int{1, 1, 0}, []int{ch.sent(sent), ch.sent(slow), ch.sent(tomorrow)})
	close(release)
	untilStatus(t, client, slow, jobs.StatusSent)
	untilStatus(t, client, notify(t, client, "after", nil), jobs.StatusSent)
}

// doorbellArgs are a doorbell's, with an id that may be anything.
type doorbellArgs struct {
	RunID   string `json:"run_id"`
	Channel string `json:"channel"`
}

func (doorbellArgs) Kind() string { return "weir_delivery" }

// L7, UI-01: River UI's retry of a finished job answers from the record: nothing is sent again.
func TestDoorbell_RetryOfAFinishedJob(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	client := newClient(t, pool)
	ch := &fake{do: func(_ context.Context, m channel.Message, _ int) (channel.Sent, error) {
		if strings.HasPrefix(m.Address, "refused") {
			return channel.Sent{}, channel.Refused("smtp_550", errors.New("no"))
		}
		return taken()
	}}
	p := start(t, pool, quickConfig(ch))
	for _, name := range []string{"sent", "refused"} {
		id := notify(t, client, name, nil)
		run := until(t, client, id, "terminal", func(r *jobs.Run) bool { return r.Terminal() })
		untilJob(t, pool, *run.DoorbellID, "completed", "cancelled")
		_, err := p.River().JobRetry(t.Context(), *run.DoorbellID)
		require.NoError(t, err)
		require.NoError(t, eventually(func() bool { return len(p.events.notClaimed(id)) > 0 }))
		require.Equal(t, []string{"terminal"}, p.events.notClaimed(id))
		untilJob(t, pool, *run.DoorbellID, "completed")
		require.Equal(t, run, get(t, client, id))
		require.Equal(t, 1, ch.sent(id))
	}
}

// A process that lacks the channel leaves the delivery to one that has it, and says so on the run.
func TestDoorbell_MissingChannelBlocks(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	client := newClient(t, pool)
	incapable := start(t, pool, quickConfig(&fake{}))
	res, err := client.Notify(t.Context(), jobs.Notification{To: []jobs.Recipient{{Channel: "chat", Address: "1"}}, Text: "x"}, nil)
	require.NoError(t, err)
	id := res.Runs[0].ID
	run := until(t, client, id, "blocked", func(r *jobs.Run) bool { return r.BlockedReason != "" })
	require.Contains(t, run.BlockedReason, "chat")
	require.Equal(t, []any{jobs.StatusPending, 0, int64(0)}, []any{run.Status, run.Failures, run.Attempt})
	require.NoError(t, incapable.stop()) // its pauses grow to 30 s
	start(t, pool, quickConfig(nil, func(c *workers.Config) { c.Channels = map[string]channel.Channel{"chat": &fake{}} }))
	run = untilStatus(t, client, id, jobs.StatusSent)
	require.Empty(t, run.BlockedReason)
	require.Zero(t, run.Failures)
}

// A doorbell that rings soon after another one is heard at once too: it does not wait for the next poll.
func TestDoorbell_SoonAfterAnotherIsHeardAtOnce(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	client := newClient(t, pool)
	begun := make(chan string, 100)
	cfg := quickConfig(&fake{do: func(_ context.Context, m channel.Message, _ int) (channel.Sent, error) {
		begun <- m.Address
		return taken()
	}})
	// Nothing but an announcement finds a doorbell here.
	cfg.FetchPollInterval, cfg.DoorbellGrace = time.Hour, time.Hour
	start(t, pool, cfg)
	enqueue := func(address string) {
		_, err := client.Notify(t.Context(), jobs.Notification{To: []jobs.Recipient{{Channel: "email", Address: address}}, Subject: "s", Text: "t"}, nil)
		require.NoError(t, err)
	}
	begins := func(wait time.Duration) bool {
		select {
		case <-begun:
			return true
		case <-time.After(wait):
			return false
		}
	}
	sent := 1
	for enqueue("ada@example.com"); !begins(500 * time.Millisecond); sent++ { // until the fleet listens
		enqueue("ada@example.com")
	}
	for sent--; sent > 0; sent-- {
		require.True(t, begins(20*time.Second), "one of the first waits")
	}
	for range 5 {
		enqueue("ada@example.com")
		require.True(t, begins(20*time.Second), "it waits for a poll")
		time.Sleep(15 * time.Millisecond) // longer than the fleet's own cooldown
	}
}
