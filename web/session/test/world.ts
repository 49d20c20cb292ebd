// A server, a network that loses and repeats, a storage that gets full, and tabs: all in one thread, so that a test says
// what happens when.
import { step } from "../core";
import { judge, type Reply } from "../judge";
import { initial, isDirty, type Effect, type Event, type State, type Timer } from "../state";
import type { Draft, Kind } from "../types";

export const json = (status: number, body: unknown): Reply => ({ status, type: "application/json; charset=utf-8", body: JSON.stringify(body) });
const fault = (status: number, code: string, more: object = {}): Reply => json(status, { error: { code, message: code, ...more } });

export interface Put {
  expectedVersion: number;
  expectedRev: string;
  saveId: string;
  writerId: string;
  schemaVersion: number;
  content: any;
}

export class Server {
  id = "fil_0123456789ab";
  version = 1;
  rev = "created";
  deleted = false;
  user = "ada";
  ledger = new Map<string, { version: number; request: string }>();
  history = new Map<string, any>();
  puts: Put[] = [];
  constructor(
    public type: string,
    public content: any,
  ) {
    this.history.set("1 created", content);
  }
  file() {
    return { id: this.id, type: this.type, name: "Notes", version: this.version, rev: this.rev, writerId: null, updatedAt: "2026-01-01T00:00:00Z" };
  }
  get(): Reply {
    if (this.deleted) return fault(410, "file_deleted");
    return json(200, { data: { ...this.file(), content: this.content, limits: { maxContentBytes: 1 } } });
  }
  probe(saveId: string): Reply {
    const row = this.ledger.get(saveId);
    return row ? json(200, { data: { version: row.version, currentVersion: this.version } }) : fault(404, "unknown_save");
  }
  put(body: string): Reply {
    const p = JSON.parse(body) as Put;
    this.puts.push(p);
    if (this.deleted) return fault(410, "file_deleted");
    const row = this.ledger.get(p.saveId);
    if (row) {
      if (row.request !== body) return fault(422, "save_id_reused");
      return json(200, { data: { file: { ...this.file(), version: row.version, rev: p.saveId }, saveId: p.saveId, replayed: true, currentVersion: this.version } });
    }
    if (p.expectedVersion !== this.version || p.expectedRev !== this.rev) {
      return fault(409, "version_conflict", { current: { version: this.version, rev: this.rev, saveId: this.rev, writerId: "other", updatedAt: "" } });
    }
    this.commit(p.saveId, p.content);
    this.ledger.set(p.saveId, { version: this.version, request: body });
    return json(200, { data: { file: this.file(), saveId: p.saveId, replayed: false, currentVersion: this.version } });
  }
  /** Somebody else saves. */
  commit(saveId: string, content: any): void {
    this.version++;
    this.rev = saveId;
    this.content = content;
    this.history.set(this.version + " " + saveId, content);
    this.ledger.set(saveId, { version: this.version, request: "" });
  }
}

export interface Wire {
  tab: Tab;
  id: number;
  effect: Effect<any>;
}

export class World {
  server: Server;
  /** Slots by writer. */
  storage = new Map<string, Draft<any>>();
  full = false;
  sent: Wire[] = [];
  /** Saves that nobody waits for any more, and that may arrive all the same. */
  ghosts: Wire[] = [];
  tabs: Tab[] = [];
  opened = 0;
  constructor(
    public kind: Kind<any>,
    content: any,
  ) {
    this.server = new Server(kind.type, content);
  }
  tab(writer: string): Tab {
    const t = new Tab(this, writer);
    this.tabs.push(t);
    return t;
  }
  /** Opens a tab and reads the file. */
  open(writer: string): Tab {
    const t = this.tab(writer);
    t.open();
    this.settle();
    return t;
  }
  /** What the server says to a request, without anybody hearing it. */
  serve(w: Wire): Reply {
    const e = w.effect;
    switch (e.do) {
      case "put":
        return this.server.put(e.body!);
      case "probe":
        return this.server.probe(e.saveId!);
      case "restore":
        this.server.deleted = false;
        return this.server.get();
      default:
        return this.server.get();
    }
  }
  take(): Wire {
    const w = this.sent.shift();
    if (!w) throw new Error("nothing was sent");
    return w;
  }
  answer(w: Wire, reply: Reply): void {
    if (w.tab.alive) w.tab.dispatch({ type: "answer", id: w.id, answer: judge(reply) });
  }
  /** Lets all requests through, until nothing is under way. */
  settle(): void {
    while (this.sent.length > 0) {
      const w = this.take();
      this.answer(w, this.serve(w));
    }
  }
}

export const noReply: Reply = { status: 0 };

export class Tab {
  state: State<any> = initial();
  timers = new Set<Timer>();
  alive = true;
  announced: number[] = [];
  effects: Effect<any>[] = [];
  private queue: Event<any>[] = [];
  /** Called before a slot is deleted. */
  onClear?: (draft: Draft<any>) => void;
  constructor(
    public world: World,
    public writer: string,
  ) {}
  get cx() {
    return { kind: this.world.kind, user: "ada", file: this.world.server.id, writer: this.writer };
  }
  get slot(): Draft<any> | null {
    return this.world.storage.get(this.writer) ?? null;
  }
  open(): void {
    this.dispatch({ type: "open", draft: this.slot, nonce: "n" + ++this.world.opened, keeping: "kept" });
  }
  edit(content: any): void {
    this.dispatch({ type: "edit", content });
  }
  fire(timer: Timer): void {
    if (!this.timers.delete(timer)) throw new Error("timer " + timer + " is not set; set are " + [...this.timers]);
    this.dispatch({ type: "timer", timer });
  }
  /** The renderer is gone; what was sent is still on its way. */
  kill(): void {
    this.alive = false;
  }
  /** The same tab, loaded again. */
  reload(): Tab {
    this.kill();
    return this.world.open(this.writer);
  }
  dispatch(e: Event<any>): void {
    const before = this.state;
    const [next, effects] = step(before, e, this.cx);
    this.state = next;
    this.effects = effects;
    for (const effect of effects) this.run(effect);
    while (this.queue.length > 0) this.dispatch(this.queue.shift()!);
    this.effects = effects;
  }
  private run(e: Effect<any>): void {
    const { world } = this;
    switch (e.do) {
      case "read":
      case "probe":
      case "put":
      case "restore":
        world.sent.push({ tab: this, id: e.id, effect: e });
        return;
      case "abort":
        world.ghosts.push(...world.sent.filter((w) => w.tab === this && w.id === e.id && w.effect.do === "put"));
        world.sent = world.sent.filter((w) => w.tab !== this || w.id !== e.id);
        return;
      case "set":
        this.timers.add(e.timer);
        return;
      case "stop":
        this.timers.clear();
        return;
      case "write":
        if (world.full) this.queue.push({ type: "drafted", outcome: "behind" });
        else {
          world.storage.set(this.writer, { ...e.draft, savedAt: "" });
          if (this.state.keeping !== "kept") this.queue.push({ type: "drafted", outcome: "kept" });
        }
        return;
      case "clear": {
        const slot = this.slot;
        if (slot && slot.seq <= e.seq) {
          this.onClear?.(slot);
          world.storage.delete(this.writer);
        }
        return;
      }
      case "announce":
        this.announced.push(e.version);
    }
  }
  get dirty(): boolean {
    return isDirty(this.state);
  }
}
