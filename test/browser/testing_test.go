// Package browser tests documents in a real Chromium, against a real server and database: what a person loses, and what
// the page says, when tabs, networks and servers die. The behaviours of the specification are named by their numbers.
package browser

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/target"
	"github.com/chromedp/chromedp"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/desk"
	"github.com/weirqueue/weir/internal/postgres/pgtest"
	"github.com/weirqueue/weir/internal/ui"
	"github.com/weirqueue/weir/jobs"
)

// limit is generous: what is waited for is a condition, and a slow machine is no failure.
const limit = 45 * time.Second

// site is a server with its own database, behind a front that says who asks, counts, and breaks what a test wants broken.
// Each has an address of its own, so each has storage of its own in the browser.
type site struct {
	t     *testing.T
	pool  *pgxpool.Pool
	store *desk.Store
	url   string

	mu      sync.Mutex
	handler http.Handler
	user    string
	puts    []put
	reads   int
	// onPut is called in place of the server for each save; nil: the server's own answer.
	onPut func(w http.ResponseWriter, r *http.Request, next http.Handler)
}

type put struct {
	desk.SaveID
	ExpectedVersion int64
	Body            string
}

func newSite(t *testing.T) *site {
	t.Helper()
	t.Parallel()
	return quietSite(t)
}

// quietSite is for a test that measures time: nothing else runs beside it.
func quietSite(t *testing.T) *site {
	t.Helper()
	s := &site{t: t, pool: pgtest.Pool(t), user: "ada"}
	var err error
	s.store, err = desk.NewStore(s.pool)
	require.NoError(t, err)
	s.restart()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	front := &httptest.Server{Listener: l, Config: &http.Server{Handler: http.HandlerFunc(s.serve)}}
	front.Start()
	t.Cleanup(func() { front.CloseClientConnections(); front.Close() })
	s.url = front.URL
	return s
}

// holdSaves lets each save arrive, and then wait until it may go on: finish takes one for each, or is closed.
func (s *site) holdSaves() (arrived <-chan struct{}, finish chan struct{}) {
	came, finish := make(chan struct{}, 10), make(chan struct{})
	s.set(func() {
		s.onPut = func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			came <- struct{}{}
			<-finish
			next.ServeHTTP(w, r)
		}
	})
	return came, finish
}

// restart is a server that knows nothing of the one before.
func (s *site) restart() {
	s.t.Helper()
	logger := slog.New(slog.NewTextHandler(io.Discard, nil))
	client, err := jobs.NewClient(s.pool, &jobs.Config{Logger: logger})
	require.NoError(s.t, err)
	server, err := ui.New(ui.Config{
		Pool: s.pool, Jobs: client, Logger: logger,
		Auth: &ui.ProxyAuth{Header: "X-Forwarded-User", Proxies: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}},
	})
	require.NoError(s.t, err)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.handler = server.Handler()
}

func (s *site) serve(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	handler, user, onPut := s.handler, s.user, s.onPut
	if user != "" {
		r.Header.Set("X-Forwarded-User", user)
	}
	api := strings.HasPrefix(r.URL.Path, desk.Prefix+"files/")
	if api && r.Method == http.MethodGet {
		s.reads++
	}
	if api && r.Method == http.MethodPut {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			s.mu.Unlock()
			return
		}
		var p struct {
			SaveID          desk.SaveID
			ExpectedVersion int64
		}
		_ = json.Unmarshal(body, &p)
		if p.SaveID != "" {
			s.puts = append(s.puts, put{p.SaveID, p.ExpectedVersion, string(body)})
		}
		r.Body = io.NopCloser(strings.NewReader(string(body)))
		if onPut != nil {
			s.mu.Unlock()
			onPut(w, r, handler)
			return
		}
	}
	s.mu.Unlock()
	handler.ServeHTTP(w, r)
}

func (s *site) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

func (s *site) saves() []put {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]put(nil), s.puts...)
}

// cut ends the connection of a request, with nothing or half of an answer sent.
func cut(http.ResponseWriter) { panic(http.ErrAbortHandler) }

