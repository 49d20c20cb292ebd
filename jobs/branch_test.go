package jobs_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/internal/postgres/pgtest"
	"github.com/weirqueue/weir/jobs"
)

func register(t testing.TB, client *jobs.Client, name string) jobs.Branch {
	t.Helper()
	b := jobs.Branch{Name: name, Provider: "fake", Target: name + "-db", Parent: "main"}
	require.NoError(t, client.RegisterBranch(t.Context(), b))
	return b
}

// BR-12, BR-13: a name that PostgreSQL would cut into another's is refused, and so is a second branch of one database;
// names that differ stay apart, whatever they would be as a slug.
func TestRegisterBranch_RefusesWhatWouldBeAnothers(t *testing.T) {
	t.Parallel()
	client := newClient(t, pgtest.Pool(t))
	long := strings.Repeat("x", 64)
	for name, c := range map[string]struct {
		b     jobs.Branch
		field string
	}{
		"own parent":      {jobs.Branch{Name: "a", Provider: "fake", Target: "db", Parent: "db"}, "Branch.Parent"},
		"64 bytes":        {jobs.Branch{Name: "a", Provider: "pgtemplate", Target: long, Parent: "main"}, "Branch.Target"},
		"22 wide letters": {jobs.Branch{Name: "a", Provider: "pgtemplate", Target: strings.Repeat("€", 22), Parent: "main"}, "Branch.Target"},
		"long parent":     {jobs.Branch{Name: "a", Provider: "pgtemplate", Target: "db", Parent: long}, "Branch.Parent"},
		"no parent":       {jobs.Branch{Name: "a", Provider: "pgtemplate", Target: "db"}, "Branch.Parent"},
		"postgres":        {jobs.Branch{Name: "a", Provider: "pgtemplate", Target: "postgres", Parent: "main"}, "Branch.Target"},
		"template1":       {jobs.Branch{Name: "a", Provider: "pgtemplate", Target: "template1", Parent: "main"}, "Branch.Target"},
		"no project":      {jobs.Branch{Name: "a", Provider: "neon", Target: "br-1"}, "Branch.Project"},
		"blank name":      {jobs.Branch{Name: " ", Provider: "fake", Target: "db"}, "Branch.Name"},
		"NUL":             {jobs.Branch{Name: "a\x00", Provider: "fake", Target: "db"}, "Branch.Name"},
		"provider":        {jobs.Branch{Name: "a", Provider: "Neon!", Target: "db"}, "Branch.Provider"},
		"retention":       {jobs.Branch{Name: "a", Provider: "fake", Target: "db", Retention: -1}, "Branch.Retention"},
	} {
		err := client.RegisterBranch(t.Context(), c.b)
		require.ErrorIs(t, err, jobs.ErrInvalid, name)
		require.ErrorContains(t, err, c.field, name)
	}
	for _, name := range []string{"feat/a-b", "feat_a_b", "Feat/A.B"} {
		register(t, client, name)
	}
	err := client.RegisterBranch(t.Context(), jobs.Branch{Name: "other", Provider: "fake", Target: "feat_a_b-db"})
	require.ErrorIs(t, err, jobs.ErrInvalid)
	require.ErrorContains(t, err, `"feat_a_b" has it`)
	list, err := client.Branches(t.Context())
	require.NoError(t, err)
	require.Len(t, list, 3)
}

func TestRegisterBranch_IsRepeatableAndHoldsStillDuringAReset(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	client := newClient(t, pool)
	b := register(t, client, "dev")
	require.NoError(t, client.RegisterBranch(t.Context(), b))
	b.Retention = 36 * time.Hour
	require.NoError(t, client.RegisterBranch(t.Context(), b), "a change")
	res, err := client.ResetBranch(t.Context(), jobs.Reset{Branch: "dev"}, nil)
	require.NoError(t, err)
	require.NoError(t, client.RegisterBranch(t.Context(), b), "nothing changes")
	b.Target = "elsewhere"
	var flying *jobs.InFlightError
	require.ErrorAs(t, client.RegisterBranch(t.Context(), b), &flying)
	require.Equal(t, res.Run.ID, flying.Run)
	require.ErrorIs(t, client.RemoveBranch(t.Context(), "dev"), jobs.ErrInFlight)
	require.NoError(t, client.CancelBranchReset(t.Context(), res.Run.ID))
	require.NoError(t, client.RegisterBranch(t.Context(), b))
	got, err := client.GetBranchReset(t.Context(), res.Run.ID)
	require.NoError(t, err)
	require.Equal(t, "dev-db", got.Target, "the run keeps what was registered when it was asked for")
	require.NoError(t, client.RemoveBranch(t.Context(), "dev"))
	require.ErrorIs(t, client.RemoveBranch(t.Context(), "dev"), jobs.ErrNoBranch)
}

