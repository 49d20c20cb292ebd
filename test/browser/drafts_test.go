package browser

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/inspector"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/desk"
)

// crash ends the renderer, and waits until it is gone.
func crash(b *tab) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, limit)
	defer cancel()
	gone := make(chan struct{})
	require.NoError(b.t, chromedp.Listen(ctx, func(ev any) {
		if _, ok := ev.(*inspector.EventTargetCrashed); ok {
			close(gone)
		}
	}))
	go func() { _, _ = chromedp.Call(ctx, page.Crash, cdp.Empty{}) }() // nobody is left to answer
	select {
	case <-gone:
	case <-ctx.Done():
		require.Fail(b.t, "the renderer did not crash")
	}
}

func noSave(w http.ResponseWriter, _ *http.Request, _ http.Handler) { cut(w) }

// 16, DO-05: a duplicated tab has another writer id, and both drafts live.
func TestBrowser_16_ADuplicatedTabIsAnotherWriter(t *testing.T) {
	s := newSite(t)
	id := s.file(text("one"))
	b := s.tab().open(id)
	writer := "sessionStorage.getItem('weir.writer')"
	first := js[string](b, writer)
	d := b.duplicate()
	require.NotEqual(t, first, js[string](d, writer))
	require.Equal(t, first, js[string](b, writer))
	s.set(func() { s.onPut = noSave })
	b.write("from the first")
	d.write("from the second")
	b.kept("from the first")
	b.kept("from the second")
	require.Len(t, b.slots(), 2)
	// 17: a live sibling is shown, and is not to be touched.
	require.Equal(t, "true", js[string](b, "weirSiblings.siblings(weirSession).then(l => l.map(s => s.open).join())"))
	require.True(t, js[bool](b, "weirSiblings.siblings(weirSession).then(l => weirSiblings.discardSibling(weirSession, l[0])).then(() => false, () => true)"))
	s.set(func() { s.onPut = nil })
	b.flush()
	b.phase("clean")
	d.run("if (weirSession.state().phase !== 'conflict') weirSession.retry()")
	d.phase("conflict") // and not "my own write"
	d.do(chromedp.Reload())
	d.until("window.weirSession && weirSession.state().phase === 'conflict'")
	require.NotEqual(t, first, js[string](d, writer), "a reload keeps its id")
}

// 17, 18: adopt, and discard, once the other tab is gone.
func TestBrowser_18_AdoptTakesOverAndDiscardDeletes(t *testing.T) {
	s := newSite(t)
	id := s.file(text("one"))
	s.set(func() { s.onPut = noSave })
	for _, work := range []string{"first work", "second work"} {
		b := s.tab().open(id)
		b.write(work)
		b.kept(work)
		b.close()
	}
	c := s.tab().open(id)
	c.until("document.querySelectorAll('#siblings .adopt').length === 2")
	c.do(chromedp.Click(chromedp.CSS("#siblings .adopt")))
	c.until("weirSession.state().unsaved")
	require.Len(t, c.slots(), 2, "the own slot and the other one's")
	adopted := js[string](c, "weirSession.state().content.text")
	// Adopting while there is unsaved work is refused.
	require.True(t, js[bool](c, "weirSiblings.siblings(weirSession).then(l => weirSiblings.adopt(weirSession, l[0])).then(() => false, () => true)"))
	s.set(func() { s.onPut = nil })
	c.run("weirSession.retry(); await weirSession.flush()")
	c.phase("clean")
	require.Equal(t, text(adopted), s.stored(id))
	c.until("document.querySelectorAll('#siblings .discard').length === 1")
	c.do(chromedp.Click(chromedp.CSS("#siblings .discard")))
	c.until("document.getElementById('siblings') === null")
	require.Empty(t, c.slots())
}

