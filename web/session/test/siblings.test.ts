import { markdown, type Markdown } from "../kinds/markdown";
import type { Session } from "../session";
import { forget, kept } from "../kept";
import { adopt, discardSibling, siblings } from "../siblings";
import type { Draft } from "../types";
import { Browser, quiet, Store, type Page } from "./browser";
import { is, ok, rejects, test } from "./check";
import { Server } from "./world";

const browser = (): Browser => new Browser(new Server("markdown", { text: "one" }));

// A tab that is gone, with work that it could not save.
async function leftBehind(b: Browser, text: string, tab = new Store()): Promise<Page> {
  const p = await b.tab([markdown], tab);
  const s = await p.open(markdown);
  const { network } = b;
  b.network = (method, path, body) => (method === "PUT" ? null : network(method, path, body, p));
  s.edit({ text });
  await p.happens("pagehide");
  b.network = network;
  await p.gone();
  return p;
}

async function session(b: Browser): Promise<[Session<Markdown>, Page]> {
  const p = await b.tab([markdown]);
  return [await p.open(markdown), p];
}

const slots = (b: Browser): string[] => Object.keys(b.local).map((key) => (JSON.parse(b.local.getItem(key)!) as Draft<Markdown>).content.text);

test("18 adopting moves a sibling's work here, once this slot has it", async () => {
  const b = browser();
  await leftBehind(b, "work");
  const [s] = await session(b);
  const [sibling] = await siblings(s);
  is([sibling.open, sibling.draft?.content], [false, { text: "work" }]);
  await adopt(s, sibling);
  is([s.state().phase, s.state().content, slots(b)], ["dirty", { text: "work" }, ["work"]]);
  is(Object.keys(b.local), [s.slotKey]);
});

test("18 a sibling's slot stays while there is no room for its work in this one", async () => {
  const b = browser();
  await leftBehind(b, "work");
  const [s] = await session(b);
  const [sibling] = await siblings(s);
  b.network = () => null;
  Store.full = true;
  try {
    await adopt(s, sibling);
    is([s.state().unsaved, s.state().keeping, slots(b)], [true, "behind", ["work"]]);
  } finally {
    Store.full = false;
  }
});

test("18 what another tab took over since it was listed is not taken twice", async () => {
  const b = browser();
  await leftBehind(b, "work");
  const [s] = await session(b);
  const [other] = await session(b);
  const [listed] = await siblings(s);
  await adopt(other, (await siblings(other))[0]);
  await other.flush();
  is(b.server.content, { text: "work" });
  await rejects(adopt(s, listed), "it is gone");
  is([s.state().unsaved, slots(b)], [false, []]);
});

test("18 what a sibling wrote since it was listed is what is adopted", async () => {
  const b = browser();
  const tab = new Store();
  await leftBehind(b, "work", tab);
  const [s] = await session(b);
  const [listed] = await siblings(s);
  await leftBehind(b, "work and more", tab);
  await adopt(s, listed);
  is([s.state().content, slots(b)], [{ text: "work and more" }, ["work and more"]]);
});

test("17 what a sibling wrote since it was listed is not discarded with what was seen", async () => {
  const b = browser();
  const tab = new Store();
  await leftBehind(b, "work", tab);
  const [s, p] = await session(b);
  const [listed] = await siblings(s);
  await leftBehind(b, "work and more", tab);
  await rejects(discardSibling(s, listed), "it has changed");
  is([await forget(p.desk, listed), slots(b)], [false, ["work and more"]]);
  await discardSibling(s, (await siblings(s))[0]);
  is(slots(b), []);
});

test("18 adopting while there is unsaved work is refused", async () => {
  const b = browser();
  await leftBehind(b, "work");
  const [s] = await session(b);
  const [sibling] = await siblings(s);
  s.edit({ text: "mine" });
  await rejects(adopt(s, sibling), "there is work here");
  is([s.state().content, slots(b)], [{ text: "mine" }, ["work"]]);
});

