package receipts_test

import (
	"fmt"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/internal/fencing"
	"github.com/weirqueue/weir/internal/fencing/fencetest"
	"github.com/weirqueue/weir/internal/postgres/pgtest"
	"github.com/weirqueue/weir/internal/receipts"
)

// never is a delivery that nobody has claimed yet.
func never(t *testing.T, pool *pgxpool.Pool, needs ...string) uuid.UUID {
	t.Helper()
	id := uuid.Must(uuid.NewV7())
	fencetest.Exec(t, pool, `insert into weir.run (id, root_id, kind, status, queue, max_failures, needs, next_attempt_at)
		values ($1, $1, 'delivery', 'pending', 'weir_delivery', 5, $2, clock_timestamp())`, id, append([]string{}, needs...))
	return id
}

func claimSend(t *testing.T, pool *pgxpool.Pool, run uuid.UUID) fencing.Claimed {
	t.Helper()
	c, ok, err := receipts.ClaimStarted(t.Context(), pool, fencetest.Request(fencetest.Delivery, run))
	require.NoError(t, err)
	require.True(t, ok)
	return c
}

func sent(run uuid.UUID, attempt int64, ref string) receipts.End {
	return receipts.End{
		Event: fencing.Succeed, Run: run, Kind: fencetest.Delivery, Attempt: attempt, Owner: "w", Step: receipts.Send, Outcome: receipts.OK, ExternalRef: ref,
	}
}

// said is every receipt of a run, as whoever asks for them gets it.
func said(t *testing.T, pool *pgxpool.Pool, run uuid.UUID) []string {
	t.Helper()
	list, err := receipts.List(t.Context(), pool, run)
	require.NoError(t, err)
	out := []string{}
	for _, r := range list {
		require.Equal(t, run, r.Run)
		require.False(t, r.RecordedAt.IsZero())
		out = append(out, fmt.Sprintf("%d %s %s %s %d %s", r.Step.Index, r.Step.Name, r.Step.Effect, r.Outcome, r.Attempt, r.ExternalRef))
	}
	return out
}

// A delivery whose first try goes well has the receipts that it would have had as rows, and no row: alone, and with others.
func TestSend_ARunThatGoesWellIsItsOwnReceipt(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	alone, many := never(t, pool), []uuid.UUID{never(t, pool), never(t, pool)}
	require.Empty(t, said(t, pool, alone), "nobody has begun it")
	for _, run := range append(many, alone) {
		claimSend(t, pool, run)
		require.Equal(t, []string{"0 send at_least_once started 1 "}, said(t, pool, run))
	}
	_, err := sent(alone, 1, "<alone>").Write(t.Context(), pool)
	require.NoError(t, err)
	got, err := receipts.SucceedMany(t.Context(), pool, []receipts.End{sent(many[0], 1, "<0>"), sent(many[1], 1, "")})
	require.NoError(t, err)
	require.Len(t, got, 2)
	for run, ref := range map[uuid.UUID]string{alone: "<alone>", many[0]: "<0>", many[1]: ""} {
		require.Equal(t, []string{"0 send at_least_once ok 1 " + ref}, said(t, pool, run))
		require.Empty(t, fencetest.Outcomes(t, pool, run), "a row says what the run says")
	}
}

// F1, L4: the run is the receipt of whoever owned it, and of nobody else.
func TestSend_AStaleOwnerIsNoReceipt(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	run, neighbour := never(t, pool), never(t, pool)
	claimSend(t, pool, run)
	claimSend(t, pool, neighbour)
	fencetest.Update(t, pool, run, "lease_expires_at = clock_timestamp() - interval '1 s'")
	reaped, err := fencetest.Reaper(t, pool).Reap(t.Context())
	require.NoError(t, err)
	require.Len(t, reaped, 1)
	_, err = sent(run, 1, "<stale>").Write(t.Context(), pool)
	require.ErrorIs(t, err, fencing.ErrLeaseLost)
	got, err := receipts.SucceedMany(t.Context(), pool, []receipts.End{sent(run, 1, "<stale>"), sent(neighbour, 1, "<b>")})
	require.NoError(t, err)
	require.Len(t, got, 1)
	require.Equal(t, []string{"0 send at_least_once unknown 1 "}, said(t, pool, run))
	require.Equal(t, []string{"0 send at_least_once ok 1 <b>"}, said(t, pool, neighbour))
}

