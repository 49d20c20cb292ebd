package desk_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/desk"
	"github.com/weirqueue/weir/internal/postgres/pgtest"
)

// DO-01, behaviours 1 and 4: whoever comes first saves, its twin is told so, and all others conflict.
func TestSave_FiftyRacingSavesOfWhichEachIsSentTwice(t *testing.T) {
	t.Parallel()
	a := newAPI(t, pgtest.MaxConns(20))
	file := a.create("one")
	var (
		mu                           sync.Mutex
		committed, replayed, refused int
	)
	inParallel(50, func(i int) {
		res := a.save(file, 1, fmt.Sprintf("save-%d", i/2), fmt.Sprintf("text %d", i/2))
		mu.Lock()
		defer mu.Unlock()
		switch {
		case res.status == http.StatusConflict:
			refused++
			res.is(http.StatusConflict, "version_conflict")
			require.EqualValues(t, 2, res.version("error", "current", "version"))
		case res.is(http.StatusOK, "").value("data", "replayed") == true:
			replayed++
		default:
			committed++
		}
	})
	require.Equal(t, [3]int{1, 1, 48}, [3]int{committed, replayed, refused})
	version, _ := a.stored(file)
	require.EqualValues(t, 2, version)
	require.Equal(t, 2, value[int](t, a.pool, "select count(*)::int from desk.save"), "its creation and one save")
}

// cutting hijacks and closes the connection of a PUT after the handler has done its work, as often as its count says.
func cutting(count *atomic.Int32) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodPut || count.Add(-1) < 0 {
				next.ServeHTTP(w, r)
				return
			}
			next.ServeHTTP(nowhere{}, r)
			conn, _, err := http.NewResponseController(w).Hijack()
			if err == nil {
				_ = conn.Close()
			}
		})
	}
}

type nowhere struct{}

func (nowhere) Header() http.Header         { return http.Header{} }
func (nowhere) Write(b []byte) (int, error) { return len(b), nil }
func (nowhere) WriteHeader(int)             {}

// DO-01, behaviour 1.
func TestSave_WhoseAnswerWasLostIsReplayed(t *testing.T) {
	t.Parallel()
	var cut atomic.Int32
	a := serve(t, pgtest.Pool(t), desk.HandlerConfig{}, cutting(&cut))
	file := a.create("one")
	cut.Store(2)
	for range 2 { // the browser's own retry is lost too
		_, err := a.send(http.MethodPut, file, put(1, "mine", "two"))
		require.Error(t, err)
	}
	version, text := a.stored(file)
	require.EqualValues(t, 2, version)
	require.Equal(t, "two", text)

	res := a.save(file, 1, "mine", "two").is(http.StatusOK, "")
	require.Equal(t, true, res.value("data", "replayed"))
	require.EqualValues(t, 2, res.version("data", "file", "version"))
	require.EqualValues(t, 2, res.version("data", "currentVersion"))
	require.Equal(t, `"2-mine"`, res.header.Get("ETag"))
	version, _ = a.stored(file)
	require.EqualValues(t, 2, version, "the version rose once")

	found := a.get(file+"/saves/mine").is(http.StatusOK, "")
	require.EqualValues(t, 2, found.version("data", "version"))
}

// Behaviour 2: the answer to a save that another one followed says both versions, and the next save's conflict the true one.
func TestSave_ReplayedAfterAnotherWritersSaveTellsBothVersions(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	file := a.create("one")
	a.save(file, 1, "mine", "two").is(http.StatusOK, "")
	other := strings.Replace(put(2, "theirs", "three"), "tab-1", "tab-2", 1)
	a.do(http.MethodPut, file, other).is(http.StatusOK, "")

	res := a.save(file, 1, "mine", "two").is(http.StatusOK, "")
	require.Equal(t, true, res.value("data", "replayed"))
	require.EqualValues(t, 2, res.version("data", "file", "version"))
	require.Equal(t, "mine", res.value("data", "file", "rev"))
	require.EqualValues(t, 3, res.version("data", "currentVersion"))
	require.Empty(t, res.header.Get("ETag"), "what is stored is not what was saved")
	_, text := a.stored(file)
	require.Equal(t, "three", text)

	conflict := a.save(file, 2, "next", "four").is(http.StatusConflict, "version_conflict")
	current := conflict.value("error", "current").(map[string]any)
	require.EqualValues(t, 3, conflict.version("error", "current", "version"))
	require.Equal(t, []any{"theirs", "theirs", "tab-2"}, []any{current["rev"], current["saveId"], current["writerId"]}) // behaviour 8
	found := a.get(file+"/saves/mine").is(http.StatusOK, "")
	require.EqualValues(t, 3, found.version("data", "currentVersion"))
}

