package ui

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/jobs"
)

// browser is a tab of a browser with nothing in it. It fails the test, and does not skip it, on a machine without one.
type browser struct {
	t   *testing.T
	tab context.Context

	mu     sync.Mutex
	errors []string
}

func newBrowser(t *testing.T) *browser {
	t.Helper()
	path, err := exec.LookPath("chromium")
	if err != nil {
		t.Fatal("Chromium is missing. On Debian: apt-get update && apt-get install -y chromium")
	}
	flags := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path), chromedp.UserDataDir(t.TempDir()), chromedp.NoSandbox, chromedp.DisableGPU, chromedp.NoFirstRun,
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-background-networking", true),
		chromedp.Flag("disable-component-update", true), chromedp.Flag("disable-sync", true))
	allocator, stop := chromedp.NewExecAllocator(context.Background(), flags...)
	t.Cleanup(stop)
	tab, closeTab := chromedp.NewContext(allocator)
	t.Cleanup(closeTab)
	b := &browser{t: t, tab: tab}
	require.NoError(t, chromedp.Do(tab), "start Chromium")

	messages := chromedp.Console(tab)
	var reading sync.WaitGroup
	reading.Go(func() {
		for m, err := range messages {
			if err != nil {
				return
			}
			// River UI's complaints are its own.
			if !strings.Contains(m.URL, riverPrefix+"/") && (m.IsException() || m.Type == "error" || m.Type == "warning") {
				b.mu.Lock()
				b.errors = append(b.errors, m.String()+" at "+m.URL)
				b.mu.Unlock()
			}
		}
	})
	t.Cleanup(func() { closeTab(); reading.Wait() })
	return b
}

func (b *browser) do(steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.tab, 30*time.Second)
	defer cancel()
	require.NoError(b.t, chromedp.Do(ctx, steps...))
}

// eval returns what an expression in the page is.
func eval[T any](b *browser, expression string) T {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.tab, 30*time.Second)
	defer cancel()
	value, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression))
	require.NoError(b.t, err, expression)
	return value
}

// open loads a page and waits until something is visible in it.
func (b *browser) open(url, until string) {
	b.t.Helper()
	b.do(chromedp.Navigate(url), chromedp.WaitVisible(chromedp.CSS(until)))
}

// quiet fails the test if one of our pages complained on its console.
func (b *browser) quiet() {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	require.Empty(b.t, b.errors)
}

// shoot keeps a picture when WEIR_SCREENSHOTS names a directory: docs/images comes from there.
func (b *browser) shoot(name string) {
	b.t.Helper()
	dir := os.Getenv("WEIR_SCREENSHOTS")
	if dir == "" {
		return
	}
	ctx, cancel := context.WithTimeout(b.tab, 30*time.Second)
	defer cancel()
	picture, err := chromedp.Run(ctx, chromedp.FullScreenshot(100))
	require.NoError(b.t, err)
	require.NoError(b.t, os.WriteFile(filepath.Join(dir, name+".png"), picture, 0o644))
}

// furnish fills a site with runs in every state, and returns the one with the most on its page.
func (s *site) furnish() (full, live jobs.RunID) {
	s.t.Helper()
	for _, status := range []string{"sent", "sent", "failed", "sent"} {
		code := ""
		if status == "failed" {
			code = "smtp_550"
		}
		id := s.notify()
		s.end(id, status, code, "")
	}
	live = s.notify()
	s.exec(`update weir.run set status = 'processing', attempt = 2, lease_owner = 'worker-2.7f3a', lease_expires_at = clock_timestamp() + interval '251 s',
		step_deadline_at = clock_timestamp() + interval '190 s', next_attempt_at = 'infinity', claimed_at = clock_timestamp() where id = $1`, live.String())
	gone := s.notify()
	s.exec(`update weir.run set status = 'processing', attempt = 1, reaps = 1, lease_owner = 'worker-1.19c0', lease_expires_at = clock_timestamp() - interval '3 s',
		step_deadline_at = clock_timestamp(), next_attempt_at = 'infinity' where id = $1`, gone.String())
	later := s.notify()
	s.exec(`update weir.run set failures = 3, attempt = 5, next_attempt_at = clock_timestamp() + interval '7 min' where id = $1`, later.String())

	full = s.notify()
	s.exec(`update weir.run set attempt = 10, failures = 8, claimed_at = created_at - interval '2 s', status = 'dead', next_attempt_at = null,
		created_at = created_at - interval '64 min', finished_at = clock_timestamp(), error_code = 'smtp_451', tags = '{order-4711,eu-west}',
		error_message = '451 4.7.1 Greylisting in action, please come back later', metadata = '{"order": 4711, "region": "eu-west"}' where id = $1`, full.String())
	s.exec(`insert into weir.receipt (run_id, step_index, attempt, outcome, effect, step_name, external_ref, output)
		values ($1, 0, 10, 'unknown', 'at_least_once', 'send', '<01890a5d.0@weir.example>', '{"host": "mx.example.com", "reply": "none"}')`, full.String())
	s.exec(`insert into weir.ended_try (run_id, attempt, owner, claimed_at, ended_at, doorbell_id, how, error_code, error) values
		($1, 1, 'worker-1.19c0', clock_timestamp(), clock_timestamp() - interval '63 min', 41, 'failed', 'smtp_451', '451 4.7.1 Greylisting in action, please come back later'),
		($1, 3, 'worker-2.7f3a', clock_timestamp(), clock_timestamp() - interval '40 min', 52, 'reaped', 'lease_expired', ''),
		($1, 9, 'worker-2.7f3a', clock_timestamp(), clock_timestamp(), 61, 'failed', 'connection_lost', 'connection reset after the final dot')`, full.String())
	return full, live
}

