package browser

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"
)

// Keys, a debounce, one save; the page says so; an idle page sends nothing.
func TestBrowser_TypingIsSavedOnceAndAnIdlePageIsSilent(t *testing.T) {
	s := newSite(t)
	id := s.file(text(""))
	b := s.tab().open(id)
	b.do(chromedp.Focus(chromedp.CSS("#text")), chromedp.SendKeys(chromedp.CSS("#text"), "Hello, Ada"))
	b.until("weirSession.state().version > 1 && weirSession.state().phase === 'clean'")
	require.Equal(t, text("Hello, Ada"), s.stored(id))
	saves := len(s.saves())
	require.LessOrEqual(t, saves, 5, "fewer than the keys, also where each of them takes a second")
	require.Equal(t, fmt.Sprintf("Saved, version %d.", 1+saves), b.said())
	require.Empty(t, b.slots(), "23: nothing is kept of what was acknowledged")
	s.set(func() { s.reads = 0 })
	time.Sleep(3 * time.Second) // nothing can be waited for: it is what must not happen
	require.Len(t, s.saves(), saves)
	s.set(func() { require.Zero(t, s.reads) })
}

// 1: one fetch, and by the browser's own doing maybe two requests. DO-01.
func TestBrowser_01_AnAnswerLostAfterTheCommitIsNoConflict(t *testing.T) {
	s := newSite(t)
	id := s.file(text("one"))
	b := s.tab().open(id)
	lost := 0
	s.set(func() {
		s.onPut = func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			if lost++; lost <= 3 {
				commitAndCut(w, r, next)
			}
			next.ServeHTTP(w, r)
		}
	})
	b.write("two")
	b.flush()
	b.until("weirSession.state().phase === 'clean' && weirSession.state().version === 2")
	require.Equal(t, int64(2), s.get(id).Version, "the version rises once")
	saves := s.saves()
	require.GreaterOrEqual(t, len(saves), 4)
	for _, p := range saves {
		require.Equal(t, saves[0], p, "5: the same bytes, the same save id")
	}
}

// 2: with another writer's save in between.
func TestBrowser_02_AnotherSaveInBetweenIsReadOrMet(t *testing.T) {
	s := newSite(t)
	id := s.file(text("one"))
	b := s.tab().open(id)
	first := true
	s.set(func() {
		s.onPut = func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			next.ServeHTTP(maybe(w, first), r)
			if first {
				first = false
				s.save(id, text("theirs"))
				cut(w)
			}
		}
	})
	b.write("two")
	b.flush()
	b.until("weirSession.state().phase === 'clean' && weirSession.state().version === 3")
	require.Equal(t, "theirs", js[string](b, "document.getElementById('text').value"))
}

func maybe(w http.ResponseWriter, drop bool) http.ResponseWriter {
	if drop {
		return httptest.NewRecorder()
	}
	return w
}

// 6, 32: saved is said of the newest content only.
func TestBrowser_06_ASuccessWhileThereAreNewerEditsKeepsThem(t *testing.T) {
	s := newSite(t)
	id := s.file(text("one"))
	b := s.tab().open(id)
	arrived, finish := s.holdSaves()
	b.write("two")
	b.run("void weirSession.flush()")
	<-arrived
	b.write("three")
	b.kept("three")
	finish <- struct{}{}
	b.until("weirSession.state().version === 2")
	require.NotContains(t, b.said(), "Saved")
	require.Contains(t, b.slots(), keyOf(b), "DO-07: the newer text is still kept")
	close(finish)
	b.phase("clean")
	require.Equal(t, text("three"), s.stored(id))
	require.Equal(t, "Saved, version 3.", b.said())
}

func keyOf(b *tab) string { return js[string](b, "weirSession.slotKey") }

// 7: a tab that is killed while its save is under way; the save commits, and the next life of the tab learns it.
func TestBrowser_07_ATabKilledMidSaveLosesNothing(t *testing.T) {
	s := newSite(t)
	id := s.file(text("one"))
	b := s.tab().open(id)
	arrived, finish := s.holdSaves()
	b.write("two")
	b.run("void weirSession.flush()")
	<-arrived
	b.write("two and more")
	b.kept("two and more")
	b.close()
	close(finish)
	require.Eventually(t, func() bool { return s.get(id).Version == 2 }, limit, 20*time.Millisecond)
	c := s.tab().open(id)
	c.until("document.querySelector('#siblings .adopt')")
	require.Equal(t, text("two"), s.stored(id), "nothing of it is applied by itself")
	c.shoot("desk-recovered")
	c.do(chromedp.Click(chromedp.CSS("#siblings .adopt")))
	// The stored version is its own save: it goes on from there.
	c.until("weirSession.state().content.text === 'two and more'")
	c.phase("clean")
	require.Equal(t, text("two and more"), s.stored(id))
}