// Behaviour 3: the hash is that of what was asked for. The order of keys and the white space say nothing; digits do.
func TestSave_IDWithAnotherRequestIsRefused(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	file := a.do(http.MethodPost, "/api/desk/files", `{"type":"record"}`).is(http.StatusCreated, "").header.Get("Location")
	const first = `{"expectedVersion":1,"saveId":"s","writerId":"w","schemaVersion":1,"content":{"attributes":{"a":1.0,"b":"é"}}}`
	a.do(http.MethodPut, file, first).is(http.StatusOK, "")
	same := `{ "content": {"attributes": {"b": "\u00e9", "a": 1.0}}, "schemaVersion": 1, "writerId": "w", "saveId": "s", "expectedVersion": 1 }`
	require.Equal(t, true, a.do(http.MethodPut, file, same).is(http.StatusOK, "").value("data", "replayed"))
	sameByHeader := strings.Replace(first, `"expectedVersion":1,`, "", 1)
	for what, body := range map[string]string{
		"other digits":      strings.Replace(first, "1.0", "1.00", 1),
		"other text":        strings.Replace(first, "é", "e", 1),
		"another base":      strings.Replace(first, `"expectedVersion":1`, `"expectedVersion":2`, 1),
		"another writer":    strings.Replace(first, `"writerId":"w"`, `"writerId":"x"`, 1),
		"metadata added":    strings.Replace(first, `"saveId"`, `"name":"New","saveId"`, 1),
		"the base's rev":    strings.Replace(first, `"saveId"`, `"expectedRev":"x","saveId"`, 1),
		"another attribute": strings.Replace(first, `"a":`, `"c":`, 1),
	} {
		t.Run(what, func(t *testing.T) {
			a.do(http.MethodPut, file, body).is(http.StatusUnprocessableEntity, "save_id_reused")
		})
	}
	a.do(http.MethodPut, file, sameByHeader, header("If-Match", `"1-x"`)).is(http.StatusUnprocessableEntity, "save_id_reused")
	require.EqualValues(t, 2, a.get(file).version("data", "version"))
	// In another file the id is free.
	other := a.create("one")
	a.save(other, 1, "s", "two").is(http.StatusOK, "")
}

// Behaviour 4, and the order that makes it hard: both copies have looked at the ledger before either one has written.
func TestSave_TwoCopiesThatWaitForTheSameLock(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	file := a.create("one")
	tx, err := a.pool.Begin(t.Context())
	require.NoError(t, err)
	defer tx.Rollback(t.Context())
	_, err = tx.Exec(t.Context(), "select from desk.file for update")
	require.NoError(t, err)
	replays := make(chan any, 2)
	for range 2 {
		go func() { replays <- a.save(file, 1, "mine", "two").value("data", "replayed") }()
	}
	waitsForLock(t, a.pool, 2)
	require.NoError(t, tx.Rollback(t.Context()))
	require.ElementsMatch(t, []any{true, false}, []any{<-replays, <-replays})
	version, _ := a.stored(file)
	require.EqualValues(t, 2, version)
}

