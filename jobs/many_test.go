package jobs_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/internal/postgres/pgtest"
	"github.com/weirqueue/weir/jobs"
)

type parcel struct {
	N int `json:"n"`
}

var parcelKind = jobs.MustKind[parcel]("parcel", jobs.KindConfig{Steps: []jobs.Step{{Name: "send", Effect: jobs.Transactional}}})

func parcels(n int, opts func(i int) *jobs.Opts) []jobs.EnqueueParams {
	out := make([]jobs.EnqueueParams, n)
	for i := range out {
		out[i] = jobs.EnqueueParams{Request: parcelKind.Of(parcel{i}), Opts: opts(i)}
	}
	return out
}

func newParcelClient(t *testing.T, opts ...pgtest.Option) (*jobs.Client, *pgxpool.Pool) {
	pool := pgtest.Pool(t, opts...)
	client, err := jobs.NewClient(pool, nil)
	require.NoError(t, err)
	return client, pool
}

type countQueries struct{ n atomic.Int64 }

func (c *countQueries) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	c.n.Add(1)
	return ctx
}
func (c *countQueries) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// Ten thousand runs, their repeat, and a refusal of each cost a bounded number of statements.
func TestEnqueueMany_TenThousandInFewStatements(t *testing.T) {
	t.Parallel()
	var count countQueries
	client, pool := newParcelClient(t, pgtest.Config(func(c *pgxpool.Config) { c.ConnConfig.Tracer = &count }))
	keyed := parcels(jobs.MaxEnqueue, func(i int) *jobs.Opts {
		return &jobs.Opts{IdempotencyKey: fmt.Sprint("k", i), ExclusiveKey: fmt.Sprint("x", i)}
	})
	first, err := client.EnqueueMany(t.Context(), keyed)
	require.NoError(t, err)
	again, err := client.EnqueueMany(t.Context(), keyed)
	require.NoError(t, err)
	refused, err := client.EnqueueMany(t.Context(), parcels(jobs.MaxEnqueue, func(i int) *jobs.Opts { return &jobs.Opts{ExclusiveKey: fmt.Sprint("x", i)} }))
	require.NoError(t, err)
	require.Less(t, count.n.Load(), int64(100))
	for i := range first {
		require.False(t, first[i].Existing)
		require.True(t, again[i].Existing)
		require.Equal(t, first[i].Run.ID, again[i].Run.ID)
		var held *jobs.ExclusiveError
		require.ErrorAs(t, refused[i].Err, &held)
		require.Equal(t, first[i].Run.ID, held.Run)
	}
	var runs, bells int
	require.NoError(t, pool.QueryRow(t.Context(), "select (select count(*) from weir.run), (select count(*) from river_job)").Scan(&runs, &bells))
	require.Equal(t, jobs.MaxEnqueue, runs)
	require.Equal(t, jobs.MaxEnqueue, bells)
	_, err = client.EnqueueMany(t.Context(), append(keyed, keyed[0]))
	require.ErrorIs(t, err, jobs.ErrInvalid)
}