// Whatever is wrong is found before anything is written, and so before anything is destroyed.
func TestResetBranch_BadInputWritesNothing(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	client := newClient(t, pool)
	require.NoError(t, client.RegisterBranch(t.Context(), jobs.Branch{Name: "dev", Provider: "fake", Target: "db", Retention: time.Hour}))
	require.NoError(t, client.RegisterBranch(t.Context(), jobs.Branch{Name: "copy", Provider: "pgtemplate", Target: "copy", Parent: "main"}))
	before := rows(t, pool)
	at := func(d time.Duration) *time.Time { x := time.Now().Add(d); return &x }
	for name, c := range map[string]struct {
		r    jobs.Reset
		opts *jobs.Opts
		is   error
	}{
		"unknown branch":    {jobs.Reset{Branch: "nobody"}, nil, jobs.ErrNoBranch},
		"future":            {jobs.Reset{Branch: "dev", PointInTime: at(time.Minute)}, nil, jobs.ErrInvalid},
		"outside retention": {jobs.Reset{Branch: "dev", PointInTime: at(-2 * time.Hour)}, nil, jobs.ErrInvalid},
		"no past":           {jobs.Reset{Branch: "copy", PointInTime: at(-time.Minute)}, nil, jobs.ErrInvalid},
		"NUL":               {jobs.Reset{Branch: "dev\x00"}, nil, jobs.ErrInvalid},
		"exclusive key":     {jobs.Reset{Branch: "dev"}, &jobs.Opts{ExclusiveKey: "x"}, jobs.ErrInvalid},
		"scheduled":         {jobs.Reset{Branch: "dev"}, &jobs.Opts{ScheduledAt: time.Now()}, jobs.ErrInvalid},
		"attempts":          {jobs.Reset{Branch: "dev"}, &jobs.Opts{MaxAttempts: 3}, jobs.ErrInvalid},
	} {
		_, err := client.ResetBranch(t.Context(), c.r, c.opts)
		require.ErrorIs(t, err, c.is, name)
	}
	require.Equal(t, before, rows(t, pool))
	_, err := client.ResetBranch(t.Context(), jobs.Reset{Branch: "dev", PointInTime: at(-time.Minute)}, nil)
	require.NoError(t, err)
}

// One in flight per branch: of fifty racing callers with keys of their own one makes a run, and the others are told
// which; of fifty with one key all get it.
func TestResetBranch_FiftyRacingCallersMakeOneRun(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t, pgtest.MaxConns(20))
	client := newClient(t, pool)
	register(t, client, "own keys")
	register(t, client, "one key")
	const callers = 50
	ids, errs := make([]jobs.RunID, callers), make([]error, callers)
	inParallel(callers, func(i int) {
		res, err := client.ResetBranch(t.Context(), jobs.Reset{Branch: "own keys"}, &jobs.Opts{IdempotencyKey: "k" + strings.Repeat("i", i)})
		if errs[i] = err; err == nil {
			ids[i] = res.Run.ID
		}
	})
	var winner jobs.RunID
	for i := range callers {
		if errs[i] == nil {
			require.Zero(t, winner, "two won")
			winner = ids[i]
		}
	}
	require.NotZero(t, winner)
	for _, err := range errs {
		var flying *jobs.InFlightError
		if err != nil {
			require.ErrorAs(t, err, &flying)
			require.Equal(t, winner, flying.Run)
		}
	}
	inParallel(callers, func(i int) {
		res, err := client.ResetBranch(t.Context(), jobs.Reset{Branch: "one key"}, &jobs.Opts{IdempotencyKey: "same"})
		if errs[i] = err; err == nil {
			ids[i] = res.Run.ID
		}
	})
	for i := range callers {
		require.NoError(t, errs[i])
		require.Equal(t, ids[0], ids[i])
	}
	require.Equal(t, 2, value[int](t, pool, "select count(*)::int from weir.run"))
	require.Equal(t, 2, value[int](t, pool, "select count(*)::int from weir.key"))
	require.Equal(t, 2, value[int](t, pool, "select count(*)::int from river_job"))
}

