// Random lives of tabs, a server, a network and a storage, against what must hold in every one of them.
import { isDirty, type Phase, type Timer } from "../state";
import { mergeRecords, record, type RecordContent } from "../kinds/record";
import type { Draft } from "../types";
import { Tab, World, noReply, json, type Wire } from "./world";

/** mulberry32: the same seed makes the same life. */
export function random(seed: number): () => number {
  let a = seed >>> 0;
  return () => {
    a = (a + 0x6d2b79f5) | 0;
    let t = Math.imul(a ^ (a >>> 15), 1 | a);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}

const editing: Phase[] = ["clean", "dirty", "saving", "retrying", "conflict", "auth_required", "blocked", "rejected", "reload_required", "orphaned"];

/** What is known of the life of one slot, from outside. */
interface Line {
  /** The highest edit that the server acknowledged, was found to have, or that the user gave up. */
  settled: number;
  expected: number;
}

class Life {
  world = new World(record, { attributes: {} } as RecordContent);
  tabs: Tab[] = [];
  lines = new Map<string, Line>();
  edits = 0;
  /** Edits that the user gave up. */
  gone = new Set<string>();
  writers = 0;
  trace: string[] = [];
  private alike = new WeakMap<object, object>();
  events = 0;
  seen: Record<string, number>;

  constructor(
    private r: () => number,
    seen: Record<string, number>,
  ) {
    this.seen = seen;
    this.tabs = [this.openNew(), this.openNew()];
  }

  fail(what: string): never {
    throw new Error(what + "\n" + this.trace.slice(-25).join("\n"));
  }
  check(v: unknown, what: () => string): void {
    if (!v) this.fail(what());
  }
  pick<T>(list: T[]): T | undefined {
    return list.length > 0 ? list[Math.floor(this.r() * list.length)] : undefined;
  }
  line(writer: string): Line {
    let l = this.lines.get(writer);
    if (!l) this.lines.set(writer, (l = { settled: 0, expected: 0 }));
    return l;
  }

  openNew(): Tab {
    return this.openAs("w" + ++this.writers);
  }
  openAs(writer: string): Tab {
    const t = this.world.tab(writer);
    this.watch(t);
    // A slot that could not be written any more, because the storage was full, has an older base.
    if (t.slot) this.line(writer).expected = Math.min(this.line(writer).expected, t.slot.base.version);
    t.open();
    return t;
  }

  // Looks at each transition of a tab.
  watch(t: Tab): void {
    const line = this.line(t.writer);
    t.onClear = (slot) => this.check(slot.seq <= line.settled || this.stored(slot), () => "slot of edit " + slot.seq + " deleted, settled is " + line.settled);
    const dispatch = t.dispatch.bind(t);
    t.dispatch = (e) => {
      this.events++;
      const before = t.state;
      const sent = e.type === "answer" && before.request?.id === e.id ? before.request.what : "";
      this.trace.push(t.writer + " " + before.phase + " " + e.type + (sent && " " + sent) + ("answer" in e ? " " + e.answer.is : "") + ("timer" in e ? " " + e.timer : ""));
      // What settles an edit, as seen from outside: told so for its save, or the user gave it up and the read came.
      if (sent === "save" && "answer" in e && e.answer.is === "ok" && (e.answer.data as any).saveId === before.inflight!.saveId) line.settled = Math.max(line.settled, before.inflight!.seq);
      if (sent === "discard" && "answer" in e && e.answer.is === "ok" && before.request!.generation === before.generation) this.giveUp(t, (e.answer.data as any).content ?? t.state.local);
      if (e.type === "forget" && ["orphaned", "conflict", "rejected", "blocked"].includes(before.phase)) this.giveUp(t, { attributes: {} });
      dispatch(e);
      this.seen[before.phase + " → " + t.state.phase] = (this.seen[before.phase + " → " + t.state.phase] ?? 0) + 1;
      this.hold(t, before.phase, e.type);
    };
  }

  giveUp(t: Tab, stored: RecordContent): void {
    this.line(t.writer).settled = t.state.seq;
    for (const id of Object.keys(t.state.local.attributes)) if (!(id in stored.attributes)) this.gone.add(id);
  }
  stored(d: Draft<RecordContent>): boolean {
    return Object.keys(d.content.attributes).every((id) => id in this.world.server.content.attributes || this.gone.has(id));
  }

  // The invariants of one tab.
  hold(t: Tab, before: Phase, event: string): void {
    const s = t.state;
    const line = this.line(t.writer);
    const own = this.world.sent.filter((w) => w.tab === t);
    this.check(own.length <= 1, () => own.length + " requests in flight");
    this.check(own.length === (s.request ? 1 : 0), () => "the session and the network differ about what is in flight");
    if (isDirty(s) && editing.includes(s.phase)) {
      const slot = t.slot;
      this.check(s.armed || s.keeping !== "kept" || (slot && slot.seq === s.seq && slot.content === s.local),
        () => "unsaved edit " + s.seq + " without a slot: it has " + slot?.seq);
      this.check(!s.armed || t.timers.has("draft"), () => "no timer for the draft");
      this.check(s.phase !== "dirty" || t.timers.has("debounce") || s.request, () => "dirty, and nothing will save it");
      this.check(s.phase !== "retrying" || t.timers.has("retry") || s.request, () => "retrying, and nothing will send it");
      this.check(s.phase !== "saving" || s.request?.what === "save", () => "saving without a request");
    }
    for (const e of t.effects) {
      if (e.do !== "put") continue;
      const head = /^\{"expectedVersion":(\d+),"expectedRev":"([^"]*)"/.exec(e.body!)!;
      const p = { expectedVersion: Number(head[1]), expectedRev: head[2] };
      this.check(s.phase === "saving", () => "a save left in " + s.phase);
      this.check(before !== "conflict" || event === "resolved" || event === "answer", () => "a save left a conflict by " + event);
      this.check(p.expectedVersion >= line.expected, () => "the base went back from " + line.expected + " to " + p.expectedVersion);
      line.expected = p.expectedVersion;
      const b = this.world.server.history.get(p.expectedVersion + " " + p.expectedRev);
      this.check(b, () => "a save on a version that never was");
    }
    if (s.phase === "clean") {
      this.check(!isDirty(s) && !s.inflight, () => "clean, with something unsaved");
      const h = this.world.server.history.get(s.base!.version + " " + s.base!.rev);
      this.check(this.alike.get(s.local) === h || JSON.stringify(h) === JSON.stringify(s.local), () => "saved is said of something that is not stored");
      this.alike.set(s.local, h);
      this.check(!t.slot || t.slot.seq > s.seq, () => "a clean session has a slot");
    }
  }

  edit(t: Tab): void {
    if (!editing.includes(t.state.phase)) return;
    const id = "k" + ++this.edits;
    t.edit({ attributes: { ...t.state.local.attributes, [id]: 1 } });
  }

  answer(w: Wire): void {
    const r = this.r();
    if (r < 0.1) return this.world.answer(w, noReply); // never arrived
    if (r < 0.14) return this.world.answer(w, json(this.pick([500, 503, 429, 408, 403, 401, 413, 200, 422, 422])!, this.pick([{}, { data: { file: {} } }, { error: { code: "schema_outdated" } }])));
    const reply = this.world.serve(w);
    if (w.effect.do === "put" && r < 0.2) this.world.serve(w); // the browser sent it twice
    if (r < 0.35) return this.world.answer(w, noReply); // done, and the answer was lost
    this.world.answer(w, reply);
  }

  // A person resolves a conflict: a merge keeps everything of both sides.
  resolve(t: Tab): void {
    const { theirs, base, local } = t.state;
    if (t.state.phase !== "conflict" || theirs?.content === undefined) return;
    const merged = mergeRecords(base?.content ?? { attributes: {} }, local, theirs.content).content;
    if (this.r() < 0.3) this.edit(t);
    const late = t.state.local.attributes;
    t.dispatch({ type: "resolved", content: { attributes: { ...merged.attributes, ...late } }, theirs });
  }

  one(): void {
    const r = this.r();
    const t = this.pick(this.tabs)!;
    const w = this.world;
    if (r < 0.3) this.edit(t);
    else if (r < 0.55) {
      const wire = this.pick(w.sent);
      if (wire) {
        w.sent.splice(w.sent.indexOf(wire), 1);
        this.answer(wire);
      }
    } else if (r < 0.75) {
      const timer = this.pick([...t.timers] as Timer[]);
      if (timer) t.fire(timer);
    } else if (r < 0.8) this.resolve(t);
    else if (r < 0.83) {
      const ghost = this.pick(w.ghosts);
      if (ghost) {
        w.ghosts.splice(w.ghosts.indexOf(ghost), 1);
        if (this.r() < 0.5) w.serve(ghost);
      }
    } else if (r < 0.9) t.dispatch({ type: this.pick(["flush", "again", "online", "visible", "hide", "resume", "slotLost"] as const)! });
    else if (r < 0.91) t.dispatch({ type: "discard" });
    else if (r < 0.925) this.kill(t);
    else if (r < 0.94) this.adopt(t);
    else if (r < 0.95) t.dispatch({ type: "changed", version: w.server.version });
    else if (r < 0.955) w.full = !w.full;
    else if (r < 0.96) w.server.deleted = this.r() < 0.3;
    else if (r < 0.965) t.dispatch({ type: this.r() < 0.7 ? "restore" : "forget" });
    else if (r < 0.975) {
      // Another user, or a tool.
      const id = "k" + ++this.edits;
      w.server.commit("tool-" + id, { attributes: { ...w.server.content.attributes, [id]: 1 } });
    } else t.dispatch({ type: "answer", id: t.state.requests - 1 - Math.floor(this.r() * 3), answer: { is: "ok", data: {} } });
  }

  // The renderer is gone, in the middle of whatever it did. What was not yet in its slot is lost with it: that is the
  // promise of the timer. The tab is loaded again, or another one is opened instead.
  kill(t: Tab): void {
    this.trace.push(t.writer + " killed");
    const kept = t.slot?.content.attributes ?? {};
    if (t.state.local) {
      for (const id of Object.keys(t.state.local.attributes)) if (!(id in kept) && !(id in this.world.server.content.attributes)) this.gone.add(id);
    }
    t.kill();
    this.world.ghosts.push(...this.world.sent.filter((x) => x.tab === t && x.effect.do === "put"));
    this.world.sent = this.world.sent.filter((x) => x.tab !== t);
    this.tabs[this.tabs.indexOf(t)] = this.r() < 0.7 ? this.openAs(t.writer) : this.openNew();
  }

  adopt(t: Tab): void {
    if (t.state.phase !== "clean" || this.world.full) return;
    const live = new Set(this.tabs.map((x) => x.writer));
    const writer = this.pick([...this.world.storage.keys()].filter((x) => !live.has(x)));
    if (!writer) return;
    const draft = this.world.storage.get(writer)!;
    this.line(t.writer).expected = 0; // its own base may be an older one
    t.dispatch({ type: "adopt", draft });
    this.check(t.slot?.adoptedFrom === writer, () => "adopted without a slot of its own");
    this.world.storage.delete(writer);
  }

  /** Everything works again, and everybody resolves what they are asked. Then every edit is somewhere. */
  end(): void {
    const w = this.world;
    w.full = false;
    w.server.deleted = false;
    for (let i = 0; i < 60; i++) {
      w.settle();
      if (this.tabs.every((t) => (t.state.phase === "clean" || t.state.phase === "closed") && !t.state.request)) break;
      for (const t of this.tabs) {
        for (const timer of [...t.timers]) if (t.timers.has(timer)) t.fire(timer);
        w.settle();
        if (t.state.phase === "conflict") this.resolve(t);
        if (t.state.phase === "orphaned") t.dispatch({ type: "restore" });
        if (t.state.phase === "unavailable" || !["clean", "conflict", "dirty", "saving", "closed"].includes(t.state.phase)) t.dispatch({ type: "again" });
      }
    }
    w.settle();
    for (const t of this.tabs) this.check(t.state.phase === "clean" || t.state.phase === "closed", () => "it ends " + t.state.phase);
    const everywhere = { ...w.server.content.attributes };
    for (const draft of w.storage.values()) Object.assign(everywhere, draft.content.attributes);
    for (let i = 1; i <= this.edits; i++) this.check(("k" + i) in everywhere || this.gone.has("k" + i), () => "edit k" + i + " is nowhere");
  }
}

/** Lives through this many events, and returns how often each transition was seen. */
export function live(seed: number, events: number): Record<string, number> {
  const seen: Record<string, number> = {};
  let done = 0;
  for (let n = 0; done < events; n++) {
    const life = new Life(random(seed + n), seen);
    try {
      for (let i = 0; i < 300; i++) life.one();
      life.end();
    } catch (e) {
      throw new Error("seed " + (seed + n) + ": " + (e as Error).message + " " + ((e as Error).stack ?? "").split("\n").slice(0, 6).join("\n"));
    }
    done += life.events;
  }
  return seen;
}