// DO-15: nothing but an integer is a version, and nothing is written without one.
func TestSave_NeedsTheVersionThatItIsBasedOn(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	file := a.create("one")
	for _, version := range []string{`null`, `"1"`, `1.0`, `1e0`, `0`, `-1`, `-0`, `9007199254740993`, `99999999999999999999`, `[1]`, `{}`, `true`} {
		res := a.do(http.MethodPut, file, strings.Replace(put(1, "s", "two"), `"expectedVersion":1`, `"expectedVersion":`+version, 1)).is(http.StatusBadRequest, "invalid")
		require.Contains(t, res.value("error", "fields"), "expectedVersion", version)
	}
	absent := strings.Replace(put(1, "s", "two"), `"expectedVersion":1,`, "", 1)
	a.do(http.MethodPut, file, absent).is(http.StatusPreconditionRequired, "version_required")
	a.do(http.MethodPut, file, strings.Replace(absent, "{", `{"expectedVersion":1,"expectedVersion":1,`, 1)).is(http.StatusBadRequest, "invalid")
	for _, etag := range []string{`*`, `1-x`, `"1"`, `"x-1"`, `"01-x"`, `"+1-x"`, `"0-x"`, `"1-x", "2-y"`, `"1-"`, `"1-x`, `"9007199254740992-x"`} {
		a.do(http.MethodPut, file, absent, header("If-Match", etag)).is(http.StatusBadRequest, "invalid")
	}
	version, text := a.stored(file)
	require.EqualValues(t, 1, version)
	require.Equal(t, "one", text)
	require.Equal(t, 1, value[int](t, a.pool, "select count(*)::int from desk.save"))
}

func TestSave_TakesTheVersionFromIfMatch(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	file := a.create("one")
	etag := a.get(file).header.Get("ETag")
	without := func(save string) string { return strings.Replace(put(1, save, save), `"expectedVersion":1,`, "", 1) }
	a.do(http.MethodPut, file, put(2, "s", ""), header("If-Match", etag)).is(http.StatusBadRequest, "invalid")
	a.do(http.MethodPut, file, strings.Replace(put(1, "s", ""), `"saveId"`, `"expectedRev":"other","saveId"`, 1), header("If-Match", etag)).is(http.StatusBadRequest, "invalid")
	res := a.do(http.MethodPut, file, without("two"), header("If-Match", etag)).is(http.StatusOK, "")
	require.Equal(t, `"2-two"`, res.header.Get("ETag"))
	a.do(http.MethodPut, file, without("three"), header("If-Match", etag)).is(http.StatusConflict, "version_conflict")
	a.do(http.MethodPut, file, put(2, "three", ""), header("If-Match", `W/"2-two"`)).is(http.StatusOK, "")
}

// Behaviour 19: a backup that was restored has the number that a client knows, and another save behind it.
func TestSave_SameVersionOfAnotherSaveIsAConflict(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	file := a.create("one")
	a.save(file, 1, "lost", "two").is(http.StatusOK, "")
	// The backup from before, and somebody's save after it.
	execSQL(t, a.pool, `update desk.file set rev = 'theirs', content = '{"text":"theirs"}' where version = 2`)
	execSQL(t, a.pool, `update desk.save set save_id = 'theirs' where version = 2`)
	withRev := strings.Replace(put(2, "next", "three"), `"saveId"`, `"expectedRev":"lost","saveId"`, 1)
	res := a.do(http.MethodPut, file, withRev).is(http.StatusConflict, "version_conflict")
	require.Equal(t, "theirs", res.value("error", "current", "rev"))
	a.do(http.MethodPut, file, strings.Replace(put(2, "next", "three"), `"expectedVersion":2,`, "", 1), header("If-Match", `"2-lost"`)).is(http.StatusConflict, "version_conflict")
	a.get(file+"/saves/lost").is(http.StatusNotFound, "unknown_save")
	_, text := a.stored(file)
	require.Equal(t, "theirs", text)
}

