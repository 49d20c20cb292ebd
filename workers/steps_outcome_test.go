package workers_test

import (
	"context"
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/internal/postgres/pgtest"
	"github.com/weirqueue/weir/jobs"
	"github.com/weirqueue/weir/workers"
)

func oneStep(effect jobs.Effect, budget int) *jobs.Kind[order] {
	return jobs.MustKind[order]("one", jobs.KindConfig{MaxAttempts: budget, Steps: []jobs.Step{{Name: "only", Effect: effect}}})
}

var quick = workers.KindConfig{Lease: 2 * time.Second, Backoff: workers.Backoff{First: 20 * time.Millisecond, Max: 50 * time.Millisecond}}

// runOne runs a kind of one step to its end.
func runOne(t *testing.T, effect jobs.Effect, budget int, step workers.StepFunc[order]) (*jobs.Run, []jobs.Receipt) {
	t.Helper()
	pool := pgtest.Pool(t)
	stockTables(t, pool)
	kind := oneStep(effect, budget)
	client := runKinds(t, pool, workers.Bind(kind, quick, step))
	res, err := client.Enqueue(t.Context(), kind.Of(order{"pen", 1}), nil)
	require.NoError(t, err)
	run := waitFor(t, client, res.Run.ID)
	receipts, err := client.Receipts(t.Context(), run.ID)
	require.NoError(t, err)
	return run, receipts
}

// PL-15: whoever finds somebody else's `started` asks, and never issues.
func TestSteps_ReconciledIsAskedAboutAndNeverIssuedTwice(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answers []func() (string, bool, error) // the last one repeats
		status  jobs.Status
		code    string
		fails   int
	}{
		"found":     {[]func() (string, bool, error){func() (string, bool, error) { return "parcel", true, nil }}, "succeeded", "", 1},
		"not found": {[]func() (string, bool, error){func() (string, bool, error) { return "", false, nil }}, "failed", "outcome_unknown", 2},
		"later": {[]func() (string, bool, error){
			func() (string, bool, error) { return "", false, workers.Later(time.Millisecond, nil) },
			func() (string, bool, error) { return "parcel", true, nil },
		}, "succeeded", "", 1},
		"error": {[]func() (string, bool, error){
			func() (string, bool, error) { return "", false, errors.New("no answer") },
			func() (string, bool, error) { panic("no answer either") },
			func() (string, bool, error) { return "parcel", true, nil },
		}, "succeeded", "", 3},
		"question not sent": {[]func() (string, bool, error){
			func() (string, bool, error) { return "", false, workers.NotSent(errors.New("no line")) },
			func() (string, bool, error) { return "parcel", true, nil },
		}, "succeeded", "", 2},
		"refused": {[]func() (string, bool, error){
			func() (string, bool, error) { return "", false, workers.Refuse("declined", errors.New("no")) },
		}, "failed", "declined", 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var issued, asked atomic.Int32
			run, receipts := runOne(t, jobs.Reconciled, 5, workers.Reconciled("only",
				func(context.Context, *workers.In[order]) (string, error) {
					issued.Add(1)
					panic("the connection broke after the request") // whether it arrived, nobody knows
				},
				func(context.Context, *workers.In[order]) (string, bool, error) {
					n := int(asked.Add(1))
					return c.answers[min(n, len(c.answers))-1]()
				}))
			require.Equal(t, c.status, run.Status, "%s: %s", run.ErrorCode, run.ErrorMessage)
			require.Equal(t, c.code, run.ErrorCode)
			require.Equal(t, c.fails, run.Failures)
			require.EqualValues(t, 1, issued.Load())
			require.Len(t, receipts, 1)
			if c.status == "succeeded" {
				require.Equal(t, "ok", receipts[0].Outcome)
				require.JSONEq(t, `"parcel"`, string(run.Output))
			} else {
				require.Equal(t, "unknown", receipts[0].Outcome)
			}
		})
	}
}

func TestSteps_ReconciledThatWasNotSentIsIssuedAgain(t *testing.T) {
	t.Parallel()
	var issued atomic.Int32
	run, _ := runOne(t, jobs.Reconciled, 5, workers.Reconciled("only",
		func(context.Context, *workers.In[order]) (string, error) {
			if issued.Add(1) == 1 {
				return "", workers.NotSent(errors.New("connection refused"))
			}
			return "parcel", nil
		},
		func(context.Context, *workers.In[order]) (string, bool, error) {
			panic("there is nothing to ask about")
		}))
	require.Equal(t, jobs.Status("succeeded"), run.Status, "%s: %s", run.ErrorCode, run.ErrorMessage)
	require.EqualValues(t, 2, issued.Load())
	require.Equal(t, 1, run.Failures)
}

