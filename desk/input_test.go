package desk_test

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/desk"
)

// PG-01: what PostgreSQL or another reader would refuse, lose or read differently is refused, with the field's name, and
// nothing is written.
func TestInput_ThatCannotBeStoredIsRefused(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	file := a.create("one")
	content := func(c string) string { return strings.Replace(put(1, "s", ""), `{"text":""}`, c, 1) }
	deep := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	for _, c := range []struct{ what, body, field string }{
		{"NUL", content(`{"text":"a\u0000b"}`), "body.content.text"},
		{"NUL in a key", content(`{"attributes":{"\u0000":1}}`), "body.content.attributes"},
		{"NUL in the name", `{"name":"a\u0000"}`, "body.name"},
		{"a high surrogate", content(`{"text":"\ud83d"}`), "body.content.text"},
		{"a high surrogate before text", content(`{"text":"\ud83dx"}`), "body.content.text"},
		{"a low surrogate", content(`{"text":"\ude00"}`), "body.content.text"},
		{"two high surrogates", content(`{"text":"\ud83d\ud83d"}`), "body.content.text"},
		{"bytes that are no UTF-8", content("{\"text\":\"\xff\"}"), "body"},
		{"half a rune", content("{\"text\":\"\xf0\x9f\"}"), "body"},
		{"a surrogate in UTF-8", content("{\"text\":\"\xed\xa0\xbd\"}"), "body"},
		{"a control character", content("{\"text\":\"a\nb\"}"), "body.content.text"},
		{"a key twice", content(`{"text":"a","text":"b"}`), "body.content.text"},
		{"a key twice, once escaped", content(`{"text":"a","te\u0078t":"b"}`), "body.content.text"},
		{"an attribute twice", content(`{"attributes":{"a":1,"b":2,"a":1}}`), "body.content.attributes.a"},
		{"a key of another case", content(`{"Text":"a"}`), "content"},
		{"too deep", content(`{"attributes":{"a":` + deep(desk.MaxDepth-2) + `}}`), "body.content.attributes.a" + strings.Repeat(".0", desk.MaxDepth-3)},
		{"very deep", content(`{"attributes":{"a":` + deep(400_000) + `}}`), "body.content.attributes.a" + strings.Repeat(".0", desk.MaxDepth-3)},
		{"too many values", content(`{"attributes":{"a":[` + strings.Repeat("0,", desk.MaxValues) + `0]}}`), fmt.Sprint("body.content.attributes.a.", desk.MaxValues-8)},
		{"a huge exponent", content(`{"attributes":{"a":1e1001}}`), "body.content.attributes.a"},
		{"a huge number", content(`{"attributes":{"a":` + strings.Repeat("9", 1001) + `}}`), "body.content.attributes.a"},
		{"no JSON", `hello`, "body"},
		{"nothing", ` `, "body"},
		{"no object", `[]`, "body"},
		{"an early end", put(1, "s", "two")[:40], "body"},
		{"more after the end", put(1, "s", "two") + `{}`, "body"},
		{"a number that begins with 0", content(`{"attributes":{"a":01}}`), "body.content.attributes"},
		{"a field that is not known", `{"name":"x","label":"y"}`, "body.label"},
		{"content of no type", content(`{}`), "content"},
		{"content that is a list", content(`[]`), "content"},
		{"content of two types", content(`{"text":"","cells":{}}`), "content.text"},
		{"a cell off the grid", content(`{"cells":{"A51":{"v":1}}}`), "content.cells.A51"},
		{"a column off the grid", content(`{"cells":{"AA1":{"v":1}}}`), "content.cells.AA1"},
		{"a cell without a value", content(`{"cells":{"A1":{"f":"=1"}}}`), "content.cells.A1.v"},
		{"a cell that is true", content(`{"cells":{"A1":{"v":true}}}`), "content.cells.A1.v"},
		{"a cell with more", content(`{"cells":{"A1":{"v":1,"x":1}}}`), "content.cells.A1.x"},
		{"a column's width", content(`{"cells":{},"columnMeta":{"A":{"width":"1"}}}`), "content.columnMeta.A.width"},
		{"a column's name", content(`{"cells":{},"columnMeta":{"a":{}}}`), "content.columnMeta.a"},
		{"an attribute without an id", content(`{"attributes":{"":1}}`), "content.attributes"},
		{"a blank name", `{"name":" \t"}`, "name"},
		{"a long name", `{"name":"` + strings.Repeat("é", desk.MaxNameCharacters+1) + `"}`, "name"},
		{"a name with a control character", `{"name":"a\u001b[0m"}`, "name"},
		{"a name that is a number", `{"name":1}`, "name"},
		{"a flag that is a text", `{"aiContext":"true"}`, "aiContext"},
		{"a folder's id", `{"folderId":"fld_xyz"}`, "folderId"},
		{"a save id with a slash", put(1, "a/b", "two"), "saveId"},
		{"a long save id", put(1, strings.Repeat("a", 65), "two"), "saveId"},
		{"a rev that is empty", strings.Replace(put(1, "s", "two"), `"saveId"`, `"expectedRev":"","saveId"`, 1), "expectedRev"},
		{"a rev with a slash", strings.Replace(put(1, "s", "two"), `"saveId"`, `"expectedRev":"a/b","saveId"`, 1), "expectedRev"},
		{"a writer beside a name", `{"name":"x","writerId":"a b"}`, "writerId"},
		{"no save id", strings.Replace(put(1, "s", "two"), `"saveId":"s",`, "", 1), "saveId"},
		{"no writer", strings.Replace(put(1, "s", "two"), `"writerId":"tab-1",`, "", 1), "writerId"},
		{"no schema", strings.Replace(put(1, "s", "two"), `"schemaVersion":1,`, "", 1), "schemaVersion"},
	} {
		t.Run(c.what, func(t *testing.T) {
			res := a.do(http.MethodPut, file, c.body).is(http.StatusBadRequest, "invalid")
			require.Contains(t, res.value("error", "fields"), c.field, res.body)
		})
	}
	version, text := a.stored(file)
	require.EqualValues(t, 1, version)
	require.Equal(t, "one", text)
	require.Equal(t, "Notes", a.get(file).value("data", "name"))
}