func TestEnqueueMany_EachRequestHasItsOwnAnswer(t *testing.T) {
	t.Parallel()
	client, pool := newParcelClient(t)
	held, err := client.Enqueue(t.Context(), parcelKind.Of(parcel{0}), &jobs.Opts{ExclusiveKey: "x", IdempotencyKey: "k"})
	require.NoError(t, err)
	res, err := client.EnqueueMany(t.Context(), []jobs.EnqueueParams{
		{Request: parcelKind.Of(parcel{0}), Opts: &jobs.Opts{IdempotencyKey: "k", ExclusiveKey: "x"}}, // 0 is there
		{Request: parcelKind.Of(parcel{1}), Opts: &jobs.Opts{IdempotencyKey: "k"}},                    // 1 reused
		{Request: parcelKind.Of(parcel{2}), Opts: &jobs.Opts{ExclusiveKey: "x", IdempotencyKey: "l"}}, // 2 held
		{Request: parcelKind.Of(parcel{2}), Opts: &jobs.Opts{IdempotencyKey: "l"}},                    // 3 repeats 2
		{Request: parcelKind.Of(parcel{4}), Opts: &jobs.Opts{IdempotencyKey: "m"}},                    // 4 new
		{Request: parcelKind.Of(parcel{4}), Opts: &jobs.Opts{IdempotencyKey: "m"}},                    // 5 repeats 4
		{Request: parcelKind.Of(parcel{6}), Opts: &jobs.Opts{IdempotencyKey: "m"}},                    // 6 not what 4 is
		{Request: parcelKind.Of(parcel{7}), Opts: &jobs.Opts{ExclusiveKey: "y"}},                      // 7 new
		{Request: parcelKind.Of(parcel{8}), Opts: &jobs.Opts{ExclusiveKey: "y"}},                      // 8 held by 7
		{Request: parcelKind.Of(parcel{9})},                                                           // 9 new
	})
	require.NoError(t, err)
	require.True(t, res[0].Existing)
	require.Equal(t, held.Run.ID, res[0].Run.ID)
	require.ErrorIs(t, res[1].Err, jobs.ErrKeyReused)
	require.ErrorIs(t, res[2].Err, jobs.ErrExclusive)
	require.ErrorIs(t, res[3].Err, jobs.ErrExclusive)
	require.NoError(t, res[4].Err)
	require.True(t, res[5].Existing)
	require.Equal(t, res[4].Run.ID, res[5].Run.ID)
	var reused *jobs.KeyReusedError
	require.ErrorAs(t, res[6].Err, &reused)
	require.Equal(t, res[4].Run.ID, reused.Run)
	var exclusive *jobs.ExclusiveError
	require.ErrorAs(t, res[8].Err, &exclusive)
	require.Equal(t, res[7].Run.ID, exclusive.Run)
	var runs, bells, keys int
	require.NoError(t, pool.QueryRow(t.Context(), "select (select count(*) from weir.run), (select count(*) from river_job), (select count(*) from weir.key)").Scan(&runs, &bells, &keys))
	require.Equal(t, []int{4, 4, 2}, []int{runs, bells, keys}, "the refused ones gave their keys and doorbells back")
}

func TestEnqueue_FiftyRacersAndOneLiveRun(t *testing.T) {
	t.Parallel()
	client, pool := newParcelClient(t)
	var (
		wg         sync.WaitGroup
		made, held atomic.Int32
	)
	for i := range 50 {
		wg.Go(func() {
			_, err := client.Enqueue(t.Context(), parcelKind.Of(parcel{i}), &jobs.Opts{ExclusiveKey: "x"})
			switch {
			case err == nil:
				made.Add(1)
			case errors.Is(err, jobs.ErrExclusive):
				held.Add(1)
			default:
				t.Error(err)
			}
		})
	}
	wg.Wait()
	require.EqualValues(t, 1, made.Load())
	require.EqualValues(t, 49, held.Load())
	var bells int
	require.NoError(t, pool.QueryRow(t.Context(), "select count(*) from river_job").Scan(&bells))
	require.Equal(t, 1, bells)
}

func TestEnqueueMany_OppositeOrdersDoNotDeadlock(t *testing.T) {
	t.Parallel()
	client, pool := newParcelClient(t)
	for round := range 20 {
		params := parcels(50, func(i int) *jobs.Opts {
			return &jobs.Opts{IdempotencyKey: fmt.Sprint(round, "k", i), ExclusiveKey: fmt.Sprint(round, "x", i)}
		})
		opposite := slices.Clone(params)
		slices.Reverse(opposite)
		var wg sync.WaitGroup
		for _, p := range [][]jobs.EnqueueParams{params, opposite, params, opposite} {
			wg.Go(func() {
				res, err := client.EnqueueMany(t.Context(), p)
				if err != nil {
					t.Error(err)
				}
				for _, r := range res {
					if r.Err != nil {
						t.Error(r.Err)
					}
				}
			})
		}
		wg.Wait()
	}
	var runs int
	require.NoError(t, pool.QueryRow(t.Context(), "select count(*) from weir.run").Scan(&runs))
	require.Equal(t, 20*50, runs)
}
