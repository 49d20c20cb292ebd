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
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/desk"
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

// A plan's step, in its own transaction, changes an open document: a hint where it is clean, a conflict where it is not.
func TestBrowser_APlansStepIsAHintAndThenAConflict(t *testing.T) {
	s := newSite(t)
	id := s.file(text("one"))
	b := s.tab().open(id)
	step := func(n int) {
		require.NoError(t, pgx.BeginFunc(t.Context(), s.pool, func(tx pgx.Tx) error {
			f, err := s.store.GetTx(t.Context(), tx, "ada", id)
			if err != nil {
				return err
			}
			_, err = s.store.SaveTx(t.Context(), tx, "ada", desk.Save{
				File: id, ID: desk.SaveID(fmt.Sprintf("plan-42-step-%d", n)), Writer: "plan", ExpectedVersion: f.Version, ExpectedRev: f.Rev,
				SchemaVersion: desk.SchemaVersion, Content: content(t, text(fmt.Sprint("by step ", n))),
			})
			return err
		}))
	}
	b.until("performance.getEntriesByType('resource').some(e => e.name.includes('/events?')) || true")
	step(1)
	b.until("document.getElementById('text').value === 'by step 1'") // nobody asked for it: it was told
	b.write("mine")
	step(2)
	b.phase("conflict")
	require.Contains(t, js[string](b, "document.getElementById('conflict').innerText"), "plan")
	require.Equal(t, text("by step 2"), s.stored(id))
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

// axe finds nothing on any page, in any of the panels.
func TestBrowser_PagesAreAccessible(t *testing.T) {
	s := newSite(t)
	axe, err := os.ReadFile("testdata/axe.min.js")
	require.NoError(t, err)
	check := func(b *tab, what string) {
		t.Helper()
		// Under the page's policy no script of ours may be put into it; the debugger may.
		js[bool](b, string(axe)+"; true")
		out := js[string](b, `axe.run(document, {resultTypes: ["violations"]}).then(r => JSON.stringify(r.violations.map(v => v.id + ": " + v.help + " " + v.nodes.slice(0, 3).map(n => n.html + " " + n.failureSummary).join(" | "))))`)
		var violations []string
		require.NoError(t, json.Unmarshal([]byte(out), &violations))
		require.Empty(t, violations, what)
	}
	note := s.file(text("one"))
	sheet := s.file(`{"cells":{"A1":{"v":"Item"}},"columnMeta":null}`)
	record := s.file(`{"attributes":{"name":"Ada","age":36}}`)
	b := s.tab()
	for _, id := range []desk.FileID{note, sheet, record} {
		b.open(id)
		check(b, "editor of "+string(s.get(id).Type))
	}
	s.set(func() { s.onPut = noSave })
	c := s.tab().open(note)
	c.write("left behind")
	c.kept("left behind")
	c.close()
	b.do(chromedp.Navigate(s.url + "/files"))
	b.until("document.querySelector('#kept li')")
	check(b, "files")
	s.set(func() { s.onPut = nil })
	b.open(record)
	s.save(record, `{"attributes":{"name":"Grace","age":36}}`)
	b.run("const i = document.querySelector('[data-attribute=name]'); i.value = 'Joan'; i.dispatchEvent(new InputEvent('input', {bubbles: true}))")
	b.phase("conflict")
	b.until("document.getElementById('merge')")
	check(b, "conflict")
	b.do(chromedp.Click(chromedp.CSS("#merge")), chromedp.WaitVisible(chromedp.CSS("#choose")))
	check(b, "choice")
	b.open(note)
	b.until("document.querySelector('#siblings .adopt')")
	check(b, "recovered")
	require.NoError(t, s.store.Delete(t.Context(), "ada", note))
	b.write("orphan")
	b.phase("orphaned")
	check(b, "orphaned")
}

// A key costs no request and less than 4 ms of the main thread at 500 kB; ten thousand edits make two saves.
func TestBrowser_AKeyIsCheapInALargeDocument(t *testing.T) {
	s := newSite(t)
	id := s.file(text(strings.Repeat("x", 490_000)))
	b := s.tab().open(id)
	// What a key costs beside the browser's own work: everything that the page does on its event.
	took := js[float64](b, `(async () => { const all = []; const a = document.getElementById("text");
		for (let i = 0; i < 60; i++) { a.setRangeText("y", i, i, "end"); const began = performance.now(); a.dispatchEvent(new InputEvent("input", {bubbles: true})); all.push(performance.now() - began); if (i % 5 === 0) await new Promise(r => setTimeout(r, 20)); }
		all.sort((a, b) => a - b); return all[all.length / 2]; })()`)
	t.Logf("half of the keys at 490 kB took less than %.3f ms", took)
	require.Less(t, took, 4.0)
	write := js[float64](b, `(() => { const began = performance.now(); weirSession.dispatch({type: "hide"}); return performance.now() - began; })()`)
	t.Logf("draft and save of 490 kB: %.1f ms", write)
	b.flush()
	b.phase("clean")
	s.set(func() { s.puts = nil })
	b.run("for (let i = 0; i < 10_000; i++) weirSession.edit({text: 'edit ' + i})")
	b.phase("clean")
	require.Equal(t, text("edit 9999"), s.stored(id))
	require.LessOrEqual(t, len(s.saves()), 2)
}
