// The desk and its sessions in a page: what a view, the page's life and the storage may do to them.
import { markdown, type Markdown } from "../kinds/markdown";
import { record } from "../kinds/record";
import type { Draft, Kind } from "../types";
import { siblings } from "../siblings";
import { Browser, quiet, Store } from "./browser";
import { is, ok, test } from "./check";
import { json, Server } from "./world";

const browser = (): Browser => new Browser(new Server("markdown", { text: "one" }));
const unplugged = (b: Browser): void => void (b.network = () => null);
const plugged = (b: Browser): void => void (b.network = (method, path, body) => b.serve(method, path, body));

test("a view that fails stops neither the session nor another view", async () => {
  const b = browser();
  const p = await b.tab([markdown]);
  const s = await p.open(markdown);
  let seen = "";
  const stop = s.subscribe(() => {
    throw new Error("a mistake in a view");
  });
  s.subscribe((v) => (seen = v.content!.text));
  is([s.edit({ text: "two" }), seen], [true, "two"]);
  await p.happens("pagehide");
  is([s.state().phase, b.server.content], ["clean", { text: "two" }]);
  stop();
});

test("a document that is closed before it could be read is not asked for any more", async () => {
  const b = browser();
  unplugged(b);
  const p = await b.tab([markdown]);
  const s = await p.open(markdown);
  is([s.state().phase, p.desk.known.size], ["unavailable", 1]);
  s.close();
  await quiet();
  const asked = b.asked.length;
  for (let i = 0; i < 3; i++) {
    await p.fireAll();
    await p.happens("online");
  }
  is([b.asked.length, p.desk.known.size], [asked, 0]);
});

test("a document that is closed while it is read is the same one when it is opened again", async () => {
  const b = browser();
  const tab = new Store();
  const before = await b.tab([markdown], tab);
  const was = await before.open(markdown);
  unplugged(b);
  was.edit({ text: "work" });
  await before.happens("pagehide");
  await before.gone();
  let answer!: () => void;
  b.network = (method, path, body) => (method === "GET" ? new Promise((done) => (answer = () => done(b.serve(method, path, body)))) : b.serve(method, path, body));
  const p = await b.tab([markdown], tab);
  const s = await p.open(markdown);
  s.close();
  await quiet();
  const t = await p.open(markdown);
  answer();
  await quiet();
  is([s === t, t.state().content], [true, { text: "work" }], "one slot, one session");
  s.close();
  await quiet();
  is([b.server.content, b.server.version, p.desk.known.size], [{ text: "work" }, 2, 0]);
});

test("a document that is closed with work stays until that is saved, and is then let go", async () => {
  const b = browser();
  const p = await b.tab([markdown]);
  const s = await p.open(markdown);
  unplugged(b);
  s.edit({ text: "two" });
  s.close();
  await quiet();
  is([s.state().phase, p.desk.known.size], ["retrying", 1]);
  plugged(b);
  await p.happens("online");
  is([b.server.content, p.desk.known.size, Object.keys(b.local)], [{ text: "two" }, 0, []]);
});

test("28 a page that comes back writes its slot again, whoever took the work over meanwhile", async () => {
  const b = browser();
  const p = await b.tab([markdown]);
  const s = await p.open(markdown);
  unplugged(b);
  s.edit({ text: "work" });
  await p.happens("pagehide", { persisted: true });
  is(s.state().phase, "retrying");
  b.local.removeItem(s.slotKey); // adopted: no event reaches a page that sleeps
  await p.happens("pageshow", { persisted: true });
  is((JSON.parse(b.local.getItem(s.slotKey)!) as Draft<Markdown>).content, { text: "work" });
});

test("28 a page that comes back when another tab has its name leaves that one's slots alone", async () => {
  const b = browser();
  const tab = new Store();
  const p = await b.tab([markdown], tab);
  const s = await p.open(markdown);
  unplugged(b);
  s.edit({ text: "work" });
  await p.happens("pagehide", { persisted: true });
  const copy = await b.tab([markdown], Object.assign(new Store(), tab));
  plugged(b);
  const t = await copy.open(markdown);
  is([copy.desk.writer, t.state().content], [p.desk.writer, { text: "work" }], "the work went with the name");
  await t.flush();
  await p.happens("pageshow", { persisted: true });
  await p.happens("pagehide");
  is([p.reloads, Object.keys(b.local), b.server.content, b.server.version], [1, [], { text: "work" }, 2]);
});

test("28 what a copy of a page left in its slot is not written over by the page that comes back", async () => {
  for (const full of [false, true]) {
    const b = browser();
    const tab = new Store();
    const p = await b.tab([markdown], tab);
    const s = await p.open(markdown);
    unplugged(b);
    s.edit({ text: "work" });
    await p.happens("pagehide", { persisted: true });
    b.network = (method, path, body) => (method === "PUT" ? null : b.serve(method, path, body));
    Store.full = full;
    try {
      const copy = await b.tab([markdown], Object.assign(new Store(), tab));
      const t = await copy.open(markdown);
      is(copy.desk.writer, p.desk.writer);
      t.edit({ text: "work and more" });
      await copy.happens("pagehide");
      await copy.gone();
      await p.happens("pageshow", { persisted: true });
    } finally {
      Store.full = false;
    }
    const other = await b.tab([markdown]);
    const left = (await siblings(await other.open(markdown))).map((x) => x.draft!.content.text).sort();
    is([full, left, s.state().content], [full, ["work", "work and more"], { text: "work" }]);
  }
});