// What was saved is read: every digit, the order of keys, emoji, and whatever else JSON can say.
func TestInput_IsReadAsItWasSaved(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	deep := strings.Repeat("[", desk.MaxDepth-3) + strings.Repeat("]", desk.MaxDepth-3)
	for typ, contents := range map[string][]string{
		"record": {
			`{"attributes":{"z":12345678901234567890123456789.000000000000000000001,"a":1.10,"m":-0,"e":1E+2,"n":0.1e-999,"o":{"y":1,"x":[true,false,null]}}}`,
			`{"attributes":{"deep":` + deep + `,"long":` + strings.Repeat("9", 1000) + `}}`,
			`{"attributes":{"😀":"😀\u0001\"\\ </script> é","constructor":1,"__proto__":2}}`,
		},
		"spreadsheet": {
			`{"cells":{"B2":{"v":9007199254740993,"f":"=A1","t":"n"},"A1":{"v":null},"Z50":{"v":""}},"columnMeta":{"A":{"label":"x","width":80.5},"Z":{}}}`,
			`{"cells":{},"columnMeta":null}`, `{"cells":{}}`,
		},
		"markdown": {`{"text":"# Hello\n\tworld\r\n"}`, `{"text":""}`},
	} {
		for _, content := range contents {
			created := a.do(http.MethodPost, "/api/desk/files", `{"type":"`+typ+`","content":`+content+`}`).is(http.StatusCreated, "")
			require.Contains(t, created.body, `"content":`+content)
			file := created.header.Get("Location")
			a.do(http.MethodPut, file, strings.Replace(put(1, "s", ""), `{"text":""}`, content, 1)).is(http.StatusOK, "")
			require.Contains(t, a.get(file).body, `"content":`+content)
			require.Contains(t, a.do(http.MethodPost, file, "").is(http.StatusCreated, "").body, `"content":`+content)
		}
	}
	// White space and needless escapes go, and nothing else.
	spaced := a.do(http.MethodPost, "/api/desk/files", `{"type":"record","content": { "attributes" : {"\u00e9\/": "\u0041\ud83d\ude00\u2028"} } }`).is(http.StatusCreated, "")
	require.Contains(t, spaced.body, `"content":{"attributes":{"é/":"A😀`+"\u2028"+`"}}`)
}

