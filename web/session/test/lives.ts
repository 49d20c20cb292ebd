// Random lives of whole tabs: the desk, its sessions and what is beside them, in browsers whose pages sleep, are copied and killed,
// whose storage gets full, is cleared or loses its last writes, before a network that answers anything.
import { kept } from "../kept";
import { mergeRecords, record, type RecordContent } from "../kinds/record";
import type { Session } from "../session";
import { adopt, discardSibling, siblings } from "../siblings";
import { Browser, quiet, Store, type Page } from "./browser";
import { random } from "./random";
import { json, Server, type Put } from "./world";
import type { Reply } from "../judge";

interface Tab {
  page: Page;
  session: Session<RecordContent>;
  asleep: boolean;
}
interface Wire {
  page: Page;
  method: string;
  path: string;
  body: string;
  done(r: Reply | null): void;
}

const html = (status: number): Reply => ({ status, type: "text/html", body: "<h1>Welcome</h1>" });

class Life {
  b = new Browser(new Server("record", { attributes: {} }));
  tabs: Tab[] = [];
  /** The sessionStorage of tabs that are gone. */
  closed: Store[] = [];
  wires: Wire[] = [];
  edits = 0;
  /** Edits that nobody promised to keep, or that a person gave up. */
  gone = new Set<string>();
  trace: string[] = [];
  before: Record<string, string | null> = {};
  /** Storage as it may be after the browser was killed. */
  onDisk: Record<string, string> = {};
  /** What a promise would have kept to itself. */
  wrong?: string;

  constructor(
    private r: () => number,
    private seen: Record<string, number>,
  ) {
    this.b.network = (method, path, body, page) => this.hear(method, path, body, page);
  }

  fail(what: string): never {
    throw new Error(what + "\n" + this.trace.slice(-40).join("\n"));
  }
  count(what: string): void {
    this.seen[what] = (this.seen[what] ?? 0) + 1;
  }
  pick<T>(list: T[]): T | undefined {
    return list[Math.floor(this.r() * list.length)];
  }
  keys(c: RecordContent | undefined): string[] {
    return Object.keys(c?.attributes ?? {});
  }
  giveUp(c: RecordContent | undefined, saved: RecordContent = this.b.server.content): void {
    for (const k of this.keys(c)) if (!(k in saved.attributes)) this.gone.add(k);
  }

  hear(method: string, path: string, body: string, page: Page): Promise<Reply | null> {
    if (method === "PUT") {
      const p = JSON.parse(body) as Put;
      const s = this.tabs.find((x) => x.page === page)?.session;
      if (!this.b.server.history.has(p.expectedVersion + " " + p.expectedRev)) this.wrong ??= "a save on a version that never was";
      // What a session says of itself is of after this event.
      void Promise.resolve().then(() => s?.state().phase !== "saving" && (this.wrong ??= "a save left in " + s?.state().phase));
    }
    return new Promise((done) => this.wires.push({ page, method, path, body, done }));
  }

  async open(store: Store): Promise<void> {
    const page = await this.b.tab([record], store);
    const tab: Tab = { page, session: undefined as never, asleep: false };
    this.tabs.push(tab);
    tab.session = await page.open(record);
    tab.session.subscribe((v) => {
      if (v.phase !== "clean") return;
      if (v.unsaved) this.wrong ??= "clean, with something unsaved";
      const stored = [...this.b.server.history].some(([at, c]) => at.startsWith(v.version + " ") && JSON.stringify(c) === JSON.stringify(v.content));
      if (!stored) this.wrong ??= "saved is said of something that is not stored";
    });
  }

  slots(): Map<string, RecordContent> {
    const all = new Map<string, RecordContent>();
    const take = (key: string, text: string) => all.set(key, (JSON.parse(text) as { content: RecordContent }).content);
    for (const key of Object.keys(this.b.local)) take(key, this.b.local.getItem(key)!);
    for (const [key, pair] of this.b.database.slots) if (!all.has(key)) take(key, (pair as [string, string])[1]);
    return all;
  }
  everywhere(): Set<string> {
    const all = new Set(this.keys(this.b.server.content));
    for (const c of this.slots().values()) this.keys(c).forEach((k) => all.add(k));
    for (const pair of this.b.database.slots.values()) this.keys((JSON.parse((pair as [string, string])[1]) as { content: RecordContent }).content).forEach((k) => all.add(k));
    return all;
  }

  /** What a tab has in memory and nowhere else is lost with it: it was typed within the draft's timer. */
  async kill(t: Tab): Promise<void> {
    this.tabs.splice(this.tabs.indexOf(t), 1);
    const somewhere = this.everywhere();
    for (const other of this.tabs) this.keys(other.session.state().content).forEach((k) => somewhere.add(k));
    for (const k of this.keys(t.session.state().content)) {
      if (somewhere.has(k) || this.gone.has(k)) continue;
      if (!t.page.timers.size && t.session.state().keeping === "kept" && !t.asleep) this.fail("edit " + k + " was in no slot, and no timer was set");
      this.gone.add(k);
    }
    await t.page.gone();
    this.closed.push(t.page.tab);
  }

