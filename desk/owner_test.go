package desk_test

import (
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/desk"
)

// Every route, tried on another user's file or folder, answers exactly as for one that does not exist, and changes
// nothing.
func TestOwner_EveryRouteAsAnotherUserFindsNothing(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	file, deleted := a.create("one"), a.create("two")
	a.do(http.MethodDelete, deleted, "").is(http.StatusNoContent, "")
	a.save(file, 1, "mine", "private").is(http.StatusOK, "")
	folder := a.do(http.MethodPost, "/api/desk/folders", `{"name":"Private"}`).is(http.StatusCreated, "").header.Get("Location")
	id := strings.TrimPrefix(folder, "/api/desk/folders/")
	state := func() string {
		return value[string](t, a.pool, `select string_agg(x, e'\n') from (
			select f::text from desk.file f union all select d::text from desk.folder d union all select s::text from desk.save s order by 1) t(x)`)
	}
	before := state()
	eve := as("eve")
	for _, r := range []struct{ method, rest, body string }{
		{"GET", "", ""},
		{"HEAD", "", ""},
		{"PUT", "", put(2, "s", "stolen")},
		{"PUT", "", put(1, "mine", "private")}, // the save id of somebody else's save
		{"PUT", "", put(9, "s", "stolen")},
		{"PUT", "", strings.Replace(put(2, "s", "stolen"), `"schemaVersion":1`, `"schemaVersion":2`, 1)},
		{"PUT", "", `{"name":"stolen"}`},
		{"PUT", "", `{"folderId":null,"aiContext":true}`},
		{"POST", "", ""},
		{"DELETE", "", ""},
		{"POST", "/restore", ""},
		{"GET", "/saves/mine", ""},
		{"GET", "/saves/other", ""},
	} {
		for _, path := range []string{file, deleted} {
			theirs := a.do(r.method, path+r.rest, r.body, eve)
			none := a.do(r.method, "/api/desk/files/fil_0123456789ab"+r.rest, r.body, eve)
			require.Equal(t, http.StatusNotFound, theirs.status, "%s %s", r.method, path+r.rest)
			require.Equal(t, none.body, theirs.body)
			theirs.header.Del("Date")
			none.header.Del("Date")
			require.Equal(t, none.header, theirs.header)
		}
	}
	for _, r := range []struct{ method, rest, body string }{
		{"GET", "", ""}, {"PUT", "", `{"name":"stolen"}`}, {"PUT", "", `{"parentId":null}`}, {"DELETE", "", ""}, {"DELETE", "?recursive=true", ""},
	} {
		theirs := a.do(r.method, folder+r.rest, r.body, eve).is(http.StatusNotFound, "not_found")
		require.Equal(t, a.do(r.method, "/api/desk/folders/fld_0123456789ab"+r.rest, r.body, eve).body, theirs.body)
	}
	require.Equal(t, before, state())

	// Nor is it a place for eve's own, nor counted for her.
	own := a.create("eve's", eve)
	a.do(http.MethodPost, "/api/desk/files", `{"type":"record","folderId":"`+id+`"}`, eve).is(http.StatusConflict, "folder_not_found")
	a.do(http.MethodPut, own, `{"folderId":"`+id+`"}`, eve).is(http.StatusConflict, "folder_not_found")
	a.do(http.MethodPut, own, strings.Replace(put(1, "s", ""), `"saveId"`, `"folderId":"`+id+`","saveId"`, 1), eve).is(http.StatusConflict, "folder_not_found")
	a.do(http.MethodPost, "/api/desk/folders", `{"name":"x","parentId":"`+id+`"}`, eve).is(http.StatusConflict, "folder_not_found")
	a.do(http.MethodPost, "/api/desk/folders", `{"name":"Private"}`, eve).is(http.StatusCreated, "") // names are each owner's
	require.EqualValues(t, 1, a.get("/api/desk/files", eve).version("data", "pagination", "total"))
	require.EqualValues(t, 0, a.get("/api/desk/files?deleted=true", eve).version("data", "pagination", "total"))
	require.EqualValues(t, 1, a.get("/api/desk/folders", eve).version("data", "pagination", "total"))
	require.NotContains(t, a.get("/api/desk/files", eve).body, "Notes\",\"folderId\":null,\"aiContext\":false,\"version\":2")
}

// Another user's request does not wait for the owner's either: a wait would tell that the file is there.
func TestOwner_AnotherUserDoesNotWaitForTheOwnersLock(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	file := a.create("one")
	tx, err := a.pool.Begin(t.Context())
	require.NoError(t, err)
	defer tx.Rollback(t.Context())
	_, err = tx.Exec(t.Context(), "select from desk.file for update")
	require.NoError(t, err)
	a.save(file, 1, "s", "stolen", as("eve")).is(http.StatusNotFound, "not_found")
	a.do(http.MethodDelete, file, "", as("eve")).is(http.StatusNotFound, "not_found")
	a.do(http.MethodPut, file, `{"name":"x"}`, as("eve")).is(http.StatusNotFound, "not_found")
}

// The database itself refuses a file in somebody else's folder, whatever a statement forgets.
func TestOwner_TheDatabaseRefusesAForeignFolder(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	a.create("one", as("eve"))
	a.do(http.MethodPost, "/api/desk/folders", `{"name":"Private"}`).is(http.StatusCreated, "")
	_, err := a.pool.Exec(t.Context(), "update desk.file set folder_id = (select id from desk.folder)")
	require.ErrorContains(t, err, "file_folder_fk")
}

// A client says for whom its request is: after somebody else signed in, nothing is saved as theirs.
func TestOwner_ARequestForAnotherUserIsRefused(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	file := a.create("one")
	a.get(file, header(desk.UserHeader, "ada")).is(http.StatusOK, "")
	a.save(file, 1, "s", "two", header(desk.UserHeader, "bob")).is(http.StatusUnauthorized, "user_mismatch")
	a.get(file, header(desk.UserHeader, "%")).is(http.StatusUnauthorized, "user_mismatch")
	a.get("/api/desk/files", as("jo an"), header(desk.UserHeader, "jo%20an")).is(http.StatusOK, "")
	version, _ := a.stored(file)
	require.EqualValues(t, 1, version)
}

// Every statement names the owner wherever it names a table that has one.
func TestStatements_NameTheOwnerAndTheSchema(t *testing.T) {
	t.Parallel()
	tables := regexp.MustCompile(`(?i)\b(from|update|join|using)\s+desk\.(file|folder)\b`)
	bare := regexp.MustCompile(`(?i)\b(from|join|update|into|using)\s+(file|folder|save)\b`)
	frozen := regexp.MustCompile(`(?i)\bnow\(\)|current_timestamp`)
	owned := regexp.MustCompile(`(?i)\bowner = @owner::text`)
	n := 0
	for name, sql := range desk.Statements() {
		n++
		require.NotRegexp(t, bare, sql, name)
		require.NotRegexp(t, frozen, sql, name)
		if name == "files to prune" || name == "prune ledger" { // for all owners, and no user's request
			continue
		}
		require.LessOrEqual(t, len(tables.FindAllString(sql, -1)), len(owned.FindAllString(sql, -1)), "%s:\n%s", name, sql)
	}
	require.Greater(t, n, 15)
}