// Content up to the bound is taken, in whatever script; above it is 413, and the file is as it was.
func TestInput_TooLargeIs413(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	file := a.create("one")
	const around = len(`{"text":""}`)
	for i, unit := range []struct {
		text  string
		units int
	}{{"x", 1}, {"中", 1}, {"😀", 2}} {
		n := (desk.MaxContentCharacters - around) / unit.units
		version := int64(i + 1)
		a.save(file, version, fmt.Sprint("fits-", i), strings.Repeat(unit.text, n)).is(http.StatusOK, "")
		res := a.save(file, version+1, "over", strings.Repeat(unit.text, n+1)).is(http.StatusRequestEntityTooLarge, "too_large")
		require.Contains(t, res.value("error", "fields"), "content")
	}
	whole := a.get(file)
	require.EqualValues(t, desk.MaxContentBytes, whole.version("data", "limits", "maxContentBytes"))
	require.EqualValues(t, desk.MaxContentCharacters, whole.version("data", "limits", "maxContentCharacters"))
	require.EqualValues(t, 4, whole.version("data", "version"))

	// A body that is over its bound is read to its end, within reason, so that the sender sees the answer.
	for _, size := range []int{desk.MaxBodyBytes + 1, 8 << 20} {
		res := a.do(http.MethodPut, file, strings.Repeat(" ", size)).is(http.StatusRequestEntityTooLarge, "too_large")
		require.Contains(t, res.value("error", "fields"), "body")
		a.do(http.MethodPost, "/api/desk/folders", strings.Repeat(" ", size)).is(http.StatusRequestEntityTooLarge, "too_large")
	}
}

// The rest of such a body is read before the answer: to a sender that has not read it yet, a connection that is closed
// while it still writes is a reset and no status.
func TestInput_TooLargeIsAnsweredWhenAllOfItIsSent(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	file := a.create("one")
	conn, err := net.Dial("tcp", strings.TrimPrefix(a.url, "http://"))
	require.NoError(t, err)
	defer conn.Close()
	const size, first = 6 << 20, 5 << 20
	_, err = fmt.Fprintf(conn, "PUT %s HTTP/1.1\r\nHost: x\r\n%s: ada\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
		file, userHeader, size, strings.Repeat(" ", first))
	require.NoError(t, err)
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(time.Second)))
	_, err = conn.Read(make([]byte, 1))
	require.ErrorIs(t, err, os.ErrDeadlineExceeded, "it waits for the rest")
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(20*time.Second)))
	_, err = conn.Write([]byte(strings.Repeat(" ", size-first)))
	require.NoError(t, err)
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	require.Equal(t, http.StatusRequestEntityTooLarge, res.StatusCode)
	require.True(t, res.Close)
}

