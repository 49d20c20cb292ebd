package browser

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"
)

// 28, DO-17: the way back.
func TestBrowser_28_APageFromTheBackForwardCacheReadsAgain(t *testing.T) {
	s := newSite(t)
	id := s.file(text("one"))
	b := s.tab().open(id)
	b.run("window.lives = 'the same page'; addEventListener('pageshow', e => window.persisted = e.persisted)")
	b.do(chromedp.Navigate(s.url + "/assets/weir.svg"))
	s.save(id, text("meanwhile"))
	b.back()
	b.until("window.weirSession")
	require.Equal(t, "the same page", js[string](b, "window.lives"), "it was not loaded again")
	require.True(t, js[bool](b, "window.persisted"))
	b.until("weirSession.state().content.text === 'meanwhile'")
	b.write("and now mine")
	b.phase("clean")
	require.Equal(t, text("and now mine"), s.stored(id))
	require.Len(t, s.saves(), 1, "no second timer, no second listener")
}

// 28: with a save under way when the page was left.
func TestBrowser_28_ASaveUnderWayWhenThePageWasLeftIsAskedForAgain(t *testing.T) {
	s := newSite(t)
	id := s.file(text("one"))
	b := s.tab().open(id)
	b.run("window.lives = 'the same page'")
	b.write("two")
	b.do(chromedp.Navigate(s.url + "/assets/weir.svg"))
	b.back()
	b.until("window.weirSession && weirSession.state().phase === 'clean' && weirSession.state().content.text === 'two'")
	require.Equal(t, text("two"), s.stored(id))
	require.Equal(t, int64(2), s.get(id).Version)
}

// A dirty page is told too, and keeps its work.
func TestBrowser_AHintNeverReplacesUnsavedWork(t *testing.T) {
	s := newSite(t)
	id := s.file(text("one"))
	b := s.tab().open(id)
	s.set(func() { s.onPut = noSave })
	b.write("mine")
	b.flush()
	s.save(id, text("theirs"))
	b.until("!document.getElementById('newer').hidden")
	require.Equal(t, "mine", js[string](b, "document.getElementById('text').value"))
}

// Two tabs of one user: the other one's save is heard at once.
func TestBrowser_TwoTabsFollowEachOther(t *testing.T) {
	s := newSite(t)
	id := s.file(text("one"))
	a, b := s.tab().open(id), s.tab().open(id)
	a.write("from a")
	a.flush()
	b.until("document.getElementById('text').value === 'from a'")
	b.write("from b")
	b.flush()
	a.until("document.getElementById('text').value === 'from b'")
	require.Equal(t, int64(3), s.get(id).Version)
	require.Equal(t, text("from b"), s.stored(id))
}

// DO-14: two documents in one page, and one whose view is closed within the debounce.
func TestBrowser_AClosedViewFlushesIntoItsOwnDocument(t *testing.T) {
	s := newSite(t)
	id, other := s.file(text("one")), s.file(text("two"))
	b := s.tab().open(id)
	b.write("for the first")
	b.run(fmt.Sprintf("const desk = weirSession.desk; const again = await desk.open(%q, weirSession.kind); if (again !== weirSession) throw new Error('another session'); again.close(); weirSession.close(); window.two = await desk.open(%q, weirSession.kind)", id, other))
	require.Eventually(t, func() bool { return s.stored(id) == text("for the first") }, limit, 20*time.Millisecond)
	require.Equal(t, text("two"), s.stored(other))
}

// The spreadsheet, by keyboard alone.
func TestBrowser_TheSpreadsheetWorksByKeyboard(t *testing.T) {
	s := newSite(t)
	id := s.file(`{"cells":{"A1":{"v":"Item"},"B1":{"v":"Price"}},"columnMeta":null}`)
	b := s.tab().open(id)
	b.run("document.getElementById('A1').focus()")
	b.do(chromedp.KeyEvent(kb.ArrowDown), chromedp.KeyEvent("Tea"), chromedp.KeyEvent(kb.ArrowRight), chromedp.KeyEvent("3.5"), chromedp.KeyEvent(kb.Enter))
	require.Equal(t, "B3", js[string](b, "document.activeElement.id"))
	b.phase("clean")
	require.JSONEq(t, `{"cells":{"A1":{"v":"Item"},"A2":{"v":"Tea"},"B1":{"v":"Price"},"B2":{"v":3.5}},"columnMeta":null}`, s.stored(id))
	require.Equal(t, 1300, js[int](b, "document.querySelectorAll('td[role=gridcell]').length"))
	b.shoot("desk-sheet")
}

// A file is made, listed and opened by ordinary forms and links.
func TestBrowser_FilesAreMadeAndFound(t *testing.T) {
	s := newSite(t)
	b := s.tab()
	b.do(chromedp.Navigate(s.url+"/files"), chromedp.Click(chromedp.CSS("button[value=record]")))
	b.until("window.weirSession && weirSession.state().phase === 'clean'")
	b.do(chromedp.SendKeys(chromedp.CSS("#new-attribute"), "title"), chromedp.KeyEvent(kb.Enter))
	b.until("document.activeElement?.dataset.attribute === 'title'")
	b.do(chromedp.KeyEvent("Weir"))
	b.phase("clean")
	b.until("weirSession.state().version > 1 && !weirSession.state().unsaved")
	b.do(chromedp.Navigate(s.url+"/files"), chromedp.Click(chromedp.CSS("td a")))
	b.until("document.querySelector('[data-attribute=title]')?.value === 'Weir'")
	b.shoot("desk-record")
}