// Whatever goes otherwise than well at once has a row, which every later owner finds.
func TestSend_WhatGoesOtherwiseHasARow(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	end := func(event fencing.Event, outcome receipts.Outcome) func(uuid.UUID) {
		return func(run uuid.UUID) {
			e := sent(run, 1, "")
			e.Event, e.Outcome, e.Code = event, outcome, "code"
			_, err := e.Write(t.Context(), pool)
			require.NoError(t, err)
		}
	}
	for name, c := range map[string]struct {
		do       func(uuid.UUID)
		rows     []string
		terminal bool
	}{
		"failed":   {end(fencing.FailTry, receipts.Failed), []string{"0 send failed 1"}, false},
		"unknown":  {end(fencing.FailTry, receipts.Unknown), []string{"0 send unknown 1"}, false},
		"snoozed":  {end(fencing.Snooze, receipts.Failed), []string{"0 send failed 1"}, false},
		"released": {end(fencing.Release, receipts.Failed), []string{}, false},
		"refused":  {end(fencing.Refuse, receipts.Failed), []string{"0 send failed 1"}, true},
		"reaped": {func(run uuid.UUID) {
			fencetest.Update(t, pool, run, "lease_expires_at = clock_timestamp() - interval '1 s'")
			_, err := fencetest.Reaper(t, pool).Reap(t.Context())
			require.NoError(t, err)
		}, []string{"0 send unknown 1"}, false},
	} {
		run := never(t, pool)
		claimSend(t, pool, run)
		c.do(run)
		require.Equal(t, c.rows, fencetest.Outcomes(t, pool, run), name)
		require.Len(t, said(t, pool, run), len(c.rows), name)
		if c.terminal {
			continue
		}
		fencetest.Update(t, pool, run, "next_attempt_at = clock_timestamp()")
		again := claimSend(t, pool, run)
		if len(c.rows) > 0 {
			require.Contains(t, c.rows[0], again.Before, name)
			require.NotEmpty(t, again.Before, name)
		}
		require.Equal(t, []string{"0 send at_least_once started 3 "}, said(t, pool, run), name)
		first := never(t, pool)
		claimSend(t, pool, first)
		got, err := receipts.SucceedMany(t.Context(), pool, []receipts.End{sent(run, 3, "<again>"), sent(first, 1, "<first>")})
		require.NoError(t, err)
		require.Len(t, got, 2)
		require.Equal(t, []string{"0 send ok 3"}, fencetest.Outcomes(t, pool, run), name)
		require.Equal(t, []string{"0 send at_least_once ok 3 <again>"}, said(t, pool, run), name)
		require.Equal(t, []string{"0 send at_least_once ok 1 <first>"}, said(t, pool, first), name)
		require.Empty(t, fencetest.Outcomes(t, pool, first), name)
	}
}

// R10: an owner whose COMMIT was in doubt goes on under another attempt; then a row says how that ended.
func TestSend_AnOwnAttemptThatWasRaisedHasARow(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	run := never(t, pool)
	claimSend(t, pool, run)
	verdict, raised, err := fencing.ResolveDoubt(t.Context(), pool, run, 1, fencetest.Lease)
	require.NoError(t, err)
	require.Equal(t, fencing.StillOwner, verdict)
	require.Equal(t, []string{"0 send at_least_once started 2 "}, said(t, pool, run))
	end := sent(run, raised, "<a>")
	end.Began = 1
	_, err = end.Write(t.Context(), pool)
	require.NoError(t, err)
	require.Equal(t, []string{"0 send ok 2"}, fencetest.Outcomes(t, pool, run))
}

// A channel of another effect says so in a row, and so do the parts of a message.
func TestSend_AnotherEffectHasARow(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	run := never(t, pool)
	claimSend(t, pool, run)
	end := sent(run, 1, "<a>")
	end.Step.Effect = receipts.Idempotent
	_, err := receipts.SucceedMany(t.Context(), pool, []receipts.End{end})
	require.NoError(t, err)
	require.Equal(t, []string{"0 send idempotent ok 1 <a>"}, said(t, pool, run))

	parts := never(t, pool, receipts.ManySteps)
	req := fencetest.Request(fencetest.Delivery, parts)
	req.Offers = []string{receipts.ManySteps}
	_, ok, err := receipts.ClaimStarted(t.Context(), pool, req)
	require.NoError(t, err)
	require.True(t, ok)
	require.Empty(t, said(t, pool, parts), "no part is begun")
	fencetest.Update(t, pool, parts, "lease_expires_at = clock_timestamp() - interval '1 s'")
	_, err = fencetest.Reaper(t, pool).Reap(t.Context())
	require.NoError(t, err)
	require.Empty(t, said(t, pool, parts), "no part was begun")
	_, ok, err = receipts.ClaimStarted(t.Context(), pool, req)
	require.NoError(t, err)
	require.True(t, ok)
	require.Empty(t, said(t, pool, parts), "no part is begun")
}

// F15: what its claim began may be outside, so a cancellation waits for the owner.
func TestSend_CancelWaitsForAFirstOwner(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	run := never(t, pool)
	claimSend(t, pool, run)
	done, err := cancel(t.Context(), pool, run)
	require.NoError(t, err)
	require.False(t, done)
	require.True(t, fencetest.Read(t, pool, run).Owned)

	waiting := never(t, pool)
	done, err = cancel(t.Context(), pool, waiting)
	require.NoError(t, err)
	require.True(t, done)
	require.Empty(t, said(t, pool, waiting), "nobody has begun it")
}
