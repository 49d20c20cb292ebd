package jobs_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/internal/postgres/pgtest"
	"github.com/weirqueue/weir/jobs"
)

// What is empty, huge or no text is refused by every function, by name, and nothing is written; a context that is over and a
// database without tables are errors like any other.
func TestBranches_WhatAnOutsiderTries(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	client := newClient(t, pool)
	register(t, client, "dev")
	before := rows(t, pool)
	huge, broken := strings.Repeat("x", 1<<20), "dev\xff"
	for _, name := range []string{huge, broken, "a\x00b"} {
		_, err := client.ResetBranch(t.Context(), jobs.Reset{Branch: name}, nil)
		require.ErrorIs(t, err, jobs.ErrInvalid)
		require.Less(t, len(err.Error()), 1000)
		require.ErrorIs(t, client.RemoveBranch(t.Context(), name), jobs.ErrInvalid)
		_, err = client.ResetsOfBranch(t.Context(), name, 0)
		require.ErrorIs(t, err, jobs.ErrInvalid)
		for _, b := range []jobs.Branch{
			{Name: name, Provider: "fake", Target: "t"}, {Name: "n", Provider: "fake", Target: name}, {Name: "n", Provider: "fake", Target: "t", Parent: name},
			{Name: "n", Provider: "fake", Target: "t", Project: name}, {Name: "n", Provider: name, Target: "t"},
		} {
			require.ErrorIs(t, client.RegisterBranch(t.Context(), b), jobs.ErrInvalid)
		}
	}
	require.ErrorIs(t, client.RegisterBranch(t.Context(), jobs.Branch{}), jobs.ErrInvalid)
	_, err := client.ResetBranch(t.Context(), jobs.Reset{}, nil)
	require.ErrorIs(t, err, jobs.ErrNoBranch)
	require.ErrorIs(t, client.RemoveBranch(t.Context(), ""), jobs.ErrNoBranch)
	for _, at := range []time.Time{{}, time.Unix(0, 0), time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC)} {
		_, err = client.ResetBranch(t.Context(), jobs.Reset{Branch: "dev", PointInTime: &at}, nil)
		require.ErrorIs(t, err, jobs.ErrInvalid)
	}
	for _, limit := range []int{-1, 501} {
		_, err = client.ResetsOfBranch(t.Context(), "dev", limit)
		require.ErrorIs(t, err, jobs.ErrInvalid)
	}
	list, err := client.ResetsOfBranch(t.Context(), "nobody", 0)
	require.NoError(t, err)
	require.Empty(t, list)
	_, err = client.GetBranchReset(t.Context(), jobs.RunID{})
	require.ErrorIs(t, err, jobs.ErrNotFound)
	require.Equal(t, before, rows(t, pool))

	over, cancel := context.WithCancel(t.Context())
	cancel()
	none := newClient(t, pgtest.Connect(t, pgtest.Empty(t)))
	for _, c := range []struct {
		client *jobs.Client
		ctx    context.Context
	}{{client, over}, {none, t.Context()}} {
		_, reset := c.client.ResetBranch(c.ctx, jobs.Reset{Branch: "dev"}, nil)
		_, read := c.client.GetBranchReset(c.ctx, jobs.RunID{1})
		_, branches := c.client.Branches(c.ctx)
		_, latest := c.client.LatestResets(c.ctx)
		_, history := c.client.ResetsOfBranch(c.ctx, "dev", 0)
		for i, err := range []error{
			reset, read, branches, latest, history, c.client.RegisterBranch(c.ctx, jobs.Branch{Name: "n", Provider: "fake", Target: "t"}),
			c.client.RemoveBranch(c.ctx, "dev"), c.client.CancelBranchReset(c.ctx, jobs.RunID{1}),
		} {
			require.Error(t, err, i)
			if c.ctx.Err() != nil {
				require.ErrorIs(t, err, context.Canceled, i)
			}
			require.False(t, errors.Is(err, jobs.ErrNoBranch) || errors.Is(err, jobs.ErrNotFound) || errors.Is(err, jobs.ErrInvalid), "%d: %v", i, err)
		}
	}
	require.Equal(t, before, rows(t, pool))
}

// A branch that somebody removes while others reset it is either gone before the reset or stays: no reset is in flight that no
// branch stands behind. Of two that register one target one is told.
func TestBranches_RegisterRemoveAndResetAtOnce(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t, pgtest.MaxConns(20))
	client := newClient(t, pool)
	const rounds = 20
	for i := range rounds {
		register(t, client, fmt.Sprint("dev", i))
	}
	resets, removals := make([]error, rounds), make([]error, rounds)
	inParallel(2*rounds, func(i int) {
		name := fmt.Sprint("dev", i/2)
		if i%2 == 0 {
			_, resets[i/2] = client.ResetBranch(t.Context(), jobs.Reset{Branch: name}, nil)
		} else {
			removals[i/2] = client.RemoveBranch(t.Context(), name)
		}
	})
	for i := range rounds {
		if resets[i] == nil {
			require.ErrorIs(t, removals[i], jobs.ErrInFlight)
		} else {
			require.ErrorIs(t, resets[i], jobs.ErrNoBranch)
			require.NoError(t, removals[i])
		}
	}
	require.Zero(t, value[int](t, pool, `select count(*)::int from weir.run r where not exists (select from weir.branch b where b.name = r.exclusive_key)`))

	errs := make([]error, rounds)
	inParallel(rounds, func(i int) {
		errs[i] = client.RegisterBranch(t.Context(), jobs.Branch{Name: fmt.Sprint("name", i), Provider: "fake", Target: "one"})
	})
	won := 0
	for _, err := range errs {
		if err == nil {
			won++
			continue
		}
		require.ErrorIs(t, err, jobs.ErrInvalid)
		require.ErrorContains(t, err, "has it")
	}
	require.Equal(t, 1, won)
}
