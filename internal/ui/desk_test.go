package ui

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/desk"
	"github.com/weirqueue/weir/internal/postgres/pgtest"
	"github.com/weirqueue/weir/jobs"
)

func asJSON(r *http.Request) { r.Header.Set("Content-Type", "application/json") }

// createFile makes a markdown file and returns its path.
func (s *site) createFile(name string, change ...func(*http.Request)) string {
	s.t.Helper()
	res := s.do(http.MethodPost, "/api/desk/files", fmt.Sprintf(`{"type":"markdown","name":%q}`, name), append(change, asJSON)...)
	require.Equal(s.t, http.StatusCreated, res.StatusCode, res.body)
	return res.Header.Get("Location")
}

func codeOf(t *testing.T, res answer) string {
	t.Helper()
	var said struct {
		Error struct{ Code, Message string }
	}
	require.NoError(t, json.Unmarshal([]byte(res.body), &said), res.body)
	require.NotEmpty(t, said.Error.Message)
	return said.Error.Code
}

func TestDesk_NobodyIsToldSoInJSON(t *testing.T) {
	t.Parallel()
	s := newSite(t, withViewer(t))
	for _, who := range []func(*http.Request){func(*http.Request) {}, as("vera", "wrong")} {
		res := s.get("/api/desk/files", who)
		require.Equal(t, http.StatusUnauthorized, res.StatusCode)
		require.Equal(t, "unauthenticated", codeOf(t, res))
		require.Contains(t, res.Header.Get("WWW-Authenticate"), "Basic")
	}
	require.Equal(t, http.StatusUnauthorized, s.get("/files").StatusCode)

	proxied := newSite(t, func(c *Config) {
		c.Auth = &ProxyAuth{Header: "X-Forwarded-User", Proxies: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}
	})
	res := proxied.get("/api/desk/files")
	require.Equal(t, http.StatusUnauthorized, res.StatusCode)
	require.Equal(t, "unauthenticated", codeOf(t, res))
	require.Empty(t, res.Header.Get("WWW-Authenticate"), "signing in is the proxy's")
	require.Equal(t, http.StatusOK, proxied.get("/api/desk/files", header("X-Forwarded-User", "ada")).StatusCode)
}

func TestDesk_ViewersAndOtherSitesCannotWrite(t *testing.T) {
	t.Parallel()
	s := newSite(t, withViewer(t))
	file := s.createFile("Notes", as("otto", "otto"))
	for what, change := range map[string][]func(*http.Request){
		"a viewer":         {as("vera", "vera")},
		"a cross-site one": {as("otto", "otto"), header("Sec-Fetch-Site", "cross-site")},
		"another origin":   {as("otto", "otto"), header("Origin", "https://evil.example")},
	} {
		for _, r := range [][2]string{{"PUT", file}, {"POST", file}, {"DELETE", file}, {"POST", "/api/desk/files"}, {"POST", "/api/desk/folders"}} {
			res := s.do(r[0], r[1], `{"name":"x","type":"record"}`, append(change, asJSON)...)
			require.Equal(t, http.StatusForbidden, res.StatusCode, what)
			require.Equal(t, "forbidden", codeOf(t, res))
		}
	}
	require.Contains(t, s.get(file, as("otto", "otto")).body, `"name":"Notes"`)
	require.Equal(t, http.StatusOK, s.get("/api/desk/files", as("vera", "vera")).StatusCode)
}

func TestDesk_EachUserSeesTheirOwnFiles(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(c *Config) { c.Auth = users(t, "ada", "bob") })
	ada, bob := as("ada", "ada"), as("bob", "bob")
	file := s.createFile("<b>Ada's\u202e plans", ada)
	s.createFile("Bob's", bob)
	require.Equal(t, http.StatusOK, s.get(file, ada).StatusCode)
	require.Equal(t, http.StatusNotFound, s.get(file, bob).StatusCode)
	page := s.get("/files", ada)
	require.Equal(t, http.StatusOK, page.StatusCode)
	require.Contains(t, page.body, `&lt;b&gt;Ada&#39;s\u202e plans`)
	require.NotContains(t, page.body, "Bob")
	require.Contains(t, page.body, "Files <span class=\"muted\">1</span>")
	require.NotContains(t, s.get("/files", bob).body, "Ada")
}

