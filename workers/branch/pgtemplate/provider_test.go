package pgtemplate_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/workers/branch"
	"github.com/weirqueue/weir/workers/branch/pgtemplate"
)

func TestConfig_NamesEveryFaultAndNoURL(t *testing.T) {
	_, err := pgtemplate.New(pgtemplate.Config{Patience: time.Nanosecond})
	require.ErrorIs(t, err, pgtemplate.ErrInvalidConfig)
	require.ErrorContains(t, err, "Config.URL")
	require.ErrorContains(t, err, "Config.Patience")
	_, err = pgtemplate.New(pgtemplate.Config{URL: "postgres://u:geheim@h:notaport/x"})
	require.ErrorIs(t, err, pgtemplate.ErrInvalidConfig)
	require.NotContains(t, err.Error(), "geheim")
}

// The branch holds what its parent holds; who was connected is cut off, and nothing is left beside it.
func TestIssue_TheBranchEqualsItsParent(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.provider()
	conn, err := w.connect(w.branch)
	require.NoError(t, err)
	defer conn.Close(context.Background())
	ops, err := p.Issue(t.Context(), w.reset(3))
	require.NoError(t, err)
	require.Equal(t, branch.Finished, ops[0].State)
	require.Empty(t, ops[0].Error)
	require.Equal(t, "parent", w.data(w.branch))
	require.Empty(t, w.leftovers())
	require.Error(t, conn.Ping(context.Background()), "a session of the old one")
	again, found, err := p.Find(t.Context(), w.reset(4))
	require.NoError(t, err)
	require.True(t, found)
	require.Equal(t, ops, again)
	// What somebody writes now stays: the same run does it once.
	w.exec(w.branch, "insert into t values ('work')")
	again, err = p.Issue(t.Context(), w.reset(5))
	require.NoError(t, err)
	require.Equal(t, ops, again)
	require.Equal(t, "parent work", w.data(w.branch))
	other := w.reset(6)
	other.RunID = uuid.Must(uuid.NewV7()).String()
	_, found, err = p.Find(t.Context(), other)
	require.False(t, found)
	require.Equal(t, branch.ClassNotApplied, class(err))
	_, err = p.Issue(t.Context(), other)
	require.NoError(t, err)
	require.Equal(t, "parent", w.data(w.branch))
}

// BR-09, BR-12, BR-13: no name is cut into another's, and nothing is touched that is not to be: other databases survive, those
// whose names look alike too.
func TestIssue_RefusesBeforeAnythingIsDestroyed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.provider(func(c *pgtemplate.Config) { c.Protected = []string{"weir_home"} })
	past := time.Now()
	leftover, err := pgtemplate.Beside(w.reset(1), "_old")
	require.NoError(t, err)
	for name, c := range map[string]struct {
		change func(r *branch.Reset)
		code   string
	}{
		"64 bytes":          {func(r *branch.Reset) { r.Target = strings.Repeat("x", 64) }, "bad_name"},
		"22 wide letters":   {func(r *branch.Reset) { r.Target = strings.Repeat("€", 22) }, "bad_name"},
		"long parent":       {func(r *branch.Reset) { r.Parent = strings.Repeat("x", 64) }, "bad_name"},
		"own parent":        {func(r *branch.Reset) { r.Parent = r.Target }, "own_parent"},
		"postgres":          {func(r *branch.Reset) { r.Target = "postgres" }, "protected"},
		"template1":         {func(r *branch.Reset) { r.Target = "template1" }, "protected"},
		"Weir's own":        {func(r *branch.Reset) { r.Target = "weir_home" }, "protected"},
		"one of ours":       {func(r *branch.Reset) { r.Target = leftover }, "protected"},
		"unknown":           {func(r *branch.Reset) { r.Target = "nobody's \"database\"" }, "no_database"},
		"in capitals":       {func(r *branch.Reset) { r.Target = strings.ToUpper(r.Target) }, "no_database"},
		"unknown parent":    {func(r *branch.Reset) { r.Parent = "nobody's" }, "no_parent"},
		"a point in time":   {func(r *branch.Reset) { r.PointInTime = &past }, "no_past"},
		"not a run's id":    {func(r *branch.Reset) { r.RunID = "x; drop database postgres" }, "bad_run"},
		"the run is others": {func(r *branch.Reset) { r.StillMine = func(context.Context) error { return errors.New("lost") } }, "not_begun"},
	} {
		r := w.reset(1)
		c.change(&r)
		_, err := p.Issue(t.Context(), r)
		require.Equal(t, c.code, code(err), "%s: %v", name, err)
	}
	require.Equal(t, "branch", w.data(w.branch))
	require.Equal(t, "parent", w.data(w.parent))
	// A branch whose name is as long as a name can be.
	long := w.branch + strings.Repeat("€", (63-len(w.branch))/3)
	w.exec("postgres", `create database "`+long+`"`)
	defer w.exec("postgres", `drop database "`+long+`" with (force)`)
	r := w.reset(1)
	r.Target = long
	_, err = p.Issue(t.Context(), r)
	require.NoError(t, err)
	require.Equal(t, "parent", w.data(long))
	require.Equal(t, "branch", w.data(w.branch), "the one whose name it begins with")
	name, err := pgtemplate.Beside(branch.Reset{RunID: uuid.Max.String(), Attempt: 1<<63 - 1, Target: long}, "_new")
	require.NoError(t, err)
	require.LessOrEqual(t, len(name), 63)
}

