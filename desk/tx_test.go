package desk_test

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/desk"
	"github.com/weirqueue/weir/internal/postgres/pgtest"
)

func newStore(t *testing.T, opts ...pgtest.Option) (*desk.Store, *api) {
	t.Helper()
	a := newAPI(t, opts...)
	return a.store, a
}

func save(f *desk.File, id desk.SaveID, content desk.Content) desk.Save {
	return desk.Save{File: f.ID, ID: id, Writer: "tool", ExpectedVersion: f.Version, SchemaVersion: desk.SchemaVersion, Content: content}
}

var errGivenUp = errors.New("given up")

// A tool's change is there if, and only if, its own transaction commits.
func TestSaveTx_IsTheCallersTransaction(t *testing.T) {
	t.Parallel()
	store, a := newStore(t)
	f, err := store.Create(t.Context(), "ada", desk.NewFile{Content: markdown(t, "one")})
	require.NoError(t, err)
	require.Equal(t, desk.DefaultName, f.Name)

	var made *desk.File
	change := func(end error) error {
		return pgx.BeginFunc(t.Context(), a.pool, func(tx pgx.Tx) error {
			read, err := store.GetTx(t.Context(), tx, "ada", f.ID)
			require.NoError(t, err)
			saved, err := store.SaveTx(t.Context(), tx, "ada", save(read, "s", markdown(t, "two")))
			require.NoError(t, err)
			require.EqualValues(t, 2, saved.CurrentVersion)
			_, err = store.DescribeTx(t.Context(), tx, "ada", f.ID, desk.Metadata{Name: new("By a tool")})
			require.NoError(t, err)
			made, err = store.CreateTx(t.Context(), tx, "ada", desk.NewFile{Content: markdown(t, "made")})
			require.NoError(t, err)
			require.NoError(t, store.DeleteTx(t.Context(), tx, "ada", made.ID))
			return end
		})
	}
	require.ErrorIs(t, change(errGivenUp), errGivenUp)
	read, err := store.Get(t.Context(), "ada", f.ID)
	require.NoError(t, err)
	require.Equal(t, f, read)
	_, _, err = store.FindSave(t.Context(), "ada", f.ID, "s")
	require.ErrorIs(t, err, desk.ErrUnknownSave, "the ledger rolls back with the content")
	_, err = store.Get(t.Context(), "ada", made.ID)
	require.ErrorIs(t, err, desk.ErrNotFound)

	require.NoError(t, change(nil))
	read, err = store.Get(t.Context(), "ada", f.ID)
	require.NoError(t, err)
	require.EqualValues(t, 2, read.Version)
	require.Equal(t, "By a tool", read.Name)
	_, err = store.Get(t.Context(), "ada", made.ID)
	require.ErrorIs(t, err, desk.ErrDeleted)
}

// A tool that carries the same thing out again is answered when it kept the version that its content was made from. A
// version that is read anew makes another request of it, which is refused and never applied twice.
func TestSaveTx_ARepeatNamesTheVersionThatItBeganWith(t *testing.T) {
	t.Parallel()
	store, a := newStore(t)
	f, err := store.Create(t.Context(), "ada", desk.NewFile{Content: markdown(t, "one")})
	require.NoError(t, err)
	carryOut := func(base *desk.File) (saved *desk.Saved, err error) {
		err = pgx.BeginFunc(t.Context(), a.pool, func(tx pgx.Tx) error {
			saved, err = store.SaveTx(t.Context(), tx, "ada", save(base, "run-1-step-2", markdown(t, "two")))
			return err
		})
		return saved, err
	}
	saved, err := carryOut(f)
	require.NoError(t, err)
	require.False(t, saved.Replayed)
	saved, err = carryOut(f)
	require.NoError(t, err)
	require.True(t, saved.Replayed)
	anew, err := store.Get(t.Context(), "ada", f.ID)
	require.NoError(t, err)
	_, err = carryOut(anew)
	require.ErrorIs(t, err, desk.ErrSaveIDReused)
	read, err := store.Get(t.Context(), "ada", f.ID)
	require.NoError(t, err)
	require.EqualValues(t, 2, read.Version)
}