  answer(w: Wire): void {
    const serve = () => this.b.serve(w.method, w.path, w.body);
    const r = this.r();
    if (r < 0.08) return w.done(null); // it never arrived
    if (r < 0.16) return w.done((serve(), null)); // it was done, and the answer was lost
    if (r < 0.2) return w.done((serve(), { status: 200, type: "application/json", body: '{"data":{"fi' }));
    if (r < 0.24) return w.done(html(this.pick([200, 302, 400, 401, 403, 404, 409, 410, 413, 429, 500, 502, 503])!));
    if (r < 0.28) return w.done(json(this.pick([401, 403, 408, 413, 425, 429, 500])!, { error: { code: "x", message: "" } }));
    if (r < 0.3) return w.done(json(401, { error: { code: "user_mismatch", message: "" } }));
    if (r < 0.31) return w.done(json(422, { error: { code: "schema_outdated", message: "" } }));
    if (w.method === "PUT" && r < 0.36) serve(); // the browser sent it twice
    w.done(serve());
  }

  edit(t: Tab): void {
    const k = "k" + ++this.edits;
    if (!t.session.edit((now) => ({ attributes: { ...now.attributes, [k]: 1 } }))) this.gone.add(k);
  }

  async resolve(t: Tab): Promise<void> {
    const v = t.session.state();
    if (v.phase !== "conflict" || v.theirs?.content === undefined) return;
    if (v.canRebase) {
      if (await t.session.rebase()) this.count("merged");
      return;
    }
    // The base's content is not known: nothing is left out.
    const { content: theirs } = v.theirs;
    t.session.edit((now) => mergeRecords({ attributes: {} }, now, theirs).content);
    if (t.session.keepMine()) this.count("kept mine");
  }

  async recover(t: Tab): Promise<void> {
    const s = t.session;
    const one = this.pick(await siblings(s));
    if (!one || one.unreadable) return;
    if (this.r() < 0.8) {
      await adopt(s, one);
      return this.count("adopted");
    }
    await discardSibling(s, one);
    this.giveUp(one.draft!.content);
    this.count("discarded a sibling");
  }

  async one(): Promise<void> {
    const t = this.pick(this.tabs);
    const r = this.r();
    const act = (what: string) => {
      this.trace.push(what + (t ? " " + t.page.desk.writer + " " + t.session.state().phase : ""));
      this.count(what);
      if (t) this.count("in " + t.session.state().phase);
    };
    const unwatched = (p: Promise<unknown>) => void p.catch((e: Error) => this.trace.push("refused: " + e.message));
    if (!t || (r < 0.03 && this.tabs.length < 5)) {
      act("open");
      const again = this.r() < 0.5 ? this.closed.splice(Math.floor(this.r() * this.closed.length), 1)[0] : undefined;
      return this.open(again ?? new Store());
    }
    if (r < 0.05 && this.tabs.length < 5) return act("duplicate"), this.open(Object.assign(new Store(), t.page.tab));
    if (r < 0.08) return act("kill"), this.kill(t);
    if (this.wires.length > 0 && this.r() < 0.4) {
      const w = this.pick(this.wires)!;
      this.wires.splice(this.wires.indexOf(w), 1);
      const asleep = !this.tabs.some((x) => x.page === w.page && !x.asleep);
      this.trace.push("answer " + w.method + " " + w.page.desk.writer);
      if (!asleep) return this.answer(w);
      if (this.r() < 0.5) this.b.serve(w.method, w.path, w.body);
      return;
    }
    if (r < 0.12) return void this.b.server.commit("tool-" + ++this.edits, { attributes: { ...this.b.server.content.attributes, ["k" + this.edits]: 1 } });
    if (r < 0.125) return void (this.b.server.deleted = !this.b.server.deleted);
    if (r < 0.14) return void (Store.full = !Store.full);
    if (r < 0.143) return this.powerCut();
    if (t.asleep) {
      if (r < 0.7) return;
      act("wake");
      t.asleep = false;
      await t.page.happens("pageshow", { persisted: true });
      if (t.page.reloads === 0) return this.count("woke");
      this.count("woke without its name");
      const { tab } = t.page;
      await this.kill(t);
      this.closed.splice(this.closed.indexOf(tab), 1);
      return this.open(tab);
    }
    if (t.session.state().phase === "unavailable" && this.r() < 0.3) return act("retry"), t.session.retry();
    if (r < 0.45) return act("edit"), this.edit(t);
    if (r < 0.62) {
      const due = this.pick([...t.page.timers.keys()]);
      if (due === undefined) return;
      act("timer");
      const f = t.page.timers.get(due)!;
      t.page.timers.delete(due);
      return f();
    }
    if (r < 0.7) return act("resolve"), unwatched(this.resolve(t));
    if (r < 0.78) return act("recover"), unwatched(this.recover(t));
    if (r < 0.83) return act("flush"), unwatched(t.session.flush());
    if (r < 0.86) return act("retry"), t.session.retry();
    if (r < 0.88) return act("online"), t.page.happens("online");
    if (r < 0.9) return act("hide"), t.page.happens("pagehide");
    if (r < 0.92) {
      act("sleep");
      await t.page.happens("pagehide", { persisted: true });
      t.asleep = true;
      return;
    }
    if (r < 0.93) {
      act("discard");
      const { content } = t.session.state();
      return unwatched(
        t.session.discardAndReload().then((done) => {
          if (!done) return;
          this.giveUp(content, t.session.state().content);
          this.count("discarded");
        }),
      );
    }
    if (r < 0.95 && t.session.state().phase === "orphaned") {
      if (this.r() < 0.5) return act("restore"), t.session.restore();
      act("forget");
      this.giveUp(t.session.state().content);
      t.session.forget();
      return this.kill(t);
    }
    if (r < 0.96) {
      act("slots are cleared");
      for (const key of Object.keys(this.b.local)) if (this.tabs.some((x) => !x.asleep && x.session.slotKey === key)) this.b.local.removeItem(key);
    }
  }