test("17 a sibling whose tab lives is shown, and neither adopted nor discarded nor forgotten", async () => {
  const b = browser();
  const tab = new Store();
  await leftBehind(b, "work", tab);
  const [s, p] = await session(b);
  const [before] = await siblings(s);
  const again = await b.tab([markdown], tab); // the tab comes back
  await again.open(markdown);
  is((await siblings(s)).map((x) => x.open), [true]);
  await rejects(adopt(s, before), "it lives");
  await rejects(discardSibling(s, before), "it lives");
  is([await forget(p.desk, before), slots(b)], [false, ["work"]]);
});

test("17 a tab that comes back while its work is adopted takes another id, and leaves the work alone", async () => {
  const b = browser();
  const tab = new Store();
  const was = await leftBehind(b, "work", tab);
  const [s] = await session(b);
  const [sibling] = await siblings(s);
  const adopting = adopt(s, sibling);
  const again = await b.tab([markdown], tab);
  const back = await again.open(markdown);
  await adopting;
  ok(again.desk.writer !== was.desk.writer, "its lock was held");
  is([s.state().content, back.state().content, back.state().unsaved, slots(b)], [{ text: "work" }, { text: "one" }, false, ["work"]]);
});

test("17 without locks nobody can know: a sibling is copied and stays, and is not discarded", async () => {
  const b = browser();
  await leftBehind(b, "work");
  const p = await b.tab([markdown]);
  (p.desk.env as { locks: unknown }).locks = null;
  const s = await p.open(markdown);
  const [sibling] = await siblings(s);
  is(sibling.open, undefined);
  await rejects(discardSibling(s, sibling), "nobody can know");
  await adopt(s, sibling);
  is([s.state().content, slots(b)], [{ text: "work" }, ["work", "work"]]);
});

test("18 the slot of a draft that was adopted here, is stored, or was saved after all is cleared away; a later edit of it is not", async () => {
  for (const [what, stored, left] of [["adopted", "one", 0], ["stored", "work", 0], ["saved", "one", 0], ["later", "one", 1]] as const) {
    const b = browser();
    const was = await leftBehind(b, "work");
    const key = was.desk.drafts.key(b.server.id, was.desk.writer);
    const raw = b.local.getItem(key)!;
    const draft = JSON.parse(raw) as Draft<Markdown>;
    if (what === "stored") b.server.commit("other", { text: stored });
    if (what === "saved" || what === "later") {
      b.server.commit(draft.inflight!.saveId, { text: "work" });
      b.server.commit("other", { text: "theirs" });
    }
    if (what === "later") b.local.setItem(key, JSON.stringify({ ...draft, seq: draft.seq + 1, content: { text: "more work" } }));
    const [s] = await session(b);
    if (what === "adopted") {
      await adopt(s, (await siblings(s))[0]);
      b.local.setItem(key, raw); // killed between the two steps
    }
    is([what, (await siblings(s)).length], [what, left]);
    is(b.local.getItem(key) === null, left === 0, what);
  }
});

test("the work of this tab beside a slot that it cannot read is no sibling that lives", async () => {
  const b = browser();
  const tab = new Store();
  await leftBehind(b, "work", tab);
  const [key] = Object.keys(b.local);
  const future = JSON.stringify({ ...JSON.parse(b.local.getItem(key)!), schema: 99 });
  b.local.setItem(key, future);
  const p = await b.tab([markdown], tab);
  const s = await p.open(markdown);
  is([s.state().phase, s.slotKey], ["clean", key + "_1"]);
  s.edit({ text: "beside" });
  await p.happens("storage", { key: null });
  is((await kept(p.desk)).map((x) => [x.key === key, x.open, x.unreadable]), [[true, false, "newer"], [false, true, undefined]]);
  is([(await siblings(s)).map((x) => x.unreadable), b.local.getItem(key)], [["newer"], future]);
  await quiet();
});
