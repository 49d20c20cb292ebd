// Drafts in two places: localStorage, and the copy in IndexedDB.
import { draftsOf, type Drafts } from "../drafts";
import type { Environment } from "../environment";
import { markdown } from "../kinds/markdown";
import type { Draft } from "../types";
import { Database, Store } from "./browser";
import { is, ok, test } from "./check";

class Device {
  local = new Store();
  database = new Database();
  now = "2026-05-05T00:00:00Z";
  waiting: (() => void)[] = [];
  drafts(): Drafts {
    const env = { local: this.local, database: this.database.factory(), now: () => this.now, window: { setTimeout: (f: () => void) => this.waiting.push(f) } };
    return draftsOf(env as unknown as Environment, "ada", [markdown]);
  }
}

const draft = (seq: number, text: string, version = 3) =>
  ({ format: 1, schema: 1, type: "markdown", user: "ada", file: "fil_1", writer: "w", name: "n", base: { version, rev: "r" }, seq, mine: [], hash: "h", content: { text } }) as unknown as Draft<unknown>;
const texts = async (d: Drafts): Promise<string[]> => (await d.all("fil_1")).map((s) => (s.draft!.content as { text: string }).text);
const settle = async (): Promise<void> => {
  for (let i = 0; i < 20; i++) await null;
};

test("26 a slot is written to both places, strictly to the second, and deleted in both", async () => {
  const at = new Device();
  const d = at.drafts();
  d.write(draft(1, "work"));
  await settle();
  is([at.local.getItem(d.key("fil_1", "w")) !== null, at.database.slots.size, at.database.modes], [true, 1, ["readwrite strict"]]);
  d.clear(d.key("fil_1", "w"), 1);
  await settle();
  is([Object.keys(at.local), at.database.slots.size], [[], 0]);
});

test("26 what localStorage lost with the browser is read from the copy", async () => {
  const at = new Device();
  const d = at.drafts();
  d.write(draft(1, "work"));
  const old = at.local.getItem(d.key("fil_1", "w"))!;
  d.write(draft(2, "work and more"));
  await settle();
  for (const lost of [null, old]) {
    at.local.removeItem(d.key("fil_1", "w"));
    if (lost) at.local.setItem(d.key("fil_1", "w"), lost);
    is(await texts(at.drafts()), ["work and more"]);
  }
});

test("31 of two copies of a slot the later version and edit counts, whatever the clocks say (DO-08)", async () => {
  for (const [first, second] of [["2026-05-05T00:00:00Z", "2026-05-03T00:00:00Z"], ["2026-05-03T00:00:00Z", "2026-05-05T00:00:00Z"]]) {
    const at = new Device();
    const d = at.drafts();
    at.now = first;
    d.write(draft(9, "newer version", 4));
    await settle();
    const [[key, copy]] = [...at.database.slots];
    at.now = second;
    d.write(draft(12, "older version", 3));
    await settle();
    is(await texts(d), ["older version"], "both places have it");
    at.database.slots.set(key, copy);
    is(await texts(at.drafts()), ["newer version"]);
  }
});

test("26 a copy that does not fit into localStorage is there all the same", async () => {
  const at = new Device();
  const d = at.drafts();
  d.write(draft(1, "work"));
  Store.full = true;
  try {
    is(d.write(draft(2, "work and more")), "behind");
  } finally {
    Store.full = false;
  }
  await settle();
  is(await texts(at.drafts()), ["work and more"]);
});

test("26 a database that fails, or never answers, keeps no document from being opened", async () => {
  for (const behaviour of ["fails", "hangs"] as const) {
    const at = new Device();
    at.database.behaviour = behaviour;
    const d = at.drafts();
    is(d.write(draft(1, "work")), "kept");
    const read = texts(d);
    let done = false;
    void read.then(() => (done = true));
    await settle();
    is(done, behaviour === "fails");
    at.waiting.forEach((f) => f());
    await settle();
    ok(done, behaviour);
    is(await read, ["work"]);
  }
});

test("22 another user's copies are not read", async () => {
  const at = new Device();
  at.drafts().write(draft(1, "work"));
  await settle();
  const other = draftsOf({ local: new Store(), database: at.database.factory(), now: () => "", window: { setTimeout: () => 0 } } as unknown as Environment, "ad", [markdown]);
  is((await other.all()).length, 0);
});
