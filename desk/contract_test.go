package desk_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/desk"
	"github.com/weirqueue/weir/internal/postgres/pgtest"
)

var description = sync.OnceValues(func() (*openapi3.T, error) {
	doc, err := openapi3.NewLoader().LoadFromData(desk.OpenAPI())
	if err != nil {
		return nil, err
	}
	return doc, doc.Validate(context.Background())
})

// seen is every operation and status that any test of this process was answered with.
var seen struct {
	sync.Mutex
	statuses map[string]bool
	codes    map[string]bool
}

// operationOf finds the documented path of a request, and its operation; nil where there is none.
func operationOf(doc *openapi3.T, req *http.Request) (string, *openapi3.PathItem, *openapi3.Operation) {
	parts := strings.Split(req.URL.EscapedPath(), "/")
	for path, item := range doc.Paths.Map() {
		pattern := strings.Split(path, "/")
		if slices.EqualFunc(pattern, parts, func(p, part string) bool { return p == part || strings.HasPrefix(p, "{") }) {
			method := req.Method
			if method == http.MethodHead {
				method = http.MethodGet
			}
			return path, item, item.Operations()[method]
		}
	}
	return "", nil, nil
}

// conforms holds an answer against the description: no status, header or field that is not in it. A request that was
// accepted must be one that it describes.
func conforms(t testing.TB, req *http.Request, sent string, res *http.Response, body []byte) {
	t.Helper()
	doc, err := description()
	require.NoError(t, err)
	path, item, operation := operationOf(doc, req)
	sawCode(body)
	switch {
	case item == nil:
		require.Contains(t, []int{http.StatusNotFound, http.StatusUnauthorized}, res.StatusCode, "%s %s is not described", req.Method, req.URL)
		return
	case operation == nil:
		require.Contains(t, []int{http.StatusMethodNotAllowed, http.StatusUnauthorized}, res.StatusCode, "%s %s is not described", req.Method, req.URL)
		return
	}
	route := &routers.Route{Spec: doc, Path: path, PathItem: item, Method: req.Method, Operation: operation}
	again := req.Clone(context.Background())
	again.Body = io.NopCloser(strings.NewReader(sent))
	params := map[string]string{}
	for i, p := range strings.Split(path, "/") {
		if name, ok := strings.CutPrefix(p, "{"); ok {
			params[strings.TrimSuffix(name, "}")] = strings.Split(req.URL.EscapedPath(), "/")[i]
		}
	}
	input := &openapi3filter.RequestValidationInput{Request: again, PathParams: params, Route: route}
	if res.StatusCode < 300 {
		require.NoError(t, openapi3filter.ValidateRequest(context.Background(), input), "%s %s was accepted: %s", req.Method, req.URL, shown(sent))
	}
	if req.Method == http.MethodHead {
		return
	}
	require.NoError(t, openapi3filter.ValidateResponse(context.Background(), &openapi3filter.ResponseValidationInput{
		RequestValidationInput: input, Status: res.StatusCode, Header: res.Header, Body: io.NopCloser(bytes.NewReader(body)),
		Options: &openapi3filter.Options{IncludeResponseStatus: true},
	}), "%s %s: %d %s", req.Method, req.URL, res.StatusCode, shown(string(body)))
	seen.Lock()
	defer seen.Unlock()
	if seen.statuses == nil {
		seen.statuses = map[string]bool{}
	}
	seen.statuses[fmt.Sprintf("%s %d", operation.OperationID, res.StatusCode)] = true
}

func sawCode(body []byte) {
	var answer struct{ Error struct{ Code string } }
	if json.Unmarshal(body, &answer) != nil {
		return
	}
	seen.Lock()
	defer seen.Unlock()
	if seen.codes == nil {
		seen.codes = map[string]bool{}
	}
	seen.codes[answer.Error.Code] = true
}

func shown(s string) string { return s[:min(len(s), 500)] }