const fits = `document.documentElement.scrollWidth <= window.innerWidth`

func TestBrowser_PagesRenderOnADesktopAndOnAPhone(t *testing.T) {
	s := newSite(t)
	full, _ := s.furnish()
	b := newBrowser(t)
	for size, width := range map[string]int64{"desktop": 1280, "phone": 390} {
		b.do(chromedp.EmulateViewport(width, 844))
		b.open(s.url+"/", "main table")
		require.Equal(t, "Runs · Weir", eval[string](b, "document.title"))
		require.Equal(t, 8, eval[int](b, "document.querySelectorAll('tbody tr').length"))
		require.True(t, eval[bool](b, fits), "the list is no wider than the %s", size)
		b.shoot("runs-" + size)

		b.open(s.url+pathOf(full, ""), "ol.timeline")
		require.Equal(t, 3, eval[int](b, "document.querySelectorAll('ol.timeline > li').length"), "enqueued, one receipt, ended")
		require.Contains(t, eval[string](b, "document.querySelector('ol.timeline').innerText"), "ay have been delivered")
		require.True(t, eval[bool](b, fits), "the run's page is no wider than the %s", size)
		b.shoot("run-" + size)
		b.quiet()

		b.open(s.url+"/river/jobs?state=available", "a[href*='/river/jobs/']")
		require.Contains(t, eval[string](b, "document.body.innerText"), "delivery")
		b.shoot("river-" + size)
	}
}

func TestBrowser_ALivePageKeepsTheReadersPlace(t *testing.T) {
	s := newSite(t)
	full, _ := s.furnish()
	b := newBrowser(t)
	b.do(chromedp.EmulateViewport(390, 500))
	b.open(s.url+pathOf(full, ""), "ol.timeline")
	b.do(chromedp.Click(chromedp.CSS("#output-0 summary")), chromedp.Focus(chromedp.CSS("#redrive")))
	eval[bool](b, "window.scrollTo(0, 300), window.untouched = document.querySelector('ol.timeline'), true")

	require.NoError(t, s.jobs.Redrive(t.Context(), full))
	ctx, cancel := context.WithTimeout(b.tab, 30*time.Second)
	defer cancel()
	_, err := chromedp.Run(ctx, chromedp.Poll[bool]("document.querySelector('h1').innerText.includes('pending')"))
	require.NoError(t, err, "the page follows the run")

	require.False(t, eval[bool](b, "document.contains(window.untouched)"), "the content is new")
	require.True(t, eval[bool](b, "document.getElementById('output-0').open"), "what was opened stays open")
	require.InDelta(t, 300, eval[float64](b, "window.scrollY"), 1)
	require.Equal(t, "main", eval[string](b, "document.activeElement.id"), "the focused button is gone, so its page has the focus")
	require.Equal(t, "The run is now pending", eval[string](b, "document.getElementById('live-says').innerText"))
	b.quiet()

	b.do(chromedp.Focus(chromedp.CSS("#cancel")))
	eval[bool](b, "window.untouched = document.getElementById('cancel'), true")
	_, err = chromedp.Run(ctx, chromedp.Poll[bool]("!document.contains(window.untouched)"))
	require.NoError(t, err)
	require.Equal(t, "cancel", eval[string](b, "document.activeElement.id"), "a button that is still there keeps the focus")
}

func TestBrowser_ButtonsWorkUnderThePolicy(t *testing.T) {
	s := newSite(t)
	full, live := s.furnish()
	b := newBrowser(t)
	b.open(s.url+pathOf(full, ""), "#redrive")
	b.do(chromedp.Click(chromedp.CSS("#redrive")), chromedp.WaitVisible(chromedp.CSS("#cancel")))
	require.Equal(t, jobs.StatusPending, s.status(full))
	b.open(s.url+pathOf(live, ""), "#cancel")
	b.do(chromedp.Click(chromedp.CSS("#cancel")), chromedp.WaitNotPresent(chromedp.CSS("#cancel")))
	b.quiet()
}