  /** All pages are gone at once, and localStorage is what was on the disk. */
  async powerCut(): Promise<void> {
    this.count("power cut");
    this.trace.push("power cut");
    for (const t of [...this.tabs]) await this.kill(t);
    this.closed = [];
    for (const key of Object.keys(this.b.local)) this.b.local.removeItem(key);
    Object.assign(this.b.local, this.onDisk);
  }

  async step(): Promise<void> {
    this.before = { ...(this.b.local as object) } as Record<string, string>;
    await this.one();
    await quiet();
    if (this.wrong) this.fail(this.wrong);
    if (this.r() < 0.02) this.onDisk = { ...(this.b.local as object) } as Record<string, string>;
    // The other tabs hear of what changed.
    for (const key of new Set([...Object.keys(this.before), ...Object.keys(this.b.local)])) {
      if (this.before[key] === this.b.local.getItem(key)) continue;
      for (const t of this.tabs) if (!t.asleep && !key.endsWith("/" + t.page.desk.writer)) await t.page.happens("storage", { key });
      const owner = this.tabs.find((t) => !t.asleep && t.session.slotKey === key);
      if (owner && this.b.local.getItem(key) === null && owner.session.state().unsaved) await owner.page.happens("storage", { key });
    }
    await quiet();
  }

  /** Everything works again, and everybody resolves what they are asked. Then every edit is somewhere. */
  async end(): Promise<void> {
    Store.full = false;
    this.b.server.deleted = false;
    for (let i = 0; i < 80; i++) {
      for (const t of [...this.tabs]) {
        if (t.asleep) {
          t.asleep = false;
          await t.page.happens("pageshow", { persisted: true });
          if (t.page.reloads > 0) await this.kill(t);
        }
      }
      for (const w of this.wires.splice(0)) {
        const r = this.b.serve(w.method, w.path, w.body);
        this.trace.push(i + " end " + w.page.desk.writer + " " + w.method + " " + r.status + (r.body ?? "").slice(0, 150));
        w.done(r);
      }
      await quiet();
      if (this.wires.length === 0 && this.tabs.every((t) => /^(clean|closed)$/.test(t.session.state().phase))) break;
      for (const t of this.tabs) {
        await this.resolve(t);
        const { phase } = t.session.state();
        if (phase === "orphaned") t.session.restore();
        if (!/^(clean|closed|conflict|saving)$/.test(phase)) t.session.retry();
        if (phase === "dirty" || phase === "retrying") void t.session.flush();
        if (i % 5 === 0) await t.page.fireAll();
        await quiet();
      }
    }
    for (const t of this.tabs) if (!/^(clean|closed)$/.test(t.session.state().phase)) this.fail("it ends " + t.page.desk.writer + " " + t.session.state().phase + " " + JSON.stringify(t.session.state().problem) + this.wires.length);
    const all = this.everywhere();
    for (let n = 1; n <= this.edits; n++) if (!all.has("k" + n) && !this.gone.has("k" + n)) this.fail("edit k" + n + " is nowhere");
    for (const t of this.tabs) {
      for (const slot of await kept(t.page.desk)) if (slot.unreadable) this.fail("a slot cannot be read: " + slot.text);
    }
  }
}

/** Lives through this many steps, and returns how often what was seen. */
export async function tabs(seed: number, steps: number): Promise<Record<string, number>> {
  const seen: Record<string, number> = {};
  let lives = 0;
  for (let done = 0; done < steps; done += 200, lives++) {
    const life = new Life(random(seed + lives), seen);
    Store.full = false;
    try {
      for (let i = 0; i < 200; i++) await life.step();
      await life.end();
    } catch (e) {
      Store.full = false;
      throw new Error("seed " + (seed + lives) + ": " + (e as Error).message + " " + ((e as Error).stack ?? "").split("\n").slice(0, 6).join("\n"));
    }
  }
  return seen;
}
