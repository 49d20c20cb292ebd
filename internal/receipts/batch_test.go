package receipts_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/internal/fencing"
	"github.com/weirqueue/weir/internal/fencing/fencetest"
	"github.com/weirqueue/weir/internal/postgres/pgtest"
	"github.com/weirqueue/weir/internal/receipts"
)

// locked holds a run's row in another transaction for the rest of the test.
func locked(t *testing.T, pool *pgxpool.Pool, run uuid.UUID) {
	t.Helper()
	fencetest.Exec(t, fencetest.Begin(t, pool), "select from weir.run where id = $1 for update", run)
}

func claims(runs ...uuid.UUID) []fencing.ClaimRequest {
	out := make([]fencing.ClaimRequest, len(runs))
	for i, run := range runs {
		out[i] = fencetest.Request(fencetest.Delivery, run)
		out[i].Doorbell = int64(100 + i)
	}
	return out
}

// Each element of a batch is claimed exactly when it would be claimed alone, and a locked row delays nobody.
func TestClaimMany_EachElementForItself(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	insert := func(status fencing.Status, sets ...fencetest.Set) uuid.UUID {
		return fencetest.Insert(t, pool, fencetest.Delivery, status, sets...)
	}
	good, again := insert("pending"), insert("pending", "attempt = 20")
	owned, expired := insert("processing", fencetest.Owned), insert("processing", fencetest.Expired)
	later := insert("pending", "next_attempt_at = clock_timestamp() + interval '1 h'")
	suspect, sent, busy := insert("pending", "reaps = 3"), insert("sent"), insert("pending")
	lacking, other := insert("pending", "needs = '{telegram}'"), fencetest.Insert(t, pool, fencetest.Steps, "queued")
	locked(t, pool, busy)

	began := time.Now()
	list := claims(busy, other, lacking, sent, suspect, later, expired, owned, again, good, uuid.New())
	got, err := receipts.ClaimMany(t.Context(), pool, list, true)
	require.NoError(t, err)
	require.Less(t, time.Since(began), 5*time.Second, "nobody waits for the locked row")
	require.Len(t, got, 2)
	require.EqualValues(t, 8, got[good].Attempt)
	require.EqualValues(t, 21, got[again].Attempt)
	require.Equal(t, []string{"0 send started 21"}, fencetest.Outcomes(t, pool, again))
	for run, doorbell := range map[uuid.UUID]int64{again: 108, good: 109} {
		require.NotEmpty(t, got[run].Payload)
		row := fencetest.Read(t, pool, run)
		require.True(t, row.Owned)
		require.InDelta(t, fencetest.Lease.Seconds(), row.LeaseLeft.Seconds(), 5)
		require.Equal(t, doorbell, fencetest.Value[int64](t, pool, "select doorbell_id from weir.run where id = $1", run), "each has its own doorbell")
	}
	for _, run := range []uuid.UUID{owned, expired, later, suspect, sent, lacking, other} {
		require.Empty(t, fencetest.Outcomes(t, pool, run), "a receipt without a claim")
	}

	// The one suspect slot of a process is one element's.
	list = claims(suspect)
	list[0].Suspect = true
	got, err = receipts.ClaimMany(t.Context(), pool, list, false)
	require.NoError(t, err)
	require.Contains(t, got, suspect)
	require.Empty(t, fencetest.Outcomes(t, pool, suspect), "no step is started where none is named")
}

// F1, F9, L4: in a batch, too, whoever was replaced writes nothing, and its neighbours do.
func TestSucceedMany_AStaleElementWritesNothing(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	var ends []receipts.End
	add := func(run uuid.UUID, attempt int64, ref string) uuid.UUID {
		ends = append(ends, receipts.End{
			Event: fencing.Succeed, Run: run, Kind: fencetest.Delivery, Attempt: attempt, Step: send, Outcome: receipts.OK,
			ExternalRef: ref, StepOutput: json.RawMessage(`{"n": 1}`), Output: json.RawMessage(`"done"`),
		})
		return run
	}
	owned := func() uuid.UUID { return fencetest.Insert(t, pool, fencetest.Delivery, "processing", fencetest.Owned) }
	good := add(owned(), 7, "<a>")
	stale := add(owned(), 6, "<b>")
	future := add(owned(), 8, "<c>")
	free := add(fencetest.Insert(t, pool, fencetest.Delivery, "pending"), 7, "<d>")
	over := add(fencetest.Insert(t, pool, fencetest.Delivery, "sent"), 7, "<e>")
	busy := add(owned(), 7, "<f>")
	second := add(owned(), 7, "")
	add(uuid.New(), 7, "<g>")
	locked(t, pool, busy)
	was := map[uuid.UUID]fencetest.Row{}
	for _, run := range []uuid.UUID{stale, future, free, over, busy} {
		was[run] = fencetest.Read(t, pool, run)
	}

	got, err := receipts.SucceedMany(t.Context(), pool, ends)
	require.NoError(t, err)
	require.Equal(t, map[uuid.UUID]receipts.Ended{
		good: {Status: "sent", Attempt: 7, Terminal: true}, second: {Status: "sent", Attempt: 7, Terminal: true},
	}, got)
	for run, before := range was {
		require.Equal(t, before.RowChangedBy, fencetest.Read(t, pool, run).RowChangedBy)
		require.Empty(t, fencetest.Outcomes(t, pool, run), "a receipt without a fence")
	}
	require.Equal(t, []string{"0 send ok 7"}, fencetest.Outcomes(t, pool, good))
	require.Equal(t, `<a> {"n": 1} "done"`, fencetest.Value[string](t, pool,
		"select concat_ws(' ', t.external_ref, t.output, r.output) from weir.receipt t join weir.run r on r.id = t.run_id where r.id = $1", good))
	require.True(t, fencetest.Value[bool](t, pool, "select external_ref is null from weir.receipt where run_id = $1", second))

	got, err = receipts.SucceedMany(t.Context(), pool, ends[:1])
	require.NoError(t, err)
	require.Empty(t, got, "only once")
}

