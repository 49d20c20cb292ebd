import { draftsOf } from "../drafts";
import type { Environment } from "../environment";
import { httpOf } from "../http";
import { markdown } from "../kinds/markdown";
import { delays } from "../session";
import type { Draft } from "../types";
import { claim, hold, live } from "../writer";
import { locksOf, Store } from "./browser";
import { is, ok, test } from "./check";

/** A browser of which only what is asked for is there. */
function fake(locked: Set<string> | null, tab: Store | null = new Store(), local: Store | null = new Store()): Environment {
  let n = 0;
  return {
    fetch: () => Promise.reject(new Error("none")), local, tab, database: null, locks: locked && locksOf(locked), channel: null,
    window: { addEventListener() {}, setTimeout: () => 0, clearTimeout() {} },
    id: () => "minted" + Math.random().toString(36).slice(2, 6) + ++n, random: () => 0, now: () => "now", reload() {},
  } as unknown as Environment;
}

test("16 a writer id is kept over a reload, and a duplicated tab takes another one", async () => {
  const locked = new Set<string>();
  const tab = new Store();
  const first = await claim(fake(locked, tab));
  const copy = Object.assign(new Store(), tab);
  const duplicate = await claim(fake(locked, copy));
  ok(duplicate.writer !== first.writer, "two tabs, one writer");
  first.release();
  await null;
  await null;
  is((await claim(fake(locked, tab))).writer, first.writer, "after a reload");
});

test("16 without locks every load is another writer", async () => {
  const tab = new Store();
  const first = await claim(fake(null, tab));
  ok((await claim(fake(null, tab))).writer !== first.writer, "nobody can know");
  ok((await claim(fake(null, null))).writer.length >= 8, "without storage too");
});

test("17 a lock says who lives", async () => {
  const env = fake(new Set());
  const release = await hold(env, "abc_1");
  is([(await live(env))("abc"), (await live(env))("abd"), await hold(env, "abc")], [true, false, null], "a second slot is the same tab's");
  release!();
});

const draft = (over: Partial<Draft<unknown>> = {}) =>
  ({ format: 1, schema: 1, type: "markdown", user: "ada", file: "fil_1", writer: "w", name: "n", base: { version: 3, rev: "r" }, seq: 5, mine: [], hash: "h", content: { text: "x" }, ...over }) as Draft<unknown>;

test("22 another user's drafts are never seen, whatever the names are", async () => {
  const local = new Store();
  const of = (user: string) => draftsOf(fake(new Set(), null, local), user, [markdown]);
  for (const user of ["a", "a/b", "a%2Fb", "ä"]) is(of(user).write(draft({ user, file: "f/../x", writer: "w/w" })), "kept");
  is((await of("a").all()).map((s) => [s.file, s.writer]), [["f/../x", "w/w"]]);
  is((await of("a/b").all()).length, 1);
  is((await of("b").all()).length, 0);
});

// DO-10: a new document has its id from the server before anybody can type into it.
test("22 drafts of two new documents in two tabs, and of two tabs of one, are each kept and never mixed", async () => {
  const d = draftsOf(fake(new Set(), null, new Store()), "ada", [markdown]);
  const slots = [["fil_1", "w"], ["fil_2", "w"], ["fil_2", "v"]];
  for (const [file, writer] of slots) d.write(draft({ file, writer, content: { text: file + writer } }));
  is((await d.all()).map((s) => [s.file, s.writer, s.draft!.content]), slots.map(([file, writer]) => [file, writer, { text: file + writer }]));
  is((await d.all("fil_2")).map((s) => s.writer), ["w", "v"]);
  d.clear(d.key("fil_2", "w"), 5);
  is((await d.all()).map((s) => s.file + s.writer), ["fil_1w", "fil_2v"]);
});

test("23 a slot with a later edit is not deleted", () => {
  const local = new Store();
  const d = draftsOf(fake(new Set(), null, local), "ada", [markdown]);
  const other = draftsOf(fake(new Set(), null, local), "ada", [markdown]);
  other.write(draft({ seq: 3 }));
  d.write(draft({ seq: 6 }));
  d.clear(d.key("fil_1", "w"), 5);
  is(d.now(d.key("fil_1", "w"))?.draft?.seq, 6);
  other.clear(d.key("fil_1", "w"), 5); // it wrote another text, and must read this one
  is(d.now(d.key("fil_1", "w"))?.draft?.seq, 6);
  d.clear(d.key("fil_1", "w"), 6);
  is(d.now(d.key("fil_1", "w")), null);
});

