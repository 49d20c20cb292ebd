package workers_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/internal/postgres/pgtest"
	"github.com/weirqueue/weir/jobs"
	"github.com/weirqueue/weir/workers"
	"github.com/weirqueue/weir/workers/channel"
)

// brokenError cannot even say what it is.
type brokenError struct{ text *string }

func (e *brokenError) Error() string { return *e.text }

// L8, PG-01, PG-02: what PostgreSQL cannot store is cleaned, everywhere that it could get in, and the neighbours' jobs
// complete: one such byte would stop a whole batch of River's.
func TestUnstorable_IsCleaned(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	client := newClient(t, pool)
	bad := map[string]error{
		"nul":       channel.Refused("smtp\x00_550", errors.New("no\x00body")),
		"utf8":      channel.Refused("smtp_\xff550", errors.New("no\xffbody 🌊")),
		"half":      channel.Refused("smtp_\xf4\x8d", errors.New("half a rune \xf0\x9f\x8c")),
		"surrogate": channel.Refused("x", errors.New("\xed\xa0\xbd")),
		"long":      channel.Refused(strings.Repeat("c", 1<<20), errors.New(strings.Repeat("🌊", 1<<18))),
		"empty":     channel.Refused("", nil),
		"broken":    channel.Refused("broken", &brokenError{}),
		"secret":    channel.Refused("x", errors.New("dial smtp://ada:hunter2@host: bearer abcdefghijkl, password=hunter2")),
	}
	p := start(t, pool, quickConfig(&fake{do: func(_ context.Context, m channel.Message, _ int) (channel.Sent, error) {
		name, _, _ := strings.Cut(m.Address, "@")
		switch {
		case bad[name] != nil:
			return channel.Sent{}, bad[name]
		case name == "panic":
			panic("\x00\xff" + strings.Repeat("p", 1<<20))
		}
		return channel.Sent{ExternalRef: "<\x00\xff" + strings.Repeat("🌊", 1000) + ">"}, nil
	}}))
	ids := map[string]jobs.RunID{}
	for _, name := range []string{"nul", "utf8", "half", "surrogate", "long", "empty", "broken", "secret", "panic", "ok1", "ok2", "ok3"} {
		ids[name] = notify(t, client, name, &jobs.Opts{MaxAttempts: 1})
	}
	for name, id := range ids {
		run := until(t, client, id, name+" terminal", func(r *jobs.Run) bool { return r.Terminal() })
		require.True(t, utf8.ValidString(run.ErrorMessage+run.ErrorCode), name)
		require.LessOrEqual(t, len(run.ErrorMessage), 4<<10, name)
		require.LessOrEqual(t, len(run.ErrorCode), 100, name)
		require.NotContains(t, run.ErrorMessage, "hunter2")
		require.NotContains(t, run.ErrorMessage, "abcdefghijkl")
		j := untilJob(t, pool, *run.DoorbellID, "completed", "cancelled")
		require.Less(t, len(j.Errors), 1000, name)
		require.Equal(t, strings.HasPrefix(name, "ok"), j.State == "completed", name)
		if name != "panic" && bad[name] != nil {
			require.Equal(t, jobs.StatusFailed, run.Status, name)
			require.NotEmpty(t, run.ErrorCode, "a try that did not succeed has a code: %s", name)
		}
	}
	require.Contains(t, get(t, client, ids["utf8"]).ErrorMessage, "🌊", "what is fine is unharmed")
	receipts, err := client.Receipts(t.Context(), ids["ok1"])
	require.NoError(t, err)
	require.LessOrEqual(t, len(receipts[0].ExternalRef), 500)
	require.Contains(t, receipts[0].ExternalRef, "🌊")
	// Codes become labels of metrics, which take valid UTF-8 only.
	for _, e := range of[workers.TryEnded](p.events) {
		require.True(t, utf8.ValidString(e.Code) && len(e.Code) <= 100 && !strings.Contains(e.Code, "\x00"), "%.50q", e.Code)
	}
	require.Empty(t, of[workers.LeaseLost](p.events))
}