// 18: a kill between the new slot and the deletion leaves a duplicate, which the next load removes.
func TestBrowser_18_ADuplicateOfAnAdoptedDraftIsRemoved(t *testing.T) {
	s := newSite(t)
	id := s.file(text("one"))
	s.set(func() { s.onPut = noSave })
	b := s.tab().open(id)
	b.write("work")
	b.kept("work")
	key, raw := keyOf(b), js[string](b, "localStorage.getItem(weirSession.slotKey)")
	b.close()
	c := s.tab().open(id)
	c.until("document.querySelector('#siblings .adopt')")
	c.do(chromedp.Click(chromedp.CSS("#siblings .adopt")))
	c.until("weirSession.state().unsaved")
	// While it is adopted its writer's lock is held here, as by a tab that lives.
	require.Eventually(t, func() bool { return js[int](c, "navigator.locks.query().then(q => q.held.length)") == 1 }, limit, 20*time.Millisecond)
	c.run(fmt.Sprintf("localStorage.setItem(%q, %q)", key, raw))
	require.Len(t, c.slots(), 2)
	require.Equal(t, 0, js[int](c, "weirSiblings.siblings(weirSession).then(l => l.length)"))
	require.Len(t, c.slots(), 1)
}

// 18, 9: the adopted draft keeps its own base.
func TestBrowser_18_AnAdoptedDraftOfAnOlderVersionIsAConflict(t *testing.T) {
	s := newSite(t)
	id := s.file(text("one"))
	s.set(func() { s.onPut = noSave })
	b := s.tab().open(id)
	b.write("work")
	b.kept("work")
	b.close()
	s.save(id, text("newer"))
	s.set(func() { s.onPut = nil })
	c := s.tab().open(id)
	c.until("document.querySelector('#siblings .adopt')")
	c.do(chromedp.Click(chromedp.CSS("#siblings .adopt")))
	c.phase("conflict")
	require.Equal(t, []int{1, 2}, js[[]int](c, "[weirSession.state().version, weirSession.state().theirs.version]"))
	require.Equal(t, text("newer"), s.stored(id))
}

// 20: somebody clears the storage.
func TestBrowser_20_ASlotThatWasClearedIsWrittenAgain(t *testing.T) {
	s := newSite(t)
	id := s.file(text("one"))
	s.set(func() { s.onPut = noSave })
	b := s.tab().open(id)
	b.write("work")
	b.kept("work")
	other := s.tab()
	other.do(chromedp.Navigate(s.url + "/assets/weir.svg"))
	other.run("localStorage.clear()")
	b.kept("work")
}

// 21: deleted files, newer schemas, and what cannot be read.
func TestBrowser_21_DraftsThatFitNothingAreKeptAndOffered(t *testing.T) {
	s := newSite(t)
	id := s.file(text("one"))
	b := s.tab().open(id)
	s.set(func() { s.onPut = noSave })
	b.write("work")
	b.kept("work")
	s.set(func() { s.onPut = nil })
	require.NoError(t, s.store.Delete(t.Context(), "ada", id))
	b.flush()
	b.phase("orphaned")
	b.do(chromedp.Navigate(s.url + "/files"))
	b.until("document.querySelector('#kept li')")
	require.Contains(t, js[string](b, "document.getElementById('kept').innerText"), "Ada's file has unsaved work")
	b.open(id)
	b.phase("orphaned")
	require.Equal(t, "work", js[string](b, "document.getElementById('text').value"))
	b.do(chromedp.Click(chromedp.CSS("#restore")))
	b.phase("clean")
	require.Equal(t, text("work"), s.stored(id))

	// Another tab's, of a form that does not exist yet, and one that is damaged; and even in the own slot.
	b.run(`const base = weirSession.slotKey.slice(0, weirSession.slotKey.lastIndexOf('/') + 1);
		localStorage.setItem(base + 'future', JSON.stringify({format: 1, type: 'markdown', schema: 99, content: {}}));
		localStorage.setItem(base + 'damaged', '{"format": 1, "ty');
		localStorage.setItem(weirSession.slotKey, '{"format": 7, "content": 1}')`)
	b.open(id)
	b.phase("clean")
	require.Equal(t, "broken,newer,newer", js[string](b, "weirSiblings.siblings(weirSession).then(l => l.map(s => s.unreadable).sort().join())"))
	b.write("on")
	b.flush()
	b.phase("clean")
	require.Len(t, b.slots(), 3, "none of them was touched")
}

