package desk_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/desk"
	"github.com/weirqueue/weir/internal/postgres/pgtest"
)

// everyCall makes each call of the store that takes an owner and an id.
func everyCall(ctx context.Context, store *desk.Store, owner desk.Owner, file desk.FileID, folder desk.FolderID, content desk.Content) map[string]error {
	out := map[string]error{}
	_, out["Get"] = store.Get(ctx, owner, file)
	_, out["Save"] = store.Save(ctx, owner, desk.Save{File: file, ID: "s", Writer: "w", ExpectedVersion: 1, SchemaVersion: desk.SchemaVersion, Content: content})
	_, out["Describe"] = store.Describe(ctx, owner, file, desk.Metadata{Name: new("x")})
	_, out["Duplicate"] = store.Duplicate(ctx, owner, file)
	out["Delete"] = store.Delete(ctx, owner, file)
	_, out["Restore"] = store.Restore(ctx, owner, file)
	_, _, out["FindSave"] = store.FindSave(ctx, owner, file, "s")
	_, out["GetFolder"] = store.GetFolder(ctx, owner, folder)
	_, out["ChangeFolder"] = store.ChangeFolder(ctx, owner, folder, desk.FolderChange{Name: new("x")})
	out["DeleteFolder"] = store.DeleteFolder(ctx, owner, folder, true)
	return out
}

// Owners and ids that no table can hold are not found, wherever they are asked for: no error of SQL.
func TestStore_OddOwnersAndIDsAreNotFound(t *testing.T) {
	t.Parallel()
	store, _ := newStore(t)
	content := markdown(t, "x")
	odd := []string{"", "x", "\x00", "a\xffb", "fil_0123456789a\x00", "fld_0123456789ab\n", "FIL_0123456789AB", strings.Repeat("é", 300), "'; drop schema desk cascade --"}
	for _, id := range odd {
		for call, err := range everyCall(t.Context(), store, "ada", desk.FileID(id), desk.FolderID(id), content) {
			require.ErrorIs(t, err, desk.ErrNotFound, "%s of %q", call, id)
		}
		found, err := store.Look(t.Context(), "ada", desk.FileID(id))
		require.NoError(t, err, "%q", id)
		require.Empty(t, found)
	}
	for _, owner := range []desk.Owner{"", "\x00", "a\xffb", desk.Owner(strings.Repeat("é", 256))} {
		for call, err := range everyCall(t.Context(), store, owner, "fil_0123456789ab", "fld_0123456789ab", content) {
			require.ErrorIs(t, err, desk.ErrNotFound, "%s of %q", call, owner)
		}
		found, err := store.Look(t.Context(), owner, "fil_0123456789ab")
		require.NoError(t, err, "%q", owner)
		require.Empty(t, found)
		_, err = store.Create(t.Context(), owner, desk.NewFile{Content: content})
		require.ErrorIs(t, err, desk.ErrInvalid)
		_, err = store.CreateFolder(t.Context(), owner, "", "x")
		require.ErrorIs(t, err, desk.ErrInvalid)
		_, err = store.List(t.Context(), owner, desk.Filter{})
		require.ErrorIs(t, err, desk.ErrInvalid)
		_, err = store.ListFolders(t.Context(), owner, desk.Paging{})
		require.ErrorIs(t, err, desk.ErrInvalid)
	}
}

// What is missing or out of bounds is named: the field, its value, and what it must be.
func TestStore_ZeroValuesNameWhatIsMissing(t *testing.T) {
	t.Parallel()
	store, _ := newStore(t)
	f, err := store.Create(t.Context(), "ada", desk.NewFile{Content: markdown(t, "one")})
	require.NoError(t, err)
	_, err = store.Save(t.Context(), "ada", desk.Save{File: f.ID})
	for _, field := range []string{"saveId", "writerId", "expectedVersion", "schemaVersion"} {
		require.ErrorContains(t, err, field+" = ")
	}
	_, err = store.Create(t.Context(), "ada", desk.NewFile{})
	require.ErrorContains(t, err, "content = ")
	_, err = store.List(t.Context(), "ada", desk.Filter{Type: "pdf", Paging: desk.Paging{Page: -1, PageSize: 201}})
	for _, field := range []string{`type = "pdf"`, `page = "-1"`, `pageSize = "201"`} {
		require.ErrorContains(t, err, field)
	}
	_, err = desk.EmptyContent("pdf")
	require.ErrorIs(t, err, desk.ErrInvalid)
	for _, raw := range []string{"", "null", "{}", "\x00"} {
		_, err = desk.ParseContent([]byte(raw))
		require.ErrorIs(t, err, desk.ErrInvalid, "%q", raw)
	}
	_, err = desk.Markdown("a\x00b")
	require.ErrorIs(t, err, desk.ErrInvalid)
	// A name of 200 characters is one of 200 characters, whatever bytes they take.
	_, err = store.Describe(t.Context(), "ada", f.ID, desk.Metadata{Name: new(strings.Repeat("😀", desk.MaxNameCharacters))})
	require.NoError(t, err)
}

// A transaction that was never begun is named, and is no panic.
func TestStore_WithoutATransactionSaysSo(t *testing.T) {
	t.Parallel()
	store, _ := newStore(t)
	content := markdown(t, "x")
	f, err := store.Create(t.Context(), "ada", desk.NewFile{Content: content})
	require.NoError(t, err)
	for call, do := range map[string]func() error{
		"CreateTx": func() error {
			_, err := store.CreateTx(t.Context(), nil, "ada", desk.NewFile{Content: content})
			return err
		},
		"GetTx":  func() error { _, err := store.GetTx(t.Context(), nil, "ada", f.ID); return err },
		"SaveTx": func() error { _, err := store.SaveTx(t.Context(), nil, "ada", save(f, "s", content)); return err },
		"DescribeTx": func() error {
			_, err := store.DescribeTx(t.Context(), nil, "ada", f.ID, desk.Metadata{Name: new("n")})
			return err
		},
		"DeleteTx": func() error { return store.DeleteTx(t.Context(), nil, "ada", f.ID) },
	} {
		err := do()
		require.ErrorIs(t, err, desk.ErrInvalid, call)
		require.ErrorContains(t, err, `tx = "nil"`, call)
	}
}

// A caller who gives up is told so; a database without the tables is an error that names the statement, and neither panics.
func TestStore_WithoutTimeOrTables(t *testing.T) {
	t.Parallel()
	store, _ := newStore(t)
	content := markdown(t, "x")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for call, err := range everyCall(ctx, store, "ada", "fil_0123456789ab", "fld_0123456789ab", content) {
		require.ErrorIs(t, err, context.Canceled, call)
	}
	bare, err := desk.NewStore(pgtest.Connect(t, pgtest.Empty(t)))
	require.NoError(t, err)
	for call, err := range everyCall(t.Context(), bare, "ada", "fil_0123456789ab", "fld_0123456789ab", content) {
		require.ErrorContains(t, err, "desk: ", call)
		require.ErrorIs(t, err, desk.ErrNotMigrated, call)
		require.ErrorContains(t, err, "worker migrate up", call)
		require.NotErrorIs(t, err, desk.ErrNotFound, call)
	}
	_, err = bare.Look(t.Context(), "ada", "fil_0123456789ab")
	require.ErrorContains(t, err, "look at files")
	_, err = bare.Prune(t.Context())
	require.ErrorContains(t, err, "files to prune")
}