// checkAccessible lets axe look at what a tab shows.
func checkAccessible(b *tab, what string) {
	b.t.Helper()
	axe, err := os.ReadFile("testdata/axe.min.js")
	require.NoError(b.t, err)
	// Under the page's policy no script of ours may be put into it; the debugger may.
	js[bool](b, "window.axe ? true : (() => {"+string(axe)+"; return true})()")
	out := js[string](b, `axe.run(document, {resultTypes: ["violations"]}).then(r => JSON.stringify(r.violations.map(v => v.id + ": " + v.help + " " + v.nodes.slice(0, 3).map(n => n.html + " " + n.failureSummary).join(" | "))))`)
	var violations []string
	require.NoError(b.t, json.Unmarshal([]byte(out), &violations))
	require.Empty(b.t, violations, what)
}

// axe finds nothing in any editor.
func TestBrowser_PagesAreAccessible(t *testing.T) {
	s := newSite(t)
	b := s.tab()
	for _, raw := range []string{text("one"), `{"cells":{"A1":{"v":"Item"}},"columnMeta":null}`, `{"attributes":{"name":"Ada","age":36}}`} {
		b.open(s.file(raw))
		checkAccessible(b, "editor of "+raw)
	}
}

// And in none of the panels.
func TestBrowser_PanelsAreAccessible(t *testing.T) {
	s := newSite(t)
	note, record := s.file(text("one")), s.file(`{"attributes":{"name":"Ada","age":36}}`)
	s.set(func() { s.onPut = noSave })
	c := s.tab().open(note)
	c.write("left behind")
	c.kept("left behind")
	c.close()
	b := s.tab()
	b.do(chromedp.Navigate(s.url + "/files"))
	b.until("document.querySelector('#kept li')")
	checkAccessible(b, "files")
	b.shoot("desk-files")
	s.set(func() { s.onPut = nil })
	b.open(record)
	s.save(record, `{"attributes":{"name":"Grace","age":36}}`)
	b.run("const i = document.querySelector('[data-attribute=name]'); i.value = 'Joan'; i.dispatchEvent(new InputEvent('input', {bubbles: true}))")
	b.flush()
	b.phase("conflict")
	b.until("document.getElementById('merge')")
	checkAccessible(b, "conflict")
	b.do(chromedp.Click(chromedp.CSS("#merge")), chromedp.WaitVisible(chromedp.CSS("#choose")))
	checkAccessible(b, "choice")
	b.shoot("desk-choice")
	b.open(note)
	b.until("document.querySelector('#siblings .adopt')")
	checkAccessible(b, "recovered")
	require.NoError(t, s.store.Delete(t.Context(), "ada", note))
	b.write("orphan")
	b.flush()
	b.phase("orphaned")
	checkAccessible(b, "orphaned")
	b.shoot("desk-orphaned")
}

// A key costs no request and less than 4 ms of the main thread at 500 kB; ten thousand edits make two saves.
func TestBrowser_AKeyIsCheapInALargeDocument(t *testing.T) {
	s := quietSite(t)
	id := s.file(text(strings.Repeat("x", 490_000)))
	b := s.tab().open(id)
	// What a key costs beside the browser's own work: everything that the page does on its event.
	took := js[float64](b, `(async () => { const all = []; const a = document.getElementById("text");
		for (let i = 0; i < 60; i++) { a.setRangeText("y", i, i, "end"); const began = performance.now(); a.dispatchEvent(new InputEvent("input", {bubbles: true})); all.push(performance.now() - began); if (i % 5 === 0) await new Promise(r => setTimeout(r, 20)); }
		all.sort((a, b) => a - b); return all[all.length / 2]; })()`)
	t.Logf("half of the keys at 490 kB took less than %.3f ms", took)
	require.Less(t, took, 4.0)
	// What is not on a key: a draft, and a save. Its longest task may be in the way of the next key.
	tasks := b.longestTasks(func() {
		b.flush()
		b.phase("clean")
	})
	t.Logf("draft and save of 490 kB: the longest tasks took %.1f and %.1f ms of the processor", tasks[0], tasks[1])
	require.Contains(t, s.stored(id), "yyyyy")
	// A large body is made into bytes piece by piece: no character is cut.
	many := strings.Repeat("x\U0001f600", 60_000)
	b.run(`weirSession.edit({text: "x\u{1f600}".repeat(60_000)})`)
	b.flush()
	b.phase("clean")
	require.True(t, text(many) == s.stored(id), "the same text")
	s.set(func() { s.puts = nil })
	b.run("for (let i = 0; i < 10_000; i++) weirSession.edit({text: 'edit ' + i})")
	b.phase("clean")
	require.Equal(t, text("edit 9999"), s.stored(id))
	require.LessOrEqual(t, len(s.saves()), 2)
}