// Starting and settling outside steps together is what it is alone: what may be started again, and who may.
func TestStartMany_AndSettleMany(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	began := func(before receipts.Outcome) receipts.Outside {
		run, attempt := owned(t, pool)
		if before != "" {
			fencetest.Exec(t, pool, `insert into weir.receipt (run_id, step_index, attempt, outcome, effect, step_name)
				values ($1, 2, 3, $2, 'idempotent', 'issue')`, run, string(before))
		}
		return outside(run, attempt, receipts.Idempotent)
	}
	fresh, unknown, done, stale := began(""), began(receipts.Unknown), began(receipts.OK), began("")
	stale.Attempt--
	asked := began("")
	fencetest.Update(t, pool, asked.Run, "cancel_requested_at = clock_timestamp()")
	got, err := receipts.StartMany(t.Context(), pool, []receipts.Outside{fresh, unknown, done, stale, asked})
	require.NoError(t, err)
	require.Equal(t, map[uuid.UUID]receipts.Stood{
		fresh.Run: {Written: true}, unknown.Run: {Written: true}, done.Run: {}, asked.Run: {Written: true, CancelRequested: true},
	}, got)
	require.Empty(t, fencetest.Outcomes(t, pool, stale.Run))

	reconciled := began(receipts.Unknown)
	reconciled.Step.Effect = receipts.Reconciled
	got, err = receipts.StartMany(t.Context(), pool, []receipts.Outside{reconciled})
	require.NoError(t, err)
	require.Equal(t, map[uuid.UUID]receipts.Stood{reconciled.Run: {}}, got, "another one's unknown is asked about")

	settled, err := receipts.SettleMany(t.Context(), pool, []receipts.Settlement{
		{Outside: fresh, Output: json.RawMessage(`1`), ExternalRef: "ref"}, {Outside: unknown}, {Outside: stale}, {Outside: done},
	})
	require.NoError(t, err)
	require.Equal(t, map[uuid.UUID]receipts.Stood{fresh.Run: {Written: true}, unknown.Run: {Written: true}, done.Run: {Written: true}}, settled)
	require.Equal(t, []string{"2 issue ok 3"}, fencetest.Outcomes(t, pool, done.Run), "what is ok stays as it is")
	require.Equal(t, []string{"2 issue ok 8"}, fencetest.Outcomes(t, pool, fresh.Run))
	require.Equal(t, []string{"2 issue ok 8"}, fencetest.Outcomes(t, pool, unknown.Run))
	require.Empty(t, fencetest.Outcomes(t, pool, stale.Run))
}

// R12: batches that want the same runs in other orders do not block each other for ever.
func TestBatches_InOppositeOrdersDoNotDeadlock(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	for range 20 {
		runs := fencetest.InsertMany(t, pool, 50, fencetest.Delivery, "pending", "")
		backwards := make([]uuid.UUID, len(runs))
		for i, run := range runs {
			backwards[len(runs)-1-i] = run
		}
		type answer struct {
			got map[uuid.UUID]*fencing.Claimed
			err error
		}
		answers := make(chan answer, 2)
		for _, list := range [][]uuid.UUID{runs, backwards} {
			go func() {
				got, err := receipts.ClaimMany(t.Context(), pool, claims(list...), true)
				answers <- answer{got, err}
			}()
		}
		one, two := <-answers, <-answers
		require.NoError(t, one.err)
		require.NoError(t, two.err)
		require.LessOrEqual(t, len(one.got)+len(two.got), 50)
		for run := range one.got {
			require.NotContains(t, two.got, run, "two owners")
		}
	}
}
