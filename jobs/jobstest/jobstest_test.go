package jobstest_test

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/internal/postgres/pgtest"
	"github.com/weirqueue/weir/jobs"
	"github.com/weirqueue/weir/jobs/jobstest"
)

// recorder is a test that may fail without failing this one.
type recorder struct {
	testing.TB
	failure string
}

func (r *recorder) Helper() {}

func (r *recorder) Fatalf(format string, args ...any) {
	r.failure = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// failure is the message with which f fails its test; empty when it does not.
func failure(t *testing.T, f func(testing.TB)) string {
	t.Helper()
	r := &recorder{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		f(r)
	}()
	<-done
	return r.failure
}

type order struct {
	Item string `json:"item"`
}

var orderKind = jobs.MustKind[order]("order", jobs.KindConfig{Steps: []jobs.Step{{Name: "ship", Effect: jobs.AtLeastOnce}}})

func TestRequire_SeesWhatTheTransactionEnqueuedAndFailsForWhatItDidNot(t *testing.T) {
	t.Parallel()
	ctx, pool := t.Context(), pgtest.Pool(t)
	client, err := jobs.NewClient(pool, nil)
	require.NoError(t, err)
	tx, err := pool.Begin(ctx)
	require.NoError(t, err)
	_, err = client.NotifyTx(ctx, tx, jobs.Notification{To: []jobs.Recipient{jobs.Email("ada@example.com")}, Subject: "Your order", Text: "It is on its way."}, nil)
	require.NoError(t, err)
	_, err = client.EnqueueTx(ctx, tx, orderKind.Of(order{"pen"}), nil)
	require.NoError(t, err)

	ada, bob := jobstest.Want{Address: "ada@example.com"}, jobstest.Want{Address: "bob@example.com"}
	jobstest.RequireNotified(ctx, t, tx, ada)
	jobstest.RequireNotified(ctx, t, tx, jobstest.Want{Channel: "email", Address: "ada@example.com", Subject: "Your order", Text: "It is on its way."})
	jobstest.RequireNotNotified(ctx, t, tx, bob)
	jobstest.RequireNotNotified(ctx, t, pool, jobstest.Want{}) // not committed
	jobstest.RequireEnqueued(ctx, t, tx, orderKind, order{"pen"})

	said := failure(t, func(t testing.TB) { jobstest.RequireNotified(ctx, t, tx, bob) })
	require.Contains(t, said, "0 deliveries are like")
	require.Contains(t, said, `email to ada@example.com: "Your order"`)
	require.Contains(t, failure(t, func(t testing.TB) { jobstest.RequireNotNotified(ctx, t, tx, ada) }), "want none")
	require.Contains(t, failure(t, func(t testing.TB) { jobstest.RequireNotified(ctx, t, pool, ada) }), "there are: none")
	for _, w := range []jobstest.Want{{Channel: "telegram"}, {Subject: "x"}, {Text: "x"}} {
		require.NotEmpty(t, failure(t, func(t testing.TB) { jobstest.RequireNotified(ctx, t, tx, w) }), "%+v", w)
	}
	require.Contains(t, failure(t, func(t testing.TB) { jobstest.RequireEnqueued(ctx, t, tx, orderKind, order{"ink"}) }), `{"item":"pen"}`)

	_, err = client.EnqueueTx(ctx, tx, orderKind.Of(order{"pen"}), nil)
	require.NoError(t, err)
	require.Contains(t, failure(t, func(t testing.TB) { jobstest.RequireEnqueued(ctx, t, tx, orderKind, order{"pen"}) }), "2 runs of order")
	require.NoError(t, tx.Commit(ctx))
	jobstest.RequireNotified(ctx, t, pool, ada)
}