// Behaviour 15: a rename, a move or a flag neither needs nor raises the version, and conflicts with nobody.
func TestSave_MetadataAloneIsNotVersioned(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	file := a.create("one")
	folder := a.do(http.MethodPost, "/api/desk/folders", `{"name":"Work"}`).is(http.StatusCreated, "").value("data", "id").(string)
	res := a.do(http.MethodPut, file, `{"name":"New name","aiContext":true,"folderId":"`+folder+`"}`).is(http.StatusOK, "")
	require.EqualValues(t, 1, res.version("data", "currentVersion"))
	require.Equal(t, []any{"New name", true, folder, nil}, []any{
		res.value("data", "file", "name"), res.value("data", "file", "aiContext"), res.value("data", "file", "folderId"), res.value("data", "saveId"),
	})
	a.save(file, 1, "two", "two").is(http.StatusOK, "")
	// Behind by a version, and still no conflict.
	a.do(http.MethodPut, file, `{"name":"Newer","expectedVersion":1,"saveId":"m"}`).is(http.StatusOK, "")
	a.do(http.MethodPut, file, `{"folderId":null}`).is(http.StatusOK, "")
	whole := a.get(file)
	require.Equal(t, []any{"Newer", true, nil}, []any{whole.value("data", "name"), whole.value("data", "aiContext"), whole.value("data", "folderId")})
	require.EqualValues(t, 2, whole.version("data", "version"))

	// With content, both or neither.
	both := strings.Replace(put(1, "three", "three"), `"saveId"`, `"name":"Lost","saveId"`, 1)
	a.do(http.MethodPut, file, both).is(http.StatusConflict, "version_conflict")
	require.Equal(t, "Newer", a.get(file).value("data", "name"))
	a.do(http.MethodPut, file, strings.Replace(both, `"expectedVersion":1`, `"expectedVersion":2`, 1)).is(http.StatusOK, "")
	require.Equal(t, "Lost", a.get(file).value("data", "name"))
	noFolder := strings.Replace(put(3, "four", "four"), `"saveId"`, `"folderId":"fld_000000000000","saveId"`, 1)
	a.do(http.MethodPut, file, noFolder).is(http.StatusConflict, "folder_not_found")
	version, _ := a.stored(file)
	require.EqualValues(t, 3, version)
}

// A client of another version gets no write, but learns of what it had saved before.
func TestSave_OfAnotherSchemaIsRefusedAndStillReplayed(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	file := a.create("one")
	old := strings.Replace(put(1, "old", "two"), `"schemaVersion":1`, `"schemaVersion":7`, 1)
	a.do(http.MethodPut, file, old).is(http.StatusUnprocessableEntity, "schema_outdated")
	a.do(http.MethodPut, file, strings.Replace(old, `"text"`, `"future"`, 1)).is(http.StatusUnprocessableEntity, "schema_outdated")
	version, _ := a.stored(file)
	require.EqualValues(t, 1, version)

	// The server that wrote schema 7 was here before this one, and the answer was lost when it was replaced.
	execSQL(t, a.pool, `update desk.file set version = 2, rev = 'old', writer_id = 'tab-1', schema_version = 7`)
	execSQL(t, a.pool, `insert into desk.save (file_id, save_id, version, writer_id, hash) select id, rev, version, writer_id, $1 from desk.file`,
		desk.LedgerHash(t, old))
	require.Equal(t, true, a.do(http.MethodPut, file, old).is(http.StatusOK, "").value("data", "replayed"))
	a.do(http.MethodPut, file, strings.Replace(old, "two", "other", 1)).is(http.StatusUnprocessableEntity, "save_id_reused")
}

// The type of a file does not change under a save.
func TestSave_ContentOfAnotherTypeIsRefused(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	file := a.create("one")
	for _, content := range []string{`{"cells":{}}`, `{"attributes":{}}`} {
		res := a.do(http.MethodPut, file, strings.Replace(put(1, "s", ""), `{"text":""}`, content, 1)).is(http.StatusBadRequest, "invalid")
		require.Contains(t, res.value("error", "fields"), "content")
	}
}

// DO-15: a deleted file is 410, also for the save that was under way, and comes back as it was.
func TestSave_ToADeletedFileWritesNothing(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	file := a.create("one")
	a.save(file, 1, "two", "two").is(http.StatusOK, "")
	a.do(http.MethodDelete, file, "").is(http.StatusNoContent, "")
	a.do(http.MethodDelete, file, "").is(http.StatusNoContent, "")
	a.save(file, 2, "three", "three").is(http.StatusGone, "file_deleted")
	a.save(file, 1, "two", "two").is(http.StatusGone, "file_deleted")
	a.do(http.MethodPut, file, `{"name":"x"}`).is(http.StatusGone, "file_deleted")
	a.get(file+"/saves/two").is(http.StatusOK, "")
	res := a.do(http.MethodPost, file+"/restore", "").is(http.StatusOK, "")
	require.EqualValues(t, 2, res.version("data", "version"))
	a.save(file, 2, "three", "three").is(http.StatusOK, "")
}