// Every status that the description names can be had from the handler, and the handler sends no other: the second half
// is held by every request of every test here, through conforms.
func TestContract_EveryDocumentedStatusIsSent(t *testing.T) {
	t.Parallel()
	doc, err := description()
	require.NoError(t, err)
	a := newAPI(t)
	file, gone := a.create("one"), a.create("gone")
	a.do(http.MethodDelete, gone, "").is(http.StatusNoContent, "")
	folder := a.do(http.MethodPost, "/api/desk/folders", `{"name":"Work"}`).is(http.StatusCreated, "").header.Get("Location")
	a.do(http.MethodPost, "/api/desk/folders", `{"name":"Inner","parentId":"`+folder[len("/api/desk/folders/"):]+`"}`).is(http.StatusCreated, "")
	a.save(file, 1, "first", "two").is(http.StatusOK, "")

	const nowhere, noFolder = "/api/desk/files/fil_000000000000", "/api/desk/folders/fld_000000000000"
	for _, r := range []struct {
		method, path, body string
		status             int
		code               string
	}{
		{"GET", "/api/desk/files", "", 200, ""},
		{"GET", "/api/desk/files?page=x", "", 400, "invalid"},
		{"POST", "/api/desk/files", `{}`, 400, "invalid"},
		{"POST", "/api/desk/files", `{"type":"record","folderId":"fld_000000000000"}`, 409, "folder_not_found"},
		{"POST", "/api/desk/files", `{"type":"record","schemaVersion":2,"content":{}}`, 422, "schema_outdated"},
		{"GET", file, "", 200, ""},
		{"GET", nowhere, "", 404, "not_found"},
		{"GET", gone, "", 410, "file_deleted"},
		{"PUT", file, `{}`, 400, "invalid"},
		{"PUT", nowhere, put(1, "s", ""), 404, "not_found"},
		{"PUT", file, put(1, "s", ""), 409, "version_conflict"},
		{"PUT", file, `{"folderId":"fld_000000000000"}`, 409, "folder_not_found"},
		{"PUT", gone, put(1, "s", ""), 410, "file_deleted"},
		{"PUT", file, put(1, "first", "other"), 422, "save_id_reused"},
		{"PUT", file, strings.Replace(put(2, "s", ""), `"schemaVersion":1`, `"schemaVersion":2`, 1), 422, "schema_outdated"},
		{"PUT", file, `{"saveId":"s","writerId":"w","schemaVersion":1,"content":{"text":""}}`, 428, "version_required"},
		{"POST", file, "", 201, ""},
		{"POST", file, `{"x":1}`, 400, "invalid"},
		{"POST", nowhere, "", 404, "not_found"},
		{"POST", gone, "", 410, "file_deleted"},
		{"DELETE", nowhere, "", 404, "not_found"},
		{"POST", gone + "/restore", `{"x":1}`, 400, "invalid"},
		{"POST", nowhere + "/restore", "", 404, "not_found"},
		{"POST", gone + "/restore", "", 200, ""},
		{"GET", file + "/saves/first", "", 200, ""},
		{"GET", file + "/saves/other", "", 404, "unknown_save"},
		{"GET", nowhere + "/saves/first", "", 404, "not_found"},
		{"GET", "/api/desk/events", "", 400, "invalid"},
		{"GET", "/api/desk/folders", "", 200, ""},
		{"GET", "/api/desk/folders?pageSize=201", "", 400, "invalid"},
		{"POST", "/api/desk/folders", `{"name":" "}`, 400, "invalid"},
		{"POST", "/api/desk/folders", `{"name":"Work"}`, 409, "folder_exists"},
		{"GET", folder, "", 200, ""},
		{"GET", noFolder, "", 404, "not_found"},
		{"PUT", folder, `{"name":"Play"}`, 200, ""},
		{"PUT", folder, `{}`, 400, "invalid"},
		{"PUT", noFolder, `{"name":"x"}`, 404, "not_found"},
		{"PUT", folder, `{"parentId":"` + folder[len("/api/desk/folders/"):] + `"}`, 409, "folder_cycle"},
		{"DELETE", folder + "?recursive=maybe", "", 400, "invalid"},
		{"DELETE", folder, "", 409, "folder_not_empty"},
		{"DELETE", folder + "?recursive=true", "", 204, ""},
		{"DELETE", folder, "", 404, "not_found"},
	} {
		a.do(r.method, r.path, r.body).is(r.status, r.code)
	}
	a.watch(file).next()

	// What every operation has in common, and every one with a body.
	limited := serve(t, a.pool, desk.HandlerConfig{Rate: 1, Burst: 1}, nil)
	dead, err := pgxpool.New(t.Context(), "postgres://weir@127.0.0.1:1/weir?sslmode=disable")
	require.NoError(t, err)
	t.Cleanup(dead.Close)
	down := serve(t, dead, desk.HandlerConfig{}, nil)
	broken := serve(t, pgtest.Pool(t), desk.HandlerConfig{}, nil)
	execSQL(t, broken.pool, `alter table desk.file rename column owner to other`)
	execSQL(t, broken.pool, `alter table desk.folder rename column owner to other`)
	for path, item := range doc.Paths.Map() {
		path = strings.NewReplacer("{id}", "fil_000000000000", "{saveId}", "s").Replace(path)
		if strings.HasPrefix(path, "/api/desk/folders/") {
			path = noFolder
		}
		if strings.HasSuffix(path, "/events") {
			path += "?files=fil_000000000000"
		}
		for method, operation := range item.Operations() {
			body := map[string]string{"saveFile": put(1, "s", ""), "createFile": `{"type":"markdown"}`, "createFolder": `{"name":"x"}`, "changeFolder": `{"name":"x"}`}[operation.OperationID]
			user := as(operation.OperationID)
			a.do(method, path, body, as("")).is(401, "unauthenticated")
			a.do(method, path, body, header(desk.UserHeader, "somebody")).is(401, "user_mismatch")
			a.do(method, path, body, as("viewer")).is(403, "forbidden")
			limited.refused(operation.OperationID == "watchFiles", method, path, body, user).is(429, "rate_limited")
			down.do(method, path, body).is(503, "unavailable")
			broken.do(method, path, body).is(500, "internal")
			if operation.RequestBody == nil {
				continue
			}
			a.do(method, path, `{}`, header("Content-Type", "text/plain")).is(415, "unsupported_media_type")
			a.do(method, path, strings.Repeat(" ", desk.MaxBodyBytes+1)).is(413, "too_large")
			require.Equal(t, http.StatusRequestTimeout, a.cutOff(method, path).status)
		}
	}

	a.do(http.MethodPatch, file, "").is(405, "method_not_allowed")
	seen.Lock()
	defer seen.Unlock()
	for _, code := range desk.Codes() { // each row of the table of statuses
		if !seen.codes[code] {
			t.Errorf("the code %s was never sent", code)
		}
	}
	for path, item := range doc.Paths.Map() {
		for method, operation := range item.Operations() {
			for status := range operation.Responses.Map() {
				if !seen.statuses[operation.OperationID+" "+status] {
					t.Errorf("%s %s: %s is described and was never sent", method, path, status)
				}
			}
		}
	}
}