// 22, DO-11: the next user of this computer.
func TestBrowser_22_AnotherUserSeesNoDraft(t *testing.T) {
	s := newSite(t)
	id := s.file(text("one"))
	b := s.tab().open(id)
	s.set(func() { s.onPut = noSave })
	b.write("Ada's secret")
	b.kept("Ada's secret")
	s.set(func() { s.user = "bob"; s.onPut = nil })
	b.run("weirSession.retry(); await weirSession.flush()")
	b.phase("auth_required")
	require.Contains(t, b.said(), "Somebody else has signed in")
	require.Equal(t, text("one"), s.stored(id), "nothing of one user is saved as another's")

	c := s.tab()
	c.do(chromedp.Navigate(s.url+"/files"), chromedp.WaitReady(chromedp.CSS("#kept")))
	c.until("document.querySelector('#kept ul') !== null")
	require.True(t, js[bool](c, "document.getElementById('kept').hidden"))
	require.NotContains(t, js[string](c, "document.body.innerText"), "Ada's file")

	s.set(func() { s.user = "ada" })
	b.run("document.getElementById('retry').click()")
	b.phase("clean")
	require.Equal(t, text("Ada's secret"), s.stored(id))
}

// 22: leaving with drafts asks.
func TestBrowser_22_LeavingWithDraftsAsks(t *testing.T) {
	s := newSite(t)
	id := s.file(text("one"))
	s.set(func() { s.onPut = noSave })
	b := s.tab().open(id)
	b.write("work")
	b.kept("work")
	b.do(chromedp.Navigate(s.url + "/files"))
	b.until("document.getElementById('leave')")
	b.do(chromedp.Click(chromedp.CSS("#leave")), chromedp.WaitVisible(chromedp.CSS("#leave-keep")), chromedp.Click(chromedp.CSS("#leave-keep")))
	require.Len(t, b.slots(), 1)
	b.until("document.getElementById('leaving') === null")
	b.run("document.getElementById('leave').click()")
	b.do(chromedp.WaitVisible(chromedp.CSS("#leave-delete")), chromedp.Click(chromedp.CSS("#leave-delete")))
	b.until("Object.keys(localStorage).filter(k => k.startsWith('weir.draft/')).length === 0")
}

// A person who is signed out: nothing is lost, and the same is saved when the same user is back.
func TestBrowser_ASignOutStopsSavingUntilTheSameUserIsBack(t *testing.T) {
	s := newSite(t)
	id := s.file(text("one"))
	b := s.tab().open(id)
	s.set(func() { s.user = "" })
	b.write("two")
	b.flush()
	b.phase("auth_required")
	require.Contains(t, b.said(), "signed out")
	b.write("three")
	s.set(func() { s.user = "ada" })
	b.run("document.getElementById('retry').click()")
	b.phase("clean")
	require.Equal(t, text("three"), s.stored(id))
}

// 24, DO-06: a full storage.
func TestBrowser_24_AFullStorageIsSaidAndTheWorkIsSavedAtOnce(t *testing.T) {
	s := newSite(t)
	id := s.file(text("one"))
	s.set(func() { s.onPut = noSave })
	other := s.tab().open(id)
	other.write("another draft")
	other.kept("another draft")
	other.close()
	b := s.tab().open(id)
	b.run(`let size = 5_300_000; let fill = 'x'.repeat(size);
		for (let i = 0; size > 0; ) { try { localStorage.setItem('filler' + i, 'x'.repeat(size)); i++; } catch { size = Math.floor(size / 2); } }`)
	s.set(func() { s.puts = nil })
	b.write("no room for this")
	b.until("weirSession.state().keeping === 'behind'")
	require.Contains(t, b.said(), "it is not kept here")
	require.Eventually(t, func() bool { return len(s.saves()) > 0 }, limit, 10*time.Millisecond, "saved at once")
	require.True(t, js[bool](b, "!dispatchEvent(new Event('beforeunload', {cancelable: true}))"), "leaving asks")
	require.Len(t, b.slots(), 1, "other drafts are never evicted")
	s.set(func() { s.onPut = nil })
	b.flush()
	b.phase("clean")
	require.Equal(t, text("no room for this"), s.stored(id))
	require.False(t, js[bool](b, "!dispatchEvent(new Event('beforeunload', {cancelable: true}))"))
}

