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
	for _, f := range []jobs.BranchFilter{{Limit: -1}, {Limit: 501}, {After: "a\x00"}, {After: "\xff"}, {After: strings.Repeat("x", 201)}} {
		_, err = client.ListBranches(t.Context(), f)
		require.ErrorIs(t, err, jobs.ErrInvalid, "%+v", f)
	}
	_, err = client.GetBranch(t.Context(), "nobody")
	require.ErrorIs(t, err, jobs.ErrNoBranch)
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
		_, page := c.client.ListBranches(c.ctx, jobs.BranchFilter{})
		_, one := c.client.GetBranch(c.ctx, "dev")
		_, history := c.client.ResetsOfBranch(c.ctx, "dev", 0)
		for i, err := range []error{
			reset, read, branches, page, one, history, c.client.RegisterBranch(c.ctx, jobs.Branch{Name: "n", Provider: "fake", Target: "t"}),
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

// Pages of branches have each branch once, with its newest reset, and one that goes or comes meanwhile moves no other one.
func TestListBranches_EachIsOnOnePage(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	client := newClient(t, pool)
	empty, err := client.ListBranches(t.Context(), jobs.BranchFilter{})
	require.NoError(t, err)
	require.Equal(t, &jobs.BranchPage{Branches: []jobs.BranchStanding{}}, empty)
	for _, name := range []string{"a", "B", "c d", "é", "Z", "z", "z/1", "😀"} {
		register(t, client, name)
	}
	all, err := client.Branches(t.Context())
	require.NoError(t, err)
	require.Len(t, all, 8)
	first, err := client.ResetBranch(t.Context(), jobs.Reset{Branch: all[2].Name}, nil)
	require.NoError(t, err)
	require.NoError(t, client.CancelBranchReset(t.Context(), first.Run.ID))
	second, err := client.ResetBranch(t.Context(), jobs.Reset{Branch: all[2].Name}, nil)
	require.NoError(t, err)

	for limit := 1; limit <= 9; limit++ {
		var seen []jobs.Branch
		f := jobs.BranchFilter{Limit: limit}
		for {
			page, err := client.ListBranches(t.Context(), f)
			require.NoError(t, err)
			require.LessOrEqual(t, len(page.Branches), limit)
			for _, b := range page.Branches {
				seen = append(seen, b.Branch)
				require.Equal(t, b.Name == all[2].Name, b.Last != nil, b.Name)
				if b.Last != nil {
					require.Equal(t, second.Run.ID, b.Last.ID, "the newest")
				}
			}
			if f.After = page.Next; page.Next == "" {
				break
			}
		}
		require.Equal(t, all, seen, "pages of %d", limit)
	}
	page, err := client.ListBranches(t.Context(), jobs.BranchFilter{Limit: 4})
	require.NoError(t, err)
	require.NoError(t, client.RemoveBranch(t.Context(), page.Next))
	require.NoError(t, client.RemoveBranch(t.Context(), all[0].Name))
	rest, err := client.ListBranches(t.Context(), jobs.BranchFilter{After: page.Next})
	require.NoError(t, err)
	require.Len(t, rest.Branches, 4)
	require.Equal(t, all[4], rest.Branches[0].Branch)
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
