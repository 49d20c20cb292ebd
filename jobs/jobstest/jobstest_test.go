package jobstest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/internal/postgres/pgtest"
	"github.com/weirqueue/weir/jobs"
)

// failure records what an assertion would fail a test with.
type failure struct{ text string }

func (f *failure) Helper() {}

func (f *failure) Fatalf(format string, args ...any) { f.text = fmt.Sprintf(format, args...) }

type order struct {
	Number int    `json:"number"`
	Name   string `json:"name"`
}

var orderKind = jobs.MustKind[order]("order", jobs.KindConfig{Steps: []jobs.Step{{Name: "book", Effect: jobs.Transactional}}})

// Each assertion holds for what is there, in a transaction that is not committed, and names what is wrong otherwise.
func TestRequireNotified(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	client, err := jobs.NewClient(pool, nil)
	require.NoError(t, err)
	tx, err := pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.Background()) }()
	at := time.Now().Add(time.Hour)
	ada, bob, eve := jobs.Email("ada@example.com"), jobs.Email("bob@example.com"), jobs.Email("eve@example.com")
	res, err := client.NotifyTx(t.Context(), tx, jobs.Notification{To: []jobs.Recipient{ada, bob}, Subject: "Your order", Text: "Number <4711>"},
		&jobs.Opts{Tags: []string{"order-4711"}, Queue: "slow", Priority: 2, MaxAttempts: 3, ScheduledAt: at})
	require.NoError(t, err)

	all := NotifiedOpts{Subject: "Your order", Contains: "<4711>", Opts: Opts{
		Tags: []string{"order-4711"}, Queue: "slow", Priority: 2, MaxAttempts: 3, ScheduledAt: at, Status: jobs.StatusPending,
	}}
	require.Equal(t, res.Runs[0].ID, RequireNotified(t.Context(), t, tx, ada, nil))
	require.Equal(t, res.Runs[1].ID, RequireNotified(t.Context(), t, tx, bob, &all))
	RequireNotNotified(t.Context(), t, tx, eve, nil)
	RequireNotNotified(t.Context(), t, pool, ada, nil) // not committed

	for name, change := range map[string]func(*NotifiedOpts){
		"subject":      func(o *NotifiedOpts) { o.Subject = "x" },
		"does not say": func(o *NotifiedOpts) { o.Contains = "0815" },
		"tags":         func(o *NotifiedOpts) { o.Tags = []string{} },
		"queue":        func(o *NotifiedOpts) { o.Queue = "x" },
		"priority":     func(o *NotifiedOpts) { o.Priority = 1 },
		"max attempts": func(o *NotifiedOpts) { o.MaxAttempts = 8 },
		"due":          func(o *NotifiedOpts) { o.ScheduledAt = at.Add(time.Second) },
		"status":       func(o *NotifiedOpts) { o.Status = jobs.StatusSent },
	} {
		opts := all
		change(&opts)
		var f failure
		requireNotified(t.Context(), &f, tx, ada, &opts)
		require.Contains(t, f.text, name+" ", name)
		require.Contains(t, f.text, res.Runs[0].ID.String(), "the failure shows what was enqueued instead")
		RequireNotNotified(t.Context(), t, tx, ada, &opts)
	}
	var f failure
	requireNotNotified(t.Context(), &f, tx, ada, nil)
	require.Contains(t, f.text, "was enqueued")
	requireNotified(t.Context(), &f, pool, ada, nil)
	require.Contains(t, f.text, "nothing of the kind was enqueued")
	_, err = client.NotifyTx(t.Context(), tx, jobs.Notification{To: []jobs.Recipient{ada}, Text: "again"}, nil)
	require.NoError(t, err)
	requireNotified(t.Context(), &f, tx, ada, nil)
	require.Contains(t, f.text, "2 times")
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	f = failure{}
	requireNotNotified(ended, &f, pool, ada, nil)
	require.Contains(t, f.text, "canceled", "what cannot be read is a failure, not an absence")
}

func TestRequireEnqueued(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	client, err := jobs.NewClient(pool, nil)
	require.NoError(t, err)
	res, err := client.Enqueue(t.Context(), orderKind.Of(order{4711, "<Ada> & co"}), &jobs.Opts{Priority: 3})
	require.NoError(t, err)
	require.Equal(t, res.Run.ID, RequireEnqueued(t.Context(), t, pool, orderKind, order{4711, "<Ada> & co"}, &Opts{Priority: 3}))
	RequireNotEnqueued(t.Context(), t, pool, orderKind, order{4712, ""}, nil)
	RequireNotEnqueued(t.Context(), t, pool, orderKind, order{4711, "<Ada> & co"}, &Opts{Priority: 2})
	var f failure
	requireEnqueued(t.Context(), &f, pool, "order", order{4712, ""}, nil)
	require.Contains(t, f.text, `"number":4711`)
	requireNotEnqueued(t.Context(), &f, pool, "order", order{4711, "<Ada> & co"}, nil)
	require.Contains(t, f.text, "was enqueued")
}