// 25, DO-06: no storage at all.
func TestBrowser_25_WithoutStorageItWorksAndSaysSo(t *testing.T) {
	s := newSite(t)
	id := s.file(text("one"))
	b := s.tab()
	b.do(chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		_, err := cdp.Call(ctx, target, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: `
			for (const name of ["localStorage", "sessionStorage", "indexedDB"]) Object.defineProperty(window, name, {get() { throw new DOMException("no", "SecurityError"); }});
			Object.defineProperty(navigator, "locks", {value: undefined});`})
		return err
	}))
	b.open(id)
	require.Contains(t, b.said(), "not kept on this device")
	s.set(func() { s.onPut = noSave })
	b.write("two")
	b.flush()
	b.phase("retrying")
	require.Contains(t, b.said(), "It is not kept on this device")
	s.set(func() { s.onPut = nil })
	b.flush()
	b.phase("clean")
	require.Equal(t, text("two"), s.stored(id))
}

// 26: the whole browser is killed. localStorage may have lost its last writes; the copy in IndexedDB has not.
func TestBrowser_26_AKilledBrowserLosesNothingThatWasMirrored(t *testing.T) {
	s := newSite(t)
	id := s.file(text("one"))
	s.set(func() { s.onPut = noSave })
	profile := t.TempDir()
	allocator, stop := chromedp.NewExecAllocator(t.Context(), flags(profile)...)
	defer stop()
	root, cancel := chromedp.NewContext(allocator)
	defer cancel()
	require.NoError(t, chromedp.Do(root))
	b := &tab{t, root, cancel, s}
	b.open(id)
	b.write("survives a power cut")
	b.until("weirSession.state().unsaved")
	require.Eventually(t, func() bool {
		return js[bool](b, `new Promise(done => { const o = indexedDB.open("weir.drafts"); o.onsuccess = () => { const g = o.result.transaction("slots").objectStore("slots").getAll(); g.onsuccess = () => { o.result.close(); done(g.result.some(([, text]) => text.includes("power cut"))); }; }; })`)
	}, limit, 50*time.Millisecond)
	process := chromedp.FromContext(root).Browser.Process()
	require.NoError(t, process.Signal(syscall.SIGKILL))
	<-root.Done()

	again, stop := chromedp.NewExecAllocator(t.Context(), flags(profile)...)
	defer stop()
	root, cancel = chromedp.NewContext(again)
	defer cancel()
	require.NoError(t, chromedp.Do(root))
	c := &tab{t, root, cancel, s}
	c.open(id)
	c.until("document.querySelector('#siblings pre')?.innerText.includes('survives a power cut')")
	c.do(chromedp.Click(chromedp.CSS("#siblings .adopt")))
	c.until("weirSession.state().unsaved")
	s.set(func() { s.onPut = nil })
	c.run("weirSession.retry(); await weirSession.flush()")
	c.phase("clean")
	require.Equal(t, text("survives a power cut"), s.stored(id))
}

// 27, DO-12: closing a page within the debounce.
func TestBrowser_27_APageThatGoesHasWrittenItsDraftAndTriesToSave(t *testing.T) {
	s := newSite(t)
	small, large := s.file(text("one")), s.file(text("two"))
	for id, body := range map[desk.FileID]string{small: "short", large: strings.Repeat("long ", 20_000)} {
		b := s.tab().open(id)
		// The draft's timer is not waited for: what is kept is written by the page's end.
		b.run(fmt.Sprintf("const a = document.getElementById('text'); a.value = %q; a.dispatchEvent(new InputEvent('input', {bubbles: true})); location.href = '/assets/weir.svg'", body))
		b.until("location.pathname === '/assets/weir.svg'")
		if id == small {
			require.Eventually(t, func() bool { return s.stored(id) == text("short") }, limit, 20*time.Millisecond, "keepalive")
			b.close()
			continue
		}
		// Above 64 KiB a keepalive would fail at once; an ordinary request may or may not arrive. The draft is there.
		b.open(id)
		b.until("weirSession.state().content.text.length === 100000")
		b.phase("clean")
		require.Len(t, s.stored(id), len(text(""))+100_000)
	}
}

