package desk_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/desk"
)

func folder(t *testing.T, store *desk.Store, parent desk.FolderID, name string) desk.FolderID {
	t.Helper()
	f, err := store.CreateFolder(t.Context(), "ada", parent, name)
	require.NoError(t, err)
	return f.ID
}

// Names are unique in a place, the root included, where PostgreSQL's nulls would be distinct.
func TestFolder_NamesAreUniqueInTheirPlace(t *testing.T) {
	t.Parallel()
	store, _ := newStore(t)
	work := folder(t, store, "", "Work")
	play := folder(t, store, "", "Play")
	folder(t, store, work, "Work")
	for _, parent := range []desk.FolderID{"", work} {
		_, err := store.CreateFolder(t.Context(), "ada", parent, "Work")
		require.ErrorIs(t, err, desk.ErrFolderExists)
	}
	_, err := store.ChangeFolder(t.Context(), "ada", play, desk.FolderChange{Name: new("Work")})
	require.ErrorIs(t, err, desk.ErrFolderExists)
	moved, err := store.ChangeFolder(t.Context(), "ada", play, desk.FolderChange{Parent: &work})
	require.NoError(t, err)
	require.Equal(t, work, *moved.ParentID)
	require.Equal(t, "Play", moved.Name)
}

func TestFolder_NeverEndsUpInItselfOrTooDeep(t *testing.T) {
	t.Parallel()
	store, _ := newStore(t)
	chain := []desk.FolderID{folder(t, store, "", "1")}
	for i := 2; i <= desk.MaxFolderDepth; i++ {
		chain = append(chain, folder(t, store, chain[len(chain)-1], fmt.Sprint(i)))
	}
	_, err := store.CreateFolder(t.Context(), "ada", chain[len(chain)-1], "too deep")
	require.ErrorIs(t, err, desk.ErrFolderCycle)
	for _, into := range []int{0, 1, len(chain) - 1} {
		_, err = store.ChangeFolder(t.Context(), "ada", chain[0], desk.FolderChange{Parent: &chain[into]})
		require.ErrorIs(t, err, desk.ErrFolderCycle)
	}
	parent := folder(t, store, "", "parent")
	child := folder(t, store, parent, "child")
	for _, into := range []desk.FolderID{parent, child} { // nothing but the ring speaks against these
		_, err = store.ChangeFolder(t.Context(), "ada", parent, desk.FolderChange{Parent: &into})
		require.ErrorIs(t, err, desk.ErrFolderCycle)
	}
	other := folder(t, store, "", "other")
	_, err = store.ChangeFolder(t.Context(), "ada", chain[0], desk.FolderChange{Parent: &other})
	require.ErrorIs(t, err, desk.ErrFolderCycle, "what is below it would be too deep")
	_, err = store.ChangeFolder(t.Context(), "ada", chain[1], desk.FolderChange{Parent: &other})
	require.NoError(t, err)
	none := desk.FolderID("fld_000000000000")
	_, err = store.ChangeFolder(t.Context(), "ada", chain[1], desk.FolderChange{Parent: &none})
	require.ErrorIs(t, err, desk.ErrFolderNotFound)
}

// Two moves that are each fine could make a ring together.
func TestFolder_RacingMovesMakeNoRing(t *testing.T) {
	t.Parallel()
	store, a := newStore(t)
	for i := range 10 {
		x, y := folder(t, store, "", fmt.Sprint("x", i)), folder(t, store, "", fmt.Sprint("y", i))
		var moved, refused atomic.Int32
		inParallel(2, func(n int) {
			what, into := x, y
			if n == 1 {
				what, into = y, x
			}
			switch _, err := store.ChangeFolder(t.Context(), "ada", what, desk.FolderChange{Parent: &into}); {
			case err == nil:
				moved.Add(1)
			case errors.Is(err, desk.ErrFolderCycle):
				refused.Add(1)
			default:
				t.Error(err)
			}
		})
		require.Equal(t, [2]int32{1, 1}, [2]int32{moved.Load(), refused.Load()})
	}
	require.Equal(t, 10, value[int](t, a.pool, "select count(*)::int from desk.folder where parent_id is null"))
}