// BR-16: a key that was used for another branch or another time is refused; the same one answers after the end.
func TestResetBranch_KeyStandsForOneRequest(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	client := newClient(t, pool)
	register(t, client, "a")
	register(t, client, "b")
	key := &jobs.Opts{IdempotencyKey: "k"}
	first, err := client.ResetBranch(t.Context(), jobs.Reset{Branch: "a"}, key)
	require.NoError(t, err)
	_, err = client.ResetBranch(t.Context(), jobs.Reset{Branch: "b"}, key)
	require.ErrorIs(t, err, jobs.ErrKeyReused)
	past := time.Now().Add(-time.Minute)
	_, err = client.ResetBranch(t.Context(), jobs.Reset{Branch: "a", PointInTime: &past}, key)
	require.ErrorIs(t, err, jobs.ErrKeyReused)
	require.NoError(t, client.CancelBranchReset(t.Context(), first.Run.ID))
	again, err := client.ResetBranch(t.Context(), jobs.Reset{Branch: "a"}, key)
	require.NoError(t, err)
	require.True(t, again.Existing)
	require.Equal(t, first.Run.ID, again.Run.ID)
	require.Equal(t, jobs.StatusCanceled, again.Run.Status)
	// The branch is free for others.
	_, err = client.ResetBranch(t.Context(), jobs.Reset{Branch: "a"}, &jobs.Opts{IdempotencyKey: "other"})
	require.NoError(t, err)
}

func TestResetBranchTx_RollsBackWithTheCallersTransaction(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	client := newClient(t, pool)
	register(t, client, "dev")
	before := rows(t, pool)
	err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		if _, err := client.ResetBranchTx(t.Context(), tx, jobs.Reset{Branch: "dev"}, nil); err != nil {
			return err
		}
		return errors.New("changed my mind")
	})
	require.ErrorContains(t, err, "changed my mind")
	require.Equal(t, before, rows(t, pool))
}

func TestGetBranchReset_OtherKindsAreNotFound(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	client := newClient(t, pool)
	mail := notify(t, client, mail(), nil).Runs[0].ID
	_, err := client.GetBranchReset(t.Context(), mail)
	require.ErrorIs(t, err, jobs.ErrNotFound)
	require.ErrorIs(t, client.CancelBranchReset(t.Context(), mail), jobs.ErrNotFound)
	require.ErrorIs(t, client.CancelBranchReset(t.Context(), jobs.RunID{1}), jobs.ErrNotFound)
}

// RV-17: branches and resets work in pgx's modes for transaction poolers too, and under a hostile search_path.
func TestBranches_WorkInEveryExecMode(t *testing.T) {
	t.Parallel()
	for _, mode := range []pgx.QueryExecMode{
		pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
	} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			url := pgtest.URL(t)
			execSQL(t, pgtest.Connect(t, url), "create schema evil; create table evil.branch (id int); create table evil.branch_operation (id int)")
			client := newClient(t, pgtest.Connect(t, url, pgtest.Config(func(c *pgxpool.Config) {
				c.ConnConfig.DefaultQueryExecMode = mode
				c.ConnConfig.RuntimeParams["search_path"] = "evil, public"
			})))
			ctx := t.Context()
			b := jobs.Branch{Name: "ü/1", Provider: "fake", Target: "db", Retention: 90 * time.Minute}
			require.NoError(t, client.RegisterBranch(ctx, b))
			b.Parent = "main"
			require.NoError(t, client.RegisterBranch(ctx, b))
			list, err := client.Branches(ctx)
			require.NoError(t, err)
			require.Equal(t, []jobs.Branch{b}, list)
			past := time.Now().Add(-time.Minute)
			res, err := client.ResetBranch(ctx, jobs.Reset{Branch: b.Name, PointInTime: &past}, &jobs.Opts{IdempotencyKey: "k"})
			require.NoError(t, err)
			_, err = client.ResetBranch(ctx, jobs.Reset{Branch: b.Name}, nil)
			require.ErrorIs(t, err, jobs.ErrInFlight)
			got, err := client.GetBranchReset(ctx, res.Run.ID)
			require.NoError(t, err)
			require.Equal(t, b.Name, got.Branch)
			require.WithinDuration(t, past, *got.PointInTime, time.Microsecond)
			require.ErrorIs(t, client.RemoveBranch(ctx, b.Name), jobs.ErrInFlight)
			require.NoError(t, client.CancelBranchReset(ctx, res.Run.ID))
			history, err := client.ResetsOfBranch(ctx, b.Name, 0)
			require.NoError(t, err)
			require.Len(t, history, 1)
			one, err := client.GetBranch(ctx, b.Name)
			require.NoError(t, err)
			require.Equal(t, &jobs.BranchStanding{Branch: b, Last: history[0]}, one)
			page, err := client.ListBranches(ctx, jobs.BranchFilter{})
			require.NoError(t, err)
			require.Equal(t, &jobs.BranchPage{Branches: []jobs.BranchStanding{*one}}, page)
			require.NoError(t, client.RemoveBranch(ctx, b.Name))
		})
	}
}