// commitAndCut lets the server do its work, and nobody hears of it.
func commitAndCut(w http.ResponseWriter, r *http.Request, next http.Handler) {
	next.ServeHTTP(httptest.NewRecorder(), r)
	cut(w)
}

func content(t *testing.T, raw string) desk.Content {
	t.Helper()
	c, err := desk.ParseContent([]byte(raw))
	require.NoError(t, err)
	return c
}

func (s *site) file(raw string) desk.FileID {
	s.t.Helper()
	f, err := s.store.Create(s.t.Context(), "ada", desk.NewFile{Name: "Ada's file", Content: content(s.t, raw)})
	require.NoError(s.t, err)
	return f.ID
}

func (s *site) get(id desk.FileID) *desk.File {
	s.t.Helper()
	f, err := s.store.Get(s.t.Context(), "ada", id)
	require.NoError(s.t, err)
	return f
}

func (s *site) stored(id desk.FileID) string { return string(s.get(id).Content) }

// save is somebody else's save: a tool's, on what is stored.
func (s *site) save(id desk.FileID, raw string) {
	s.t.Helper()
	f := s.get(id)
	_, err := s.store.Save(s.t.Context(), "ada", desk.Save{
		File: id, ID: desk.NewSaveID(), Writer: "tool", ExpectedVersion: f.Version, ExpectedRev: f.Rev, SchemaVersion: desk.SchemaVersion, Content: content(s.t, raw),
	})
	require.NoError(s.t, err)
}

// flags start a Chromium in a profile.
func flags(profile string) []chromedp.ExecAllocatorOption {
	path, err := exec.LookPath("chromium")
	if err != nil {
		panic("Chromium is missing. On Debian: apt-get update && apt-get install -y chromium")
	}
	return append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path), chromedp.UserDataDir(profile), chromedp.NoSandbox, chromedp.DisableGPU, chromedp.NoFirstRun,
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-background-networking", true),
		chromedp.Flag("disable-component-update", true), chromedp.Flag("disable-sync", true))
}

// shared is the one Chromium of this package.
var shared struct {
	root context.Context
	end  func()
}

func TestMain(m *testing.M) {
	flag.Parse()
	// These tests wait, for timers and networks, more than they work: more of them at once than there are processors.
	if parallel := flag.Lookup("test.parallel"); parallel.Value.String() == parallel.DefValue {
		_ = parallel.Value.Set("6")
	}
	code := func() int {
		profile, err := os.MkdirTemp("", "weir-chromium-")
		if err != nil {
			panic(err)
		}
		defer os.RemoveAll(profile)
		allocator, stop := chromedp.NewExecAllocator(context.Background(), flags(profile)...)
		defer stop()
		root, closeRoot := chromedp.NewContext(allocator)
		defer closeRoot()
		if err := chromedp.Do(root); err != nil {
			panic(fmt.Sprintf("start Chromium: %v", err))
		}
		shared.root = root
		return m.Run()
	}()
	os.Exit(code)
}

// tab is a tab of the browser.
type tab struct {
	t     *testing.T
	ctx   context.Context
	close func()
	site  *site
}

func (s *site) tab(options ...chromedp.ContextOption) *tab { return s.tabOf(shared.root, options...) }

func (s *site) tabOf(root context.Context, options ...chromedp.ContextOption) *tab {
	s.t.Helper()
	ctx, cancel := chromedp.NewContext(root, options...)
	s.t.Cleanup(cancel)
	require.NoError(s.t, chromedp.Do(ctx))
	return &tab{s.t, ctx, cancel, s}
}

func (b *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, limit)
	defer cancel()
	for _, step := range steps {
		err := chromedp.Do(ctx, step)
		// A page that draws itself anew between the look for an element and what is done to it.
		for err != nil && strings.Contains(err.Error(), "Could not find node") && ctx.Err() == nil {
			err = chromedp.Do(ctx, step)
		}
		require.NoError(b.t, err)
	}
}

// js is what an expression is; a promise is waited for.
func js[T any](b *tab, expression string) T {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, limit)
	defer cancel()
	v, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	require.NoError(b.t, err, expression)
	return v
}

func (b *tab) run(expression string) {
	b.t.Helper()
	js[bool](b, "(async () => { "+expression+"; return true; })()")
}