// 7, 26: a renderer crash. The tab is the same one, and so is its writer.
func TestBrowser_26_ARendererCrashLosesNothing(t *testing.T) {
	s := newSite(t)
	id := s.file(text("one"))
	b := s.tab().open(id)
	s.set(func() { s.onPut = func(w http.ResponseWriter, _ *http.Request, _ http.Handler) { cut(w) } })
	b.write("unsaved work")
	b.kept("unsaved work")
	key := keyOf(b)
	crash(b)
	s.set(func() { s.onPut = nil })
	b.open(id)
	b.until("weirSession.state().content.text === 'unsaved work'")
	b.phase("clean")
	require.Equal(t, key, keyOf(b))
	require.Equal(t, text("unsaved work"), s.stored(id))
}

// 10, 11, DO-03: a conflict with a tool's save.
func TestBrowser_10_InConflictNothingIsSavedUntilThePersonDecides(t *testing.T) {
	s := newSite(t)
	id := s.file(text("one"))
	b := s.tab().open(id)
	s.save(id, text("the tool's"))
	b.write("mine")
	b.flush()
	b.phase("conflict")
	b.until("document.querySelector('#conflict .sides')")
	require.Contains(t, b.said(), "until you decide")
	require.Contains(t, js[string](b, "document.getElementById('conflict').innerText"), "by writer tool")
	n := len(s.saves())
	b.write("mine, longer")
	b.run("dispatchEvent(new Event('online'))")
	b.flush()
	time.Sleep(2 * time.Second) // longer than the debounce: it is what must not happen
	require.Len(t, s.saves(), n)
	b.kept("mine, longer")
	b.until("document.querySelector('#conflict .sides').innerText.includes('mine, longer')")
	b.shoot("desk-conflict")
	b.do(chromedp.Click(chromedp.CSS("#keep-mine")))
	b.phase("clean")
	require.Equal(t, text("mine, longer"), s.stored(id))
	require.Empty(t, b.slots())
}

// 13: discard and reload.
func TestBrowser_13_TakeTheirsReplacesOnlyWhenTheReadSucceeded(t *testing.T) {
	s := newSite(t)
	id := s.file(text("one"))
	b := s.tab().open(id)
	s.save(id, text("theirs"))
	b.write("mine")
	b.flush()
	b.phase("conflict")
	b.until("weirSession.state().theirs.content")
	s.set(func() { s.user = "" })
	require.False(t, js[bool](b, "weirSession.discardAndReload()"))
	require.Equal(t, "mine", js[string](b, "weirSession.state().content.text"))
	b.kept("mine")
	s.set(func() { s.user = "ada" })
	b.do(chromedp.Click(chromedp.CSS("#take-theirs")))
	b.phase("clean")
	require.Equal(t, "theirs", js[string](b, "document.getElementById('text').value"))
	require.Empty(t, b.slots(), "DO-07: what was discarded stays so")
}

// 12: records merge by attribute; where both changed one, the person chooses.
func TestBrowser_12_ARecordMergesByAttribute(t *testing.T) {
	s := newSite(t)
	id := s.file(`{"attributes":{"city":"Bern","name":"Ada","plan":"a"}}`)
	b := s.tab().open(id)
	s.save(id, `{"attributes":{"city":"Basel","name":"Ada","plan":"b"}}`)
	b.run("const i = document.querySelector('[data-attribute=name]'); i.value = 'Grace'; i.dispatchEvent(new InputEvent('input', {bubbles: true}))")
	b.run("const i = document.querySelector('[data-attribute=plan]'); i.value = 'c'; i.dispatchEvent(new InputEvent('input', {bubbles: true}))")
	b.phase("conflict")
	b.until("document.getElementById('merge')")
	b.do(chromedp.Click(chromedp.CSS("#merge")), chromedp.WaitVisible(chromedp.CSS("#choose")))
	require.Equal(t, "plan", js[string](b, "[...document.querySelectorAll('#choose legend')].map(e => e.innerText).join()"))
	// Who leaves the question has resolved nothing.
	n := len(s.saves())
	b.do(chromedp.KeyEvent(kb.Escape))
	b.until("document.getElementById('choose') === null")
	b.phase("conflict")
	require.Len(t, s.saves(), n)
	b.do(chromedp.Click(chromedp.CSS("#merge")), chromedp.WaitVisible(chromedp.CSS("#choose")))
	b.do(chromedp.Click(chromedp.CSS("#choose input[value=theirs]")), chromedp.Click(chromedp.CSS("#choose button[type=submit]")))
	b.phase("clean")
	require.JSONEq(t, `{"attributes":{"city":"Basel","name":"Grace","plan":"b"}}`, s.stored(id))
}