// 27, DO-12: two documents of one page, each of which would fit. What a page may have in flight beyond its end is 64 KiB for both
// together: one of them may be saved or not, and both are kept.
func TestBrowser_27_TwoDocumentsThatDoNotFitTogetherAreKept(t *testing.T) {
	s := newSite(t)
	one, two := s.file(text("one")), s.file(text("two"))
	b := s.tab().open(one)
	b.run(fmt.Sprintf("window.two = await weirSession.desk.open(%q, weirSession.kind)", two))
	b.until("two.state().phase === 'clean'")
	b.run("weirSession.edit({text: 'a'.repeat(40_000)}); two.edit({text: 'b'.repeat(40_000)}); location.href = '/assets/weir.svg'")
	b.until("location.pathname === '/assets/weir.svg'")
	for id, letter := range map[desk.FileID]string{one: "a", two: "b"} {
		want := strings.Repeat(letter, 40_000)
		b.open(id)
		b.until(fmt.Sprintf("weirSession.state().content.text === %q", want))
		b.phase("clean")
		require.Equal(t, text(want), s.stored(id))
		require.Equal(t, int64(2), s.get(id).Version)
	}
	require.Empty(t, b.slots())
}

// 17, 18, 28: a page that sleeps in the back/forward cache is no tab that lives: its work is adopted, and saved. When it comes back,
// that is no conflict: also where the browser has let it go, because its channel heard of the save, and loads it anew.
func TestBrowser_28_APageWhoseWorkWasAdoptedMeanwhileComesBackWithoutAConflict(t *testing.T) {
	s := newSite(t)
	id := s.file(text("one"))
	b := s.tab().open(id)
	s.set(func() { s.onPut = noSave })
	b.write("work")
	b.kept("work")
	b.flush()
	b.phase("retrying") // a page with a request under way may not be kept by the browser
	b.do(chromedp.Navigate(s.url + "/assets/weir.svg"))
	c := s.tab().open(id)
	c.until("document.querySelector('#siblings .adopt')")
	s.set(func() { s.onPut = nil })
	c.do(chromedp.Click(chromedp.CSS("#siblings .adopt")))
	c.until("weirSession.state().version === 2 && weirSession.state().phase === 'clean'")
	require.Empty(t, c.slots())
	b.back()
	b.until("window.weirSession")
	b.until("weirSession.state().version === 2 && weirSession.state().phase === 'clean'")
	require.Equal(t, "work", js[string](b, "document.getElementById('text').value"))
	require.Equal(t, int64(2), s.get(id).Version)
	require.Empty(t, b.slots())
}

// Offline and back.
func TestBrowser_OfflineIsSaidAndTheWorkIsSavedWhenBack(t *testing.T) {
	s := newSite(t)
	id := s.file(text("one"))
	b := s.tab().open(id)
	offline := func(on bool) {
		b.do(chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
			if _, err := cdp.Call(ctx, target, network.EmulateNetworkConditionsByRule, network.EmulateNetworkConditionsByRuleParams{
				MatchedNetworkConditions: []*network.Conditions{{Offline: on, DownloadThroughput: -1, UploadThroughput: -1}},
			}); err != nil {
				return err
			}
			_, err := cdp.Call(ctx, target, network.OverrideNetworkState, network.OverrideNetworkStateParams{Offline: on, DownloadThroughput: -1, UploadThroughput: -1})
			return err
		}))
	}
	b.do(chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		_, err := cdp.Call(ctx, target, network.Enable, network.EnableParams{})
		return err
	}))
	offline(true)
	b.write("written offline")
	b.phase("retrying")
	b.until("document.getElementById('says').textContent.startsWith('Offline')")
	for i := range 20 {
		b.write(fmt.Sprint("written offline ", i))
	}
	b.kept("written offline 19")
	require.Empty(t, s.saves())
	offline(false)
	b.phase("clean")
	require.Equal(t, text("written offline 19"), s.stored(id))
	require.LessOrEqual(t, len(s.saves()), 2, "DO-19: what was under way, and one for all the rest")
}