// until waits for an expression to be true.
func (b *tab) until(expression string) {
	b.t.Helper()
	var last error
	ok := func() bool {
		ctx, cancel := context.WithTimeout(b.ctx, limit)
		defer cancel()
		v, err := chromedp.Run(ctx, chromedp.Evaluate[bool]("Boolean("+expression+")"))
		last = err
		return err == nil && v
	}
	for end := time.Now().Add(limit); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			shown, _ := chromedp.Run(b.ctx, chromedp.Evaluate[string]("JSON.stringify(window.weirSession?.state() ?? document.body.innerText.slice(0, 300))"))
			require.Fail(b.t, "never true: "+expression, "%v: %s", last, shown)
		}
	}
}

// open shows a document, and waits until it was read.
func (b *tab) open(id desk.FileID) *tab {
	b.t.Helper()
	b.do(chromedp.Navigate(b.site.url + "/files/" + string(id)))
	b.until("window.weirSession && !['loading'].includes(weirSession.state().phase)")
	return b
}

// phase waits for a phase, and that the page shows it.
func (b *tab) phase(want string) {
	b.t.Helper()
	b.until(fmt.Sprintf("weirSession.state().phase === %q && document.getElementById('desk').dataset.phase === %q", want, want))
}

// write puts a text into the editor as a keyboard does, in one go.
func (b *tab) write(text string) {
	b.t.Helper()
	b.run(fmt.Sprintf("const a = document.getElementById('text'); a.value = %q; a.dispatchEvent(new InputEvent('input', {bubbles: true}))", text))
}

// back goes back in the history. A page from the cache does not load, so there is no load to wait for.
func (b *tab) back() {
	b.t.Helper()
	b.run("setTimeout(() => history.back(), 10)")
}

// retry is a person who does not wait for the next try: it may be half a minute away.
func (b *tab) retry() { b.run("weirSession.retry()") }

func (b *tab) flush() { b.run("await weirSession.flush()") }

// said is the status line.
func (b *tab) said() string {
	b.t.Helper()
	return js[string](b, "document.getElementById('says').textContent")
}

// slots are the keys and contents of all drafts in localStorage.
func (b *tab) slots() map[string]string {
	b.t.Helper()
	return js[map[string]string](b, "Object.fromEntries(Object.entries(localStorage).filter(([k]) => k.startsWith('weir.draft/')).map(([k, v]) => { try { return [k, JSON.stringify(JSON.parse(v).content)] } catch { return [k, v] } }))")
}

// kept waits until the work is in its slot.
func (b *tab) kept(content string) {
	b.t.Helper()
	b.until(fmt.Sprintf("Object.entries(localStorage).some(([k, v]) => k.startsWith('weir.draft/') && v.includes(%q))", content))
}

// duplicate opens a tab with a copy of this one's sessionStorage, as "duplicate tab" does.
func (b *tab) duplicate() *tab {
	b.t.Helper()
	found := chromedp.WaitNewTarget(b.ctx, func(i *target.Info) bool { return i.OpenerID == chromedp.FromContext(b.ctx).Target.TargetID })
	b.run("window.open(location.href)")
	select {
	case id := <-found:
		d := b.site.tab(chromedp.WithTargetID(id))
		d.until("window.weirSession && weirSession.state().phase !== 'loading'")
		return d
	case <-time.After(limit):
		require.Fail(b.t, "no new tab")
		return nil
	}
}

func text(s string) string { return fmt.Sprintf(`{"text":%q}`, s) }

// shoot keeps a picture when WEIR_SCREENSHOTS names a directory: docs/images comes from there.
func (b *tab) shoot(name string) {
	b.t.Helper()
	dir := os.Getenv("WEIR_SCREENSHOTS")
	if dir == "" {
		return
	}
	b.do(chromedp.EmulateViewport(1100, 800))
	ctx, cancel := context.WithTimeout(b.ctx, limit)
	defer cancel()
	picture, err := chromedp.Run(ctx, chromedp.FullScreenshot(100))
	require.NoError(b.t, err)
	require.NoError(b.t, os.WriteFile(filepath.Join(dir, name+".png"), picture, 0o644))
}