// Whatever speaks against a save is an error that leaves the caller's transaction usable.
func TestSaveTx_RefusalsLeaveTheTransactionUsable(t *testing.T) {
	t.Parallel()
	store, a := newStore(t)
	f, err := store.Create(t.Context(), "ada", desk.NewFile{Content: markdown(t, "one")})
	require.NoError(t, err)
	_, err = store.Save(t.Context(), "ada", save(f, "first", markdown(t, "two")))
	require.NoError(t, err)
	tx, err := a.pool.Begin(t.Context())
	require.NoError(t, err)
	defer tx.Rollback(t.Context())

	_, err = store.SaveTx(t.Context(), tx, "ada", save(f, "late", markdown(t, "three")))
	var conflict *desk.ConflictError
	require.ErrorAs(t, err, &conflict)
	require.ErrorIs(t, err, desk.ErrConflict)
	require.EqualValues(t, 2, conflict.Current.Version)
	saved, err := store.SaveTx(t.Context(), tx, "ada", save(f, "first", markdown(t, "two")))
	require.NoError(t, err)
	require.True(t, saved.Replayed)
	reused := save(f, "first", markdown(t, "other"))
	reused.ExpectedVersion = 2 // nothing but the ledger speaks against it
	_, err = store.SaveTx(t.Context(), tx, "ada", reused)
	require.ErrorIs(t, err, desk.ErrSaveIDReused)
	_, err = store.SaveTx(t.Context(), tx, "eve", save(f, "s", markdown(t, "stolen")))
	require.ErrorIs(t, err, desk.ErrNotFound)
	moved := save(&desk.File{ID: f.ID, Version: 2}, "s", markdown(t, "three"))
	moved.Metadata.Folder = new(desk.FolderID("fld_000000000000"))
	_, err = store.SaveTx(t.Context(), tx, "ada", moved)
	require.ErrorIs(t, err, desk.ErrFolderNotFound)
	_, err = store.SaveTx(t.Context(), tx, "ada", desk.Save{File: f.ID})
	var invalid *desk.InvalidError
	require.ErrorAs(t, err, &invalid)

	current, err := store.GetTx(t.Context(), tx, "ada", f.ID)
	require.NoError(t, err)
	_, err = store.SaveTx(t.Context(), tx, "ada", save(current, "third", markdown(t, "three")))
	require.NoError(t, err)
	require.NoError(t, tx.Commit(t.Context()))
}

// Modes for transaction poolers send parameters without knowing their types.
func TestStore_WorksInEveryQueryMode(t *testing.T) {
	t.Parallel()
	for _, mode := range []pgx.QueryExecMode{
		pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
	} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			store, _ := newStore(t, pgtest.Config(inMode(mode)))
			folder, err := store.CreateFolder(t.Context(), "ada", "", "Work")
			require.NoError(t, err)
			f, err := store.Create(t.Context(), "ada", desk.NewFile{Content: markdown(t, `a "quoted" \ text`), Folder: folder.ID, AIContext: true})
			require.NoError(t, err)
			v := save(f, "s", markdown(t, "two"))
			v.ExpectedRev, v.Metadata = f.Rev, desk.Metadata{Name: new("New"), Folder: new(desk.FolderID("")), AIContext: new(false)}
			for _, replayed := range []bool{false, true} {
				saved, err := store.Save(t.Context(), "ada", v)
				require.NoError(t, err)
				require.Equal(t, replayed, saved.Replayed)
			}
			_, err = store.Describe(t.Context(), "ada", f.ID, desk.Metadata{Folder: &folder.ID})
			require.NoError(t, err)
			_, err = store.Duplicate(t.Context(), "ada", f.ID)
			require.NoError(t, err)
			page, err := store.List(t.Context(), "ada", desk.Filter{Type: desk.TypeMarkdown})
			require.NoError(t, err)
			require.EqualValues(t, 2, page.Pagination.Total)
			_, err = store.ListFolders(t.Context(), "ada", desk.Paging{})
			require.NoError(t, err)
			_, err = store.ChangeFolder(t.Context(), "ada", folder.ID, desk.FolderChange{Name: new("Play"), Parent: new(desk.FolderID(""))})
			require.NoError(t, err)
			require.NoError(t, store.DeleteFolder(t.Context(), "ada", folder.ID, true))
			_, err = store.Restore(t.Context(), "ada", f.ID)
			require.NoError(t, err)
			_, _, err = store.FindSave(t.Context(), "ada", f.ID, "s")
			require.NoError(t, err)
			_, err = store.Prune(t.Context())
			require.NoError(t, err)
		})
	}
}