// refused asks until the limit of requests is reached, which a machine that stands still for a second puts off. A stream,
// which would not end, is asked for its head first.
func (a *api) refused(stream bool, method, path, body string, changes ...change) (res answer) {
	a.t.Helper()
	for range 20 {
		first := method
		if stream {
			first = http.MethodHead
		}
		if res = a.do(first, path, body, changes...); res.status == http.StatusTooManyRequests && !stream {
			return res
		} else if res.status == http.StatusTooManyRequests {
			return a.do(method, path, body, changes...)
		}
	}
	return res
}

// cutOff sends a body that ends before it said it would, and reads the answer.
func (a *api) cutOff(method, path string) answer {
	a.t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(a.url, "http://"))
	require.NoError(a.t, err)
	defer conn.Close()
	const half = `{"expectedVersion":1,"saveId"`
	_, err = fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: x\r\n%s: ada\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n%s", method, path, userHeader, half)
	require.NoError(a.t, err)
	require.NoError(a.t, conn.(*net.TCPConn).CloseWrite())
	req, err := http.NewRequestWithContext(a.t.Context(), method, a.url+path, nil)
	require.NoError(a.t, err)
	req.Header.Set("Content-Type", "application/json")
	res, err := http.ReadResponse(bufio.NewReader(conn), req)
	require.NoError(a.t, err)
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	require.NoError(a.t, err)
	conforms(a.t, req, half, res, body)
	return answer{a.t, res.StatusCode, res.Header, string(body)}
}