// A folder that holds something goes only when that is asked for, and the files in it can be restored.
func TestFolder_DeletedWithWhatIsInIt(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	create := func(name, parent string) string {
		return a.do(http.MethodPost, "/api/desk/folders", `{"name":"`+name+`","parentId":`+parent+`}`).is(http.StatusCreated, "").value("data", "id").(string)
	}
	outer := create("outer", "null")
	inner := create("inner", `"`+outer+`"`)
	beside := create("beside", "null")
	in := func(folder string) string {
		path := a.create("text of " + folder)
		a.do(http.MethodPut, path, `{"folderId":"`+folder+`"}`).is(http.StatusOK, "")
		return path
	}
	file, kept := in(inner), in(beside)
	a.do(http.MethodDelete, "/api/desk/folders/"+outer, "").is(http.StatusConflict, "folder_not_empty")
	a.do(http.MethodDelete, "/api/desk/folders/"+inner+"?recursive=false", "").is(http.StatusConflict, "folder_not_empty")
	a.get(file).is(http.StatusOK, "")
	a.do(http.MethodDelete, "/api/desk/folders/"+outer+"?recursive=true", "").is(http.StatusNoContent, "")
	a.get("/api/desk/folders/"+inner).is(http.StatusNotFound, "not_found")
	a.get(file).is(http.StatusGone, "file_deleted")
	a.get(kept).is(http.StatusOK, "")
	restored := a.do(http.MethodPost, file+"/restore", "").is(http.StatusOK, "")
	require.Nil(t, restored.value("data", "folderId"))

	// A deleted file keeps no folder alive, and comes back to the folder that is still there.
	a.do(http.MethodDelete, kept, "").is(http.StatusNoContent, "")
	require.Equal(t, beside, a.do(http.MethodPost, kept+"/restore", "").is(http.StatusOK, "").value("data", "folderId"))
	a.do(http.MethodDelete, kept, "").is(http.StatusNoContent, "")
	a.do(http.MethodDelete, "/api/desk/folders/"+beside, "").is(http.StatusNoContent, "")
	require.Nil(t, a.do(http.MethodPost, kept+"/restore", "").is(http.StatusOK, "").value("data", "folderId"))
}

func TestList_Pages(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	var made []string
	for i := range 5 {
		made = append(made, strings.TrimPrefix(a.create(fmt.Sprint(i)), "/api/desk/files/"))
	}
	a.do(http.MethodPost, "/api/desk/files", `{"type":"spreadsheet"}`).is(http.StatusCreated, "")
	a.do(http.MethodPut, "/api/desk/files/"+made[0], `{"name":"Newest"}`).is(http.StatusOK, "")
	ids := func(query string) (out []string) {
		res := a.get("/api/desk/files"+query).is(http.StatusOK, "")
		for _, item := range res.value("data", "items").([]any) {
			out = append(out, item.(map[string]any)["id"].(string))
		}
		return out
	}
	require.Equal(t, []string{made[0], made[4], made[3], made[2], made[1]}, ids("?type=markdown"))
	require.Equal(t, []string{made[3], made[2]}, ids("?type=markdown&page=2&pageSize=2"))
	require.Empty(t, ids("?type=markdown&page=9&pageSize=2"))
	require.Empty(t, ids("?type=record"))
	res := a.get("/api/desk/files?page=9&pageSize=2")
	require.Equal(t, [4]int64{9, 2, 6, 3}, [4]int64{
		res.version("data", "pagination", "page"), res.version("data", "pagination", "pageSize"),
		res.version("data", "pagination", "total"), res.version("data", "pagination", "totalPages"),
	})
	require.EqualValues(t, 50, a.get("/api/desk/files").version("data", "pagination", "pageSize"))
	a.do(http.MethodDelete, "/api/desk/files/"+made[1], "").is(http.StatusNoContent, "")
	require.Equal(t, []string{made[1]}, ids("?deleted=true"))
	require.Len(t, ids(""), 5)
	for _, bad := range []string{"?page=0", "?page=-1", "?page=1000001", "?pageSize=0", "?pageSize=201", "?pageSize=1.5", "?type=", "?type=x", "?type=record&type=markdown", "?tpye=record", "?deleted=1", "?deleted=%zz", "?deleted=true;type=record", "?page=99999999999999999999"} {
		a.get("/api/desk/files"+bad).is(http.StatusBadRequest, "invalid")
	}
}

func TestDuplicate_IsAFileOfItsOwn(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	file := a.create("one")
	a.do(http.MethodPut, file, `{"name":"`+strings.Repeat("é", 200)+`"}`).is(http.StatusOK, "")
	a.save(file, 1, "s", "two").is(http.StatusOK, "")
	res := a.do(http.MethodPost, file, `{}`).is(http.StatusCreated, "")
	require.Equal(t, strings.Repeat("é", 193)+" (copy)", res.value("data", "name"))
	require.EqualValues(t, 1, res.version("data", "version"))
	copied := res.header.Get("Location")
	require.NotEqual(t, file, copied)
	a.save(copied, 1, "s", "three").is(http.StatusOK, "")
	_, text := a.stored(file)
	require.Equal(t, "two", text)
}
