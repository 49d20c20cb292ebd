// Keeps a page up to date: fetches it again every few seconds while somebody can see it, and puts the new <main> in
// place without losing the reader's place. Without this script the page works and shows what was true when it loaded.
"use strict";

const period = 5000;
const limit = 10000;
let timer;
let busy = false;

const main = () => document.getElementById("main");

function say(id, text) {
  const element = document.getElementById(id);
  if (element && element.textContent !== text) element.textContent = text;
}

// A reader who selects text or types would lose it: such a page waits.
function inUse() {
  const selection = document.getSelection();
  if (selection && !selection.isCollapsed && main().contains(selection.anchorNode)) return true;
  const active = document.activeElement;
  return active !== null && main().contains(active) && active.matches("input, select, textarea");
}

// The way to an element from <main>, for those that have no id.
function pathTo(element) {
  const path = [];
  for (let e = element; e !== main(); e = e.parentElement) path.unshift([...e.parentElement.children].indexOf(e));
  return path;
}

function put(fresh) {
  const old = main();
  const active = document.activeElement;
  const focused = active && active !== old && old.contains(active) ? { id: active.id, tag: active.tagName, path: pathTo(active) } : null;
  const open = [...old.querySelectorAll("details[open][id]")].map((d) => d.id);
  const scrolled = [...old.querySelectorAll("pre")].map((p) => [p.scrollTop, p.scrollLeft]);
  const top = window.scrollY;

  const said = old.dataset.says;
  old.replaceChildren(...document.adoptNode(fresh).childNodes);
  if (fresh.dataset.says) old.dataset.says = fresh.dataset.says;
  if (said && said !== old.dataset.says) say("live-says", old.dataset.says);

  for (const id of open) document.getElementById(id)?.setAttribute("open", "");
  old.querySelectorAll("pre").forEach((p, i) => scrolled[i] && p.scrollTo(scrolled[i][1], scrolled[i][0]));
  window.scrollTo(window.scrollX, top);
  if (focused) {
    const same = focused.id ? document.getElementById(focused.id) : focused.path.reduce((e, i) => e?.children[i], old);
    (same && same.tagName === focused.tag ? same : old).focus({ preventScroll: true });
  }
}

async function refresh() {
  if (busy || document.hidden) return;
  busy = true;
  try {
    const answer = await fetch(location.href, { headers: { Accept: "text/html" }, redirect: "error", signal: AbortSignal.timeout(limit) });
    if (!answer.ok) throw new Error(String(answer.status));
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("main");
    if (!fresh) throw new Error("no page");
    if (!inUse() && fresh.innerHTML !== main().innerHTML) put(fresh);
    say("live-state", "This page keeps itself up to date.");
  } catch {
    say("live-state", "This page could not be refreshed: what is shown may be old.");
  } finally {
    busy = false;
  }
}

function start() {
  clearInterval(timer);
  if (!document.hidden) timer = setInterval(refresh, period);
}

document.addEventListener("visibilitychange", () => {
  start();
  refresh();
});
say("live-state", "This page keeps itself up to date.");
start();