// BR-10: a session on the parent keeps it from being copied: the reset says so and holds no lock meanwhile, or cuts it
// off where it may.
func TestIssue_AParentInUse(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	conn, err := w.connect(w.parent)
	require.NoError(t, err)
	defer conn.Close(context.Background())
	_, err = w.provider().Issue(t.Context(), w.reset(1))
	require.Equal(t, branch.ClassLater, class(err))
	require.Equal(t, "parent_in_use", code(err))
	require.Equal(t, "branch", w.data(w.branch))
	require.Empty(t, w.leftovers())
	require.NoError(t, conn.Ping(t.Context()))
	_, err = w.provider(func(c *pgtemplate.Config) { c.EvictTemplate = true }).Issue(t.Context(), w.reset(2))
	require.NoError(t, err)
	require.Equal(t, "parent", w.data(w.branch))
}

// BR-09: whoever connects again and again does not keep the branch from being swapped, and sees it broken off only for
// that moment.
func TestIssue_UnderAStormOfConnections(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, stop := context.WithCancel(t.Context())
	var storm sync.WaitGroup
	for range 4 {
		storm.Go(func() {
			for ctx.Err() == nil {
				conn, err := w.connect(w.branch)
				if err != nil {
					continue
				}
				_, _ = conn.Exec(ctx, "select pg_sleep(0.05)")
				_ = conn.Close(context.Background())
			}
		})
	}
	p := w.provider(func(c *pgtemplate.Config) { c.Patience = time.Minute })
	var late *pgx.Conn // comes when the others have been cut off already, and stays
	p.OnStage(func(stage string) {
		if stage == "swap" && late == nil {
			late, _ = w.connect(w.branch)
		}
	})
	_, err := p.Issue(t.Context(), w.reset(1))
	stop()
	storm.Wait()
	require.NoError(t, err)
	require.NotNil(t, late)
	defer late.Close(context.Background())
	require.Error(t, late.Ping(t.Context()))
	require.Equal(t, "parent", w.data(w.branch))
	require.Empty(t, w.leftovers())
}

// BR-11: without the lock nothing is done. It is taken from a predecessor, whose connection is gone then, and only by
// whoever owns the run.
func TestIssue_NothingWithoutTheLock(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	hold := func() *pgx.Conn {
		conn, err := w.connect("postgres")
		require.NoError(t, err)
		_, err = conn.Exec(t.Context(), "select pg_advisory_lock(hashtextextended('weir branch ' || $1, 0))", w.branch)
		require.NoError(t, err)
		return conn
	}
	holder := hold()
	defer holder.Close(context.Background())
	r := w.reset(1)
	r.StillMine = func(context.Context) error { return errors.New("somebody else's") }
	_, err := w.provider().Issue(t.Context(), r)
	require.Equal(t, "not_begun", code(err))
	require.NoError(t, holder.Ping(t.Context()), "only the owner ends a predecessor")
	_, err = w.provider().Issue(t.Context(), w.reset(2))
	require.NoError(t, err)
	require.Error(t, holder.Ping(t.Context()))
}

// Twenty resets of branches of one parent at once: some meet the copy of another, say so, and come again.
func TestIssue_TwentyBranchesOfOneParent(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.provider()
	const n = 20
	names := make([]string, n)
	for i := range names {
		names[i] = w.branch + "_" + string(rune('a'+i))
		w.exec("postgres", `create database "`+names[i]+`"`)
		t.Cleanup(func() { w.exec("postgres", `drop database if exists "`+names[i]+`" with (force)`) })
	}
	errs := make([]error, n)
	var all sync.WaitGroup
	for i := range names {
		all.Go(func() {
			r := w.reset(1)
			r.Target, r.RunID = names[i], uuid.Must(uuid.NewV7()).String()
			for range 100 {
				if _, errs[i] = p.Issue(t.Context(), r); errs[i] == nil || class(errs[i]) != branch.ClassLater {
					return
				}
			}
		})
	}
	all.Wait()
	for i, name := range names {
		require.NoError(t, errs[i])
		require.Equal(t, "parent", w.data(name))
	}
}

// BR-10: a role that owns branch and parent and may create databases is enough: it cuts off its own sessions, and what is not
// its to cut off is said and left alone.
func TestIssue_ByARoleThatIsNoSuperuser(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	role := w.branch + "_owner"
	w.exec("postgres", `create role "`+role+`" login createdb`)
	t.Cleanup(func() {
		for _, name := range []string{w.branch, w.parent} {
			w.exec("postgres", `alter database "`+name+`" owner to current_user`)
		}
		w.exec("postgres", `drop role "`+role+`"`)
	})
	for _, name := range []string{w.branch, w.parent} {
		w.exec("postgres", `alter database "`+name+`" owner to "`+role+`"`)
	}
	cfg, err := pgx.ParseConfig(w.admin)
	require.NoError(t, err)
	p := w.provider(func(c *pgtemplate.Config) {
		c.URL, c.Patience = strings.Replace(w.admin, "//"+cfg.User+"@", "//"+role+"@", 1), 500*time.Millisecond
	})
	foreign, err := w.connect(w.branch)
	require.NoError(t, err)
	defer foreign.Close(context.Background())
	_, err = p.Issue(t.Context(), w.reset(1))
	require.Equal(t, branch.ClassLater, class(err), "a superuser's session is not its to end")
	require.Equal(t, "pg_evict", code(err))
	require.NoError(t, foreign.Ping(t.Context()))
	require.Empty(t, w.leftovers())
	require.NoError(t, foreign.Close(context.Background()))
	require.Eventually(t, func() bool { _, err = p.Issue(t.Context(), w.reset(2)); return err == nil }, time.Minute, 50*time.Millisecond)
	require.Equal(t, "parent", w.data(w.branch))
	require.Empty(t, w.leftovers())
}