// 12: a kind without merge does not offer it, and calling it throws.
func TestBrowser_12_AKindWithoutMergeDoesNotOfferIt(t *testing.T) {
	s := newSite(t)
	id := s.file(text("one"))
	b := s.tab().open(id)
	s.save(id, text("theirs"))
	b.write("mine")
	b.flush()
	b.phase("conflict")
	b.until("document.querySelector('#conflict .sides')")
	require.False(t, js[bool](b, "weirSession.state().canRebase || document.getElementById('merge') !== null"))
	require.True(t, js[bool](b, "weirSession.rebase().then(() => false, () => true)"))
}

// 15: rename during edits.
func TestBrowser_15_ARenameDuringEditsIsNoConflict(t *testing.T) {
	s := newSite(t)
	id := s.file(text("one"))
	b := s.tab().open(id)
	b.write("two")
	b.run("const n = document.getElementById('name'); n.value = 'Better plans'; n.dispatchEvent(new Event('change'))")
	require.Eventually(t, func() bool { return s.get(id).Name == "Better plans" }, limit, 20*time.Millisecond)
	b.phase("clean")
	require.Equal(t, text("two"), s.stored(id))
	require.Equal(t, int64(2), s.get(id).Version)
}

// 15: a failed first load.
func TestBrowser_15_AFailedFirstLoadCannotBeEdited(t *testing.T) {
	s := newSite(t)
	id := s.file(text("one"))
	b := s.tab()
	b.do(chromedp.Navigate(s.url + "/files"))
	b.open(id)
	b.do(chromedp.Navigate("about:blank"))
	s.set(func() {
		inner := s.handler
		s.handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.HasPrefix(r.URL.Path, "/api/desk/files/") {
				w.Header().Set("Content-Type", "text/html")
				_, _ = w.Write([]byte("<h1>Welcome to the hotel's network</h1>"))
				return
			}
			inner.ServeHTTP(w, r)
		})
	})
	b.open(id)
	b.phase("unavailable")
	require.False(t, js[bool](b, "weirSession.edit({text: 'x'})"))
	require.True(t, js[bool](b, "document.getElementById('text').closest('[inert]') !== null"))
	s.restart()
	b.run("document.getElementById('retry')?.click()") // it may have asked again by itself
	b.phase("clean")
	require.Empty(t, s.saves())
}

// 30: an answer that is none.
func TestBrowser_30_ARedirectOrAPageIsNeverSaved(t *testing.T) {
	for name, wrong := range map[string]http.HandlerFunc{
		"redirect": func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/files", http.StatusSeeOther) },
		"page": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			_, _ = w.Write([]byte(`{"data": {}}`))
		},
		"half": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Content-Length", "500")
			_, _ = w.Write([]byte(`{"data": {"file": {`))
			cut(w)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			id := s.file(text("one"))
			b := s.tab().open(id)
			s.set(func() { s.onPut = func(w http.ResponseWriter, r *http.Request, _ http.Handler) { wrong(w, r) } })
			b.write("two")
			b.flush()
			b.phase("retrying")
			require.NotContains(t, b.said(), "Saved")
			b.kept("two")
			s.set(func() { s.onPut = nil })
			b.phase("clean")
			require.Equal(t, text("two"), s.stored(id))
		})
	}
}

// A server that is restarted: nothing of a session is in it.
func TestBrowser_AServerThatIsRestartedIsNotNoticed(t *testing.T) {
	s := newSite(t)
	id := s.file(text("one"))
	b := s.tab().open(id)
	s.set(func() { s.onPut = func(w http.ResponseWriter, _ *http.Request, _ http.Handler) { cut(w) } })
	b.write("two")
	b.flush()
	b.phase("retrying")
	require.Contains(t, b.said(), "trying again")
	s.restart()
	s.set(func() { s.onPut = nil })
	b.phase("clean")
	require.Equal(t, text("two"), s.stored(id))
}