// R11: what says nothing about the run burns no budget: a deadlock, a serialization failure, a lock timeout; nor does
// Later. Refuse ends the run at once.
func TestSteps_WhatBurnsBudgetAndWhatDoesNot(t *testing.T) {
	t.Parallel()
	raise := func(code string) string {
		return "do $$ begin raise exception 'in the way' using errcode = '" + code + "'; end $$"
	}
	for name, c := range map[string]struct {
		err    func(ctx context.Context, tx pgx.Tx) error
		status jobs.Status
		code   string
		fails  int
	}{
		"40P01":  {exec(raise("40P01")), "succeeded", "", 0},
		"40001":  {exec(raise("40001")), "succeeded", "", 0},
		"55P03":  {exec(raise("55P03")), "succeeded", "", 0},
		"later":  {func(context.Context, pgx.Tx) error { return workers.Later(time.Millisecond, nil) }, "succeeded", "", 0},
		"error":  {func(context.Context, pgx.Tx) error { return errors.New("no") }, "succeeded", "", 1},
		"panic":  {func(context.Context, pgx.Tx) error { panic("no") }, "succeeded", "", 1},
		"refuse": {func(context.Context, pgx.Tx) error { return workers.Refuse("no_stock", errors.New("no")) }, "failed", "no_stock", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var tries atomic.Int32
			run, _ := runOne(t, jobs.Transactional, 2, workers.Transactional("only", func(ctx context.Context, tx pgx.Tx, _ *workers.In[order]) (any, error) {
				if tries.Add(1) == 1 {
					return nil, c.err(ctx, tx)
				}
				return nil, nil
			}))
			require.Equal(t, c.status, run.Status, "%s: %s", run.ErrorCode, run.ErrorMessage)
			require.Equal(t, c.code, run.ErrorCode)
			require.Equal(t, c.fails, run.Failures)
		})
	}
}

func TestSteps_AStatementThatCannotBeIsAClearFailure(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		sql  workers.SQL
		want string
	}{
		"touches nothing":     {workers.SQL{Text: "update stock set n = 0 where item = 'none' returning n"}, "touched no row"},
		"its own writing":     {workers.SQL{Text: "with x as (update stock set n = 0 returning n) select n from x"}, "takes no writing WITH"},
		"too few parameters":  {workers.SQL{Text: "update stock set n = $1 where item = $2 returning n", Args: []any{1}}, "parameters without a value"},
		"too many parameters": {workers.SQL{Text: "update stock set n = $1 returning n", Args: []any{1, 2}}, "parameter $2"},
		"cannot be encoded":   {workers.SQL{Text: "update stock set n = $1 returning n", Args: []any{make(chan int)}}, "encode"},
		"syntax":              {workers.SQL{Text: "update"}, "syntax error"},
		"too large":           {workers.SQL{Text: "select repeat('x', 1100000) as big"}, "at most 1 MiB"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run, receipts := runOne(t, jobs.Transactional, 1, workers.Statement("only",
				func(context.Context, *workers.In[order]) (workers.SQL, error) { return c.sql, nil }))
			require.Equal(t, jobs.Status("failed"), run.Status)
			require.Contains(t, run.ErrorMessage, c.want)
			require.LessOrEqual(t, run.Attempt, int64(2), "the outcome was never in doubt, which raises the attempt")
			for _, r := range receipts {
				require.Equal(t, "failed", r.Outcome)
			}
		})
	}
}

// PL-13: an output that cannot be stored ends the run before its effect commits.
func TestSteps_UnstorableOutputCommitsNothing(t *testing.T) {
	t.Parallel()
	run, receipts := runOne(t, jobs.Transactional, 5, workers.Transactional("only", func(context.Context, pgx.Tx, *workers.In[order]) (any, error) {
		return math.NaN(), nil
	}))
	require.Equal(t, "output_unstorable", run.ErrorCode)
	require.Equal(t, "failed", receipts[0].Outcome)
}

// A payload that one step changes is untouched for the next, as it would be after a takeover.
func TestSteps_EachStepGetsThePayloadAsItWasFrozen(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	type list struct{ Items map[string]int }
	kind := jobs.MustKind[list]("lists", jobs.KindConfig{Steps: []jobs.Step{{Name: "a", Effect: jobs.AtLeastOnce}, {Name: "b", Effect: jobs.AtLeastOnce}}})
	var once sync.Once
	step := func(_ context.Context, in *workers.In[list]) (int, error) {
		n := in.Payload.Items["x"]
		once.Do(func() { in.Payload.Items["x"] = 2 })
		return n, nil
	}
	client := runKinds(t, pool, workers.Bind(kind, quick, workers.AtLeastOnce("a", step), workers.AtLeastOnce("b", step)))
	res, err := client.Enqueue(t.Context(), kind.Of(list{map[string]int{"x": 1}}), nil)
	require.NoError(t, err)
	require.JSONEq(t, "1", string(waitFor(t, client, res.Run.ID).Output))
}