// So it is for what is refused before its body is looked at: a browser that has sent half of a large save when it is
// told to sign in must see that, and not a fault of the network, after which it would send all of it again.
func TestInput_RefusalsAreAnsweredWhenAllOfItIsSent(t *testing.T) {
	t.Parallel()
	limited := newAPI(t)
	file := limited.create("one")
	for what, r := range map[string]struct {
		user, path, head string
		status           int
	}{
		"nobody":                  {"", file, "", 401},
		"a viewer":                {"viewer", file, "", 403},
		"no such path":            {"ada", "/api/desk/nothing", "", 404},
		"a sender who asks first": {"", file, "Expect: 100-continue\r\n", 401},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			conn, err := net.Dial("tcp", strings.TrimPrefix(limited.url, "http://"))
			require.NoError(t, err)
			defer conn.Close()
			half := strings.Repeat(" ", 700<<10)
			_, err = fmt.Fprintf(conn, "PUT %s HTTP/1.1\r\nHost: x\r\n%s: %s\r\nContent-Type: application/json\r\n%sContent-Length: %d\r\n\r\n",
				r.path, userHeader, r.user, r.head, 2*len(half))
			require.NoError(t, err)
			if r.head == "" {
				_, err = conn.Write([]byte(half))
				require.NoError(t, err)
				require.NoError(t, conn.SetReadDeadline(time.Now().Add(300*time.Millisecond)))
				_, err = conn.Read(make([]byte, 1))
				require.ErrorIs(t, err, os.ErrDeadlineExceeded, "it waits for the rest")
				_, err = conn.Write([]byte(half))
				require.NoError(t, err)
			}
			require.NoError(t, conn.SetReadDeadline(time.Now().Add(60*time.Second)))
			res, err := http.ReadResponse(bufio.NewReader(conn), nil)
			require.NoError(t, err)
			require.NoError(t, res.Body.Close())
			require.Equal(t, r.status, res.StatusCode)
		})
	}
}

func TestInput_OfAnotherContentTypeIs415(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	file := a.create("one")
	for _, refused := range []change{
		header("Content-Type", ""), header("Content-Type", "text/plain"), header("Content-Type", "application/x-www-form-urlencoded"),
		header("Content-Type", "application/json; charset=utf-16"), header("Content-Type", "application/jsonx"), header("Content-Type", "x"),
		header("Content-Encoding", "gzip"),
	} {
		a.do(http.MethodPut, file, put(1, "s", "two"), refused).is(http.StatusUnsupportedMediaType, "unsupported_media_type")
	}
	a.do(http.MethodPut, file, put(1, "s", "two"), header("Content-Type", "Application/JSON; charset=UTF-8")).is(http.StatusOK, "")
}

func TestInput_BodyThatEndsEarlyMayBeSentAgain(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	file := a.create("one")
	res := a.cutOff(http.MethodPut, file)
	require.Equal(t, http.StatusRequestTimeout, res.status, res.body)
	version, _ := a.stored(file)
	require.EqualValues(t, 1, version)
}

// Odd paths are not found: no redirect, which a client might follow, and no error of SQL.
func TestInput_OddIDsAreNotFound(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	file := a.create("one")
	ids := []string{
		"x", "fil_", "fil_0123456789abc", "FIL_0123456789ab", "fil_0123456789aB", "%00", "fil_0123456789ab%00", "%F0%9F%98%80", "%ff", "%",
		"%2e%2e", "..%2f..", "fil_%27%20or%201=1", strings.Repeat("a", 5000), "fld_0123456789ab", "%2Ffiles", "fil_0123456789ab%20",
	}
	for _, id := range ids {
		for _, path := range []string{"/api/desk/files/" + id, "/api/desk/files/" + id + "/saves/s", "/api/desk/folders/" + id} {
			if id == "%" {
				continue // not even Go's client sends it
			}
			a.get(path).is(http.StatusNotFound, "not_found")
		}
	}
	for _, path := range []string{"/api/desk/", "/api/desk/file", "/api/desk/files/", file + "/", file + "/saves", file + "/saves/", "/api/desk/folders/"} {
		res := a.get(path)
		require.Equal(t, http.StatusNotFound, res.status, path)
	}
	a.get(file+"/saves/"+strings.Repeat("a", 5000)).is(http.StatusNotFound, "unknown_save")
	a.get(file+"/saves/%00").is(http.StatusNotFound, "unknown_save")
	res := a.do(http.MethodPatch, file, `{}`).is(http.StatusMethodNotAllowed, "method_not_allowed")
	require.Equal(t, "DELETE, GET, POST, PUT", res.header.Get("Allow"))
	require.Equal(t, http.StatusOK, a.do(http.MethodHead, file, "").status)
}

func TestInput_UsersWhoCannotBeStoredAreNobody(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	for _, name := range []string{"a\xffb", strings.Repeat("x", 256)} {
		a.get("/api/desk/files", as(name)).is(http.StatusUnauthorized, "unauthenticated")
	}
}
