package desk_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/desk"
)

// A save is forgotten only when it is both old and not among the last ones of its file.
func TestLedger_KeepsThirtyDaysAndTheLastSaves(t *testing.T) {
	t.Parallel()
	store, a := newStore(t)
	files := []string{"busy", "calm", "young"}
	ids := map[string]desk.FileID{}
	for i, name := range files {
		f, err := store.Create(t.Context(), "ada", desk.NewFile{Content: markdown(t, "")})
		require.NoError(t, err)
		ids[name] = f.ID
		saves := []int{desk.LedgerSaves + 5, desk.LedgerSaves - 1, desk.LedgerSaves + 5}[i]
		execSQL(t, a.pool, `insert into desk.save (file_id, save_id, version, hash) select $1, 's' || v, v, '' from generate_series(2, $2::int) v`, f.ID, saves)
		execSQL(t, a.pool, `alter table desk.file disable trigger file_version_rises_by_one`)
		execSQL(t, a.pool, `update desk.file set version = $2 where id = $1`, f.ID, saves)
		execSQL(t, a.pool, `alter table desk.file enable trigger file_version_rises_by_one`)
	}
	execSQL(t, a.pool, `update desk.save set created_at = created_at - interval '30 days 1 minute' where file_id <> $1`, ids["young"])
	execSQL(t, a.pool, `update desk.save set created_at = created_at - interval '29 days 23 hours' where file_id = $1`, ids["young"])
	n, err := store.PruneBy(t.Context(), 1)
	require.NoError(t, err)
	require.Equal(t, 5, n)
	require.Equal(t, 0, value[int](t, a.pool, `select count(*)::int from desk.save where file_id = $1 and version <= 5`, ids["busy"]))
	_, _, err = store.FindSave(t.Context(), "ada", ids["busy"], "s5")
	require.ErrorIs(t, err, desk.ErrUnknownSave)
	version, current, err := store.FindSave(t.Context(), "ada", ids["busy"], "s6")
	require.NoError(t, err)
	require.Equal(t, [2]int64{6, desk.LedgerSaves + 5}, [2]int64{version, current})
	n, err = store.Prune(t.Context())
	require.NoError(t, err)
	require.Zero(t, n)
}

func TestLedger_KeepEndsWithItsContext(t *testing.T) {
	t.Parallel()
	store, _ := newStore(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	store.Keep(ctx, slog.New(slog.NewTextHandler(io.Discard, nil)))
}

// What the database itself refuses: a version that does not rise by one, two saves that made one version, and one save
// that made two.
func TestSchema_RefusesABrokenHistory(t *testing.T) {
	t.Parallel()
	store, a := newStore(t)
	f, err := store.Create(t.Context(), "ada", desk.NewFile{Content: markdown(t, "")})
	require.NoError(t, err)
	for sql, constraint := range map[string]string{
		`update desk.file set version = version`:     "file_version_rises_by_one",
		`update desk.file set version = version + 2`: "file_version_rises_by_one",
		`update desk.file set version = 0`:           "file_version_rises_by_one",
		`update desk.file set type = 'pdf'`:          "file_type_known",
		`insert into desk.save (file_id, save_id, version, hash) select id, 'other', version, '' from desk.file`: "save_version_key",
		`insert into desk.save (file_id, save_id, version, hash) select id, rev, 2, '' from desk.file`:           "save_pkey",
	} {
		_, err := a.pool.Exec(t.Context(), sql)
		var refused *pgconn.PgError
		require.ErrorAs(t, err, &refused, sql)
		require.Equal(t, constraint, refused.ConstraintName, "%s on %s", sql, f.ID)
	}
}

func TestLimiter_LetsTypingThroughAndBoundsTheRest(t *testing.T) {
	t.Parallel()
	l := desk.NewLimiter(5, 10, 3)
	now := time.Now()
	for range 200 { // a save every 1.5 s, for five minutes
		require.Zero(t, l.Wait("ada", now))
		now = now.Add(1500 * time.Millisecond)
	}
	refused := 0
	for range 30 {
		if wait := l.Wait("ada", now); wait > 0 {
			refused++
			require.LessOrEqual(t, wait, time.Second/5, "a refused request does not push the next one back")
		}
	}
	require.Equal(t, 20, refused)
	require.Zero(t, l.Wait("bob", now), "each user has a bucket of their own")
	require.Zero(t, l.Wait("ada", now.Add(time.Second/5)))
	for i := range 100 {
		l.Wait(desk.Owner(strconv.Itoa(i)), now)
	}
	require.Equal(t, 3, l.Users())
}

func TestLimiter_AnswersWithRetryAfter(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	limited := serve(t, a.pool, desk.HandlerConfig{Rate: 1, Burst: 2}, nil)
	file := limited.create("one")
	res, saved := answer{}, int64(1)
	for range 20 { // a machine that stands still for a second gives one back
		if res = limited.save(file, saved, fmt.Sprint("s", saved), "more"); res.status != http.StatusOK {
			break
		}
		saved++
	}
	res.is(http.StatusTooManyRequests, "rate_limited")
	require.Equal(t, "1", res.header.Get("Retry-After"))
	limited.get("/api/desk/files", as("bob")).is(http.StatusOK, "")
	version, _ := limited.stored(file)
	require.Equal(t, saved, version, "a refused request wrote nothing")
}

func TestHandler_NamesEveryFaultOfItsConfiguration(t *testing.T) {
	t.Parallel()
	_, err := desk.NewHandler(desk.HandlerConfig{Rate: 0.5, Burst: -1, Timeout: -1})
	for _, field := range []string{"Store", "Identify", "Rate", "Burst", "Timeout"} {
		require.ErrorContains(t, err, "HandlerConfig."+field)
	}
	require.ErrorIs(t, err, desk.ErrInvalid)
	_, err = desk.NewStore(nil)
	require.Error(t, err)
}