const lines: Kind<{ lines: string[] }> = {
  type: "markdown",
  schema: 2,
  read(content: any) {
    if (typeof content?.text === "string") return { lines: content.text.split("\n") };
    return Array.isArray(content?.lines) ? content : undefined;
  },
  merge: (_base, mine) => ({ content: mine, clashes: [] }),
};

test("21 a draft of an older form is read as a file of it is, and its save is another one", async () => {
  const b = browser();
  const tab = new Store();
  const p = await b.tab([markdown], tab);
  const s = await p.open(markdown);
  unplugged(b);
  s.edit({ text: "a\nb" });
  await s.flush();
  const before = JSON.parse(b.local.getItem(s.slotKey)!) as Draft<Markdown>;
  await p.gone();
  plugged(b);
  const again = await b.tab([lines], tab);
  const t = await again.open(lines);
  is([t.state().phase, t.state().content], ["dirty", { lines: ["a", "b"] }]);
  await t.flush();
  const [put] = b.server.puts;
  is([put.schemaVersion, put.content, put.saveId !== before.inflight!.saveId], [2, { lines: ["a", "b"] }, true]);
  is(t.state().phase, "clean");
});

test("21 a draft without a content of its kind is damaged: it is kept, and keeps no document from being opened", async () => {
  for (const content of [null, "text", { text: 7 }]) {
    const b = browser();
    const tab = new Store();
    const p = await b.tab([markdown], tab);
    const key = p.desk.drafts.key(b.server.id, p.desk.writer);
    const text = JSON.stringify({ format: 1, schema: 1, type: "markdown", user: "ada", file: b.server.id, writer: p.desk.writer, name: "", base: { version: 1, rev: "created" }, seq: 3, mine: [], hash: "", savedAt: "", content });
    b.local.setItem(key, text);
    const s = await p.open(markdown);
    is([s.state().phase, s.state().content, p.desk.drafts.now(key)?.unreadable], ["clean", { text: "one" }, "broken"]);
    s.edit({ text: "two" });
    await s.flush();
    is([s.state().phase, b.local.getItem(key)], ["clean", text]);
  }
});

test("21 work of another kind in the own slot is kept, and this tab's goes beside it", async () => {
  const b = browser();
  const p = await b.tab([markdown, record]);
  const key = p.desk.drafts.key(b.server.id, p.desk.writer);
  const text = JSON.stringify({ format: 1, schema: 1, type: "record", user: "ada", file: b.server.id, writer: p.desk.writer, name: "", base: { version: 1, rev: "created" }, seq: 3, mine: [], hash: "", savedAt: "", content: { attributes: {} } });
  b.local.setItem(key, text);
  const s = await p.open(markdown);
  s.edit({ text: "two" });
  await s.flush();
  is([s.slotKey === key, s.state().phase, b.local.getItem(key)], [false, "clean", text]);
});

test("22 drafts of a kind that only a session knows are read too", async () => {
  const b = browser();
  const tab = new Store();
  let p = await b.tab([], tab);
  let s = await p.open(markdown);
  unplugged(b);
  s.edit({ text: "two" });
  await s.flush();
  await p.gone();
  plugged(b);
  p = await b.tab([], tab);
  s = await p.open(markdown);
  is([s.state().unsaved, s.state().content], [true, { text: "two" }]);
});

test("29 an answer that says how long to wait is heeded, and a page of HTML with any status stops nothing that a person types", async () => {
  const b = browser();
  const p = await b.tab([markdown]);
  const s = await p.open(markdown);
  for (const status of [200, 302, 400, 401, 403, 404, 409, 410, 413, 422, 429, 500, 503]) {
    b.network = () => ({ status, type: "text/html", body: "<h1>no</h1>" });
    s.edit({ text: "with " + status });
    await s.flush();
    ok(s.state().phase !== "clean" && s.state().unsaved, status + " is not saved");
    is(s.edit({ text: "after " + status }), true);
    plugged(b);
    if (b.server.deleted) s.restore();
    s.retry();
    await quiet();
    await s.flush();
    is([status, s.state().phase, b.server.content], [status, "clean", { text: "after " + status }]);
  }
});

test("01 what was committed, and whose retry a proxy then refused, is no conflict", async () => {
  const b = browser();
  const p = await b.tab([markdown]);
  const s = await p.open(markdown);
  b.network = (method, path, body) => (b.serve(method, path, body), null); // done, and nobody hears of it
  s.edit({ text: "two" });
  await s.flush();
  b.network = () => json(400, { error: { code: "bad_gateway_rule", message: "" } });
  await s.flush();
  is(s.state().phase, "rejected");
  s.edit({ text: "two and more" });
  plugged(b);
  await s.flush();
  is([s.state().phase, b.server.content, b.server.version], ["clean", { text: "two and more" }, 3]);
});

test("13 a flush waits for a discard that is under way, and for what is edited meanwhile", async () => {
  for (const edited of [false, true]) {
    const b = browser();
    const p = await b.tab([markdown]);
    const s = await p.open(markdown);
    s.edit({ text: "mine" });
    let answer!: () => void;
    b.network = (method, path, body) => (method === "GET" ? new Promise((done) => (answer = () => done(b.serve(method, path, body)))) : b.serve(method, path, body));
    const discarded = s.discardAndReload();
    const flushed = s.flush();
    await quiet();
    is([s.state().phase, b.server.puts.length], ["dirty", 0]);
    if (edited) s.edit({ text: "after all" });
    answer();
    is([await discarded, await flushed, b.server.content], [!edited, true, { text: edited ? "after all" : "one" }]);
  }
});