test("22 a key that is no slot's is somebody else's, and keeps no document from being opened", async () => {
  const local = new Store();
  const d = draftsOf(fake(new Set(), null, local), "ada", [markdown]);
  for (const key of ["weir.draft/ada/%", "weir.draft/ada/", "weir.draft/ada/fil_1", "weir.draft/ada/fil_1/%E0%A4%A"]) local.setItem(key, "{}");
  d.write(draft());
  is((await d.all()).map((s) => s.file), ["fil_1"]);
});

test("24 a full storage keeps the old value and says so", () => {
  const d = draftsOf(fake(new Set()), "ada", [markdown]);
  d.write(draft({ seq: 1 }));
  Store.full = true;
  try {
    is([d.write(draft({ seq: 2 })), d.now(d.key("fil_1", "w"))?.draft?.seq], ["behind", 1]);
  } finally {
    Store.full = false;
  }
});

test("25 without storage nothing throws", async () => {
  const d = draftsOf(fake(null, null, null), "ada", [markdown]);
  is([d.write(draft()), (await d.all()).length, d.now(d.key("fil_1", "w"))], ["unavailable", 0, null]);
  d.clear(d.key("fil_1", "w"), 1);
});

test("21 what cannot be read is named and never deleted", async () => {
  const local = new Store();
  const d = draftsOf(fake(new Set(), null, local), "ada", [markdown]);
  local.setItem(d.key("fil_1", "w"), JSON.stringify(draft({ schema: 2 })));
  local.setItem(d.key("fil_1", "v"), '{"format":1');
  local.setItem(d.key("fil_1", "u"), JSON.stringify(draft({ base: undefined as never })));
  is((await d.all()).map((s) => s.unreadable), ["newer", "broken", "broken"]);
  for (const w of ["w", "v", "u"]) d.clear(d.key("fil_1", w), 1e9);
  is((await d.all()).length, 3);
});

test("27 keepalive only below 60,000 bytes, and 30 never a redirect", async () => {
  const seen: RequestInit[] = [];
  const env = fake(new Set());
  env.fetch = (_u, o) => {
    seen.push(o!);
    return Promise.reject(new Error("offline"));
  };
  const http = httpOf(env, "ä/b");
  is((await http.send("PUT", "files/x", "s", true)).is, "lost");
  await http.send("PUT", "files/x", "ü".repeat(30_000), true);
  await http.send("PUT", "files/x", "s", false);
  is(seen.map((o) => [o.keepalive ?? false, o.redirect]), [[true, "error"], [false, "error"], [false, "error"]]);
  is((seen[0].headers as Record<string, string>)["X-Desk-User"], "%C3%A4%2Fb");
});

test("the debounce stays below the server's limit", () => {
  ok(60_000 / delays.debounce <= 40, "40 saves a minute");
});

test("5 a large body is the same bytes, whatever is cut where", async () => {
  const bodies: unknown[] = [];
  const env = fake(new Set());
  env.window.setTimeout = ((f: () => void, ms: number) => (ms === 0 && f(), 0)) as never;
  env.fetch = ((_: string, init: RequestInit) => {
    bodies.push(init.body);
    return Promise.reject(new Error("none"));
  }) as never;
  const global = globalThis as any;
  const { TextEncoder: encoder } = global;
  global.TextEncoder = class {
    encode = (text: string): { length: number } => text;
  };
  global.Blob = class {
    constructor(public parts: any[]) {}
    text = (): string => this.parts.map((p) => (typeof p === "string" ? p : p.text())).join("");
  };
  try {
    for (const body of ["x".repeat(65_535) + "\u{1f600}" + "y".repeat(100_000), "\u{1f600}".repeat(65_536), "\ud83d".repeat(65_537), "z".repeat(65_536)]) {
      bodies.length = 0;
      await httpOf(env, "ada").send("PUT", "files/f", body);
      const [sent] = bodies as any[];
      is(typeof sent === "string" ? sent === body : sent.text() === body, true);
      if (typeof sent !== "string") sent.parts.slice(1).forEach((p: any) => ok(!/^[\udc00-\udfff]/.test(p.text()), "a pair is cut"));
      bodies.length = 0;
      await httpOf(env, "ada").send("PUT", "files/f", body, true);
      is(typeof bodies[0], "string", "a page that goes waits for nothing");
    }
  } finally {
    delete global.Blob;
    global.TextEncoder = encoder;
  }
});