// The page of a document holds none of its content, and is nobody else's. A browser may keep it for the way back.
func TestDesk_ADocumentsPageIsItsOwners(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(c *Config) { c.Auth, c.Viewers = users(t, "ada", "bob"), []string{"bob"} })
	ada, bob := as("ada", "ada"), as("bob", "bob")
	made := s.post("/files", ada, func(r *http.Request) {
		r.Body = io.NopCloser(strings.NewReader("type=record"))
		r.ContentLength = int64(len("type=record"))
	})
	require.Equal(t, http.StatusSeeOther, made.StatusCode, made.body)
	page := made.Header.Get("Location")
	res := s.get(page, ada)
	require.Equal(t, http.StatusOK, res.StatusCode)
	require.Contains(t, res.body, `data-type="record" data-user="ada"`)
	require.Equal(t, "private, no-cache", res.Header.Get("Cache-Control"))
	require.NotContains(t, res.body, "data-viewer")
	require.Equal(t, http.StatusNotFound, s.get(page, bob).StatusCode)
	for _, odd := range []string{"fil_x", "%00", "fil_0123456789a%ff", "%F0%9F%98%80"} {
		require.Equal(t, http.StatusNotFound, s.get("/files/"+odd, ada).StatusCode, odd)
	}
	require.Equal(t, http.StatusBadRequest, s.post("/files", ada).StatusCode, "of no type")
	require.Equal(t, http.StatusForbidden, s.post("/files", bob).StatusCode)
	require.NotContains(t, s.get("/files", bob).body, "New record")

	id := strings.TrimPrefix(page, "/files/")
	require.Equal(t, http.StatusNoContent, s.do(http.MethodDelete, "/api/desk/files/"+id, "", ada).StatusCode)
	require.Equal(t, http.StatusOK, s.get(page, ada).StatusCode, "a deleted document may have unsaved work")
}

func TestDesk_FilesPageFiltersAndTurns(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	require.Contains(t, s.get("/files").body, "You have no files yet.")
	for i := range filesPageSize + 1 {
		s.createFile(fmt.Sprintf("File number %d.", i))
	}
	first := s.get("/files").body
	require.Contains(t, first, "File number 50.")
	require.NotContains(t, first, "File number 0.")
	require.Contains(t, first, `href="/files?page=2"`)
	second := s.get("/files?page=2").body
	require.Contains(t, second, "File number 0.")
	require.Contains(t, second, `href="/files" rel="prev"`)
	require.Contains(t, s.get("/files?page=9").body, `href="/files?page=2" rel="prev"`)
	require.Contains(t, s.get("/files?type=record").body, "No file matches.")
	require.Contains(t, s.get("/files?deleted=true").body, "No file is deleted.")
	for _, bad := range []string{"?page=x", "?page=-1", "?page=0", "?type=pdf"} {
		require.Equal(t, http.StatusBadRequest, s.get("/files"+bad).StatusCode, bad)
	}
}

func TestDesk_WithoutTablesIsUnavailable(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(c *Config) {
		pool := pgtest.Connect(t, pgtest.Empty(t))
		client, err := jobs.NewClient(pool, nil)
		require.NoError(t, err)
		c.Pool, c.Jobs = pool, client
	})
	res := s.get("/api/desk/files")
	require.Equal(t, http.StatusServiceUnavailable, res.StatusCode)
	require.Equal(t, "unavailable", codeOf(t, res))
	require.Contains(t, s.get("/files").body, "worker migrate up")
}

// Documents may be larger than the forms of the other pages.
func TestDesk_TakesDocumentsAboveTheBoundOfForms(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	file := s.createFile("Notes")
	text := strings.Repeat("中", desk.MaxContentCharacters-20)
	res := s.do(http.MethodPut, file, `{"expectedVersion":1,"saveId":"s","writerId":"w","schemaVersion":1,"content":{"text":"`+text+`"}}`, asJSON)
	require.Equal(t, http.StatusOK, res.StatusCode, res.body)
	require.Greater(t, len(text), maxBody)
}

// A browser that sends too much sees the status, and not a connection that was reset.
func TestBrowser_ADocumentThatIsTooLargeIsSeenAs413(t *testing.T) {
	s := newSite(t)
	file := s.createFile("Notes")
	b := newBrowser(t)
	b.open(s.url+"/files", "#main")
	for i, size := range []int{desk.MaxBodyBytes + 1, 4 << 20, 15 << 20} {
		b.do(chromedp.Evaluate[chromedp.Void](fmt.Sprintf(`(async () => { window.seen = undefined; try {
			const r = await fetch(%q, {method: "PUT", headers: {"Content-Type": "application/json"}, body: "x".repeat(%d)});
			window.seen = r.status + " " + (await r.json()).error.code;
		} catch (e) { window.seen = String(e); } })()`, file, size)))
		require.Eventually(t, func() bool { return eval[bool](b, "window.seen !== undefined") }, 20e9, 20e6)
		require.Equal(t, "413 too_large", eval[string](b, "window.seen"), "body %d of %d bytes", i, size)
	}
	b.do(chromedp.Evaluate[chromedp.Void](fmt.Sprintf(`fetch(%q, {method: "PUT", headers: {"Content-Type": "application/json"}, body: JSON.stringify(
		{expectedVersion: 1, saveId: crypto.randomUUID(), writerId: "tab", schemaVersion: 1, content: {text: "from a browser"}})}).then(r => window.saved = r.status)`, file)))
	require.Eventually(t, func() bool { return eval[bool](b, "window.saved === 200") }, 20e9, 20e6)
	require.Contains(t, s.get(file).body, "from a browser")
}
