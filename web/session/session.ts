import { editable, step } from "./core";
import { textOf } from "./content";
import type { Desk } from "./desk";
import type { Slot } from "./drafts";
import { same, type Context } from "./input";
import { backoff } from "./judge";
import { initial, isDirty, type Effect, type Event, type Keeping, type Phase, type State, type Timer } from "./state";
import type { Draft, Kind, Merge, Problem } from "./types";
import { hold, live } from "./writer";

/** What a view shows. It is another object after each change, and its content is never changed in place. */
export interface View<C> {
  phase: Phase;
  /** Undefined until it was read. */
  content: C | undefined;
  /** Whether edits are taken. */
  editable: boolean;
  /** There is work that the server does not have. */
  unsaved: boolean;
  name: string;
  version: number;
  /** Whether unsaved work would outlive this tab: behind says that the storage is full, unavailable that there is none. */
  keeping: Keeping;
  problem: Problem | null;
  /** In conflict: what is stored; content once it was read. */
  theirs: State<C>["theirs"];
  /** Somebody saved this version meanwhile. The next save will meet it. */
  newer: number | null;
  canRebase: boolean;
}

/** Unsaved work of another tab, or of one that is gone. */
export interface Sibling<C> extends Slot {
  /** Its tab lives. Then it is not to be touched. Undefined where there are no locks to ask. */
  open: boolean | undefined;
  draft?: Draft<C>;
}

/** In milliseconds. */
export const delays: Record<Exclude<Timer, "retry">, number> = { debounce: 1500, ceiling: 10_000, draft: 100 };

/** Whoever resolves a merge: takes what it made, or makes something else of it. */
export type Resolve<C> = (merge: Merge<C>, sides: { base: C; mine: C; theirs: C }) => C | Promise<C>;

/**
 * One document, in one tab. It belongs to the document and not to a view: Desk.open hands the same one to each of them.
 * Nothing that it promises depends on anybody looking at it.
 */
export class Session<C> {
  private s: State<C> = initial();
  private shown: View<C> | undefined;
  private listeners = new Set<(view: View<C>) => void>();
  private timers = new Map<Timer, number>();
  private queue: Event<C>[] = [];
  private busy = false;
  private pace = 1;
  private cx: Context<C>;
  views = 0;
  /** For Desk: settles once the file is asked for. */
  readonly started: Promise<this>;

  constructor(
    /** For the modules beside it. */
    readonly desk: Desk,
    readonly id: string,
    readonly kind: Kind<C>,
  ) {
    this.cx = { kind, user: desk.user, file: id, writer: desk.writer };
    this.started = this.start();
  }

  // Reads the own slot, then the file.
  private async start(): Promise<this> {
    let slot = await this.desk.drafts.read(this.id, this.cx.writer);
    // What cannot be read here stays where it is; this tab's work goes beside it.
    for (let n = 1; slot?.unreadable; n++) {
      this.cx = { ...this.cx, writer: this.desk.writer + "_" + n };
      slot = await this.desk.drafts.read(this.id, this.cx.writer);
    }
    const draft = slot?.draft?.type === this.kind.type ? (slot.draft as Draft<C>) : null;
    this.dispatch({ type: "open", draft, nonce: this.desk.env.id(), keeping: this.desk.env.local ? "kept" : "unavailable" });
    return this;
  }

  state(): View<C> {
    return (this.shown ??= this.look());
  }

  /** Calls f after each change, and returns how to stop that. */
  subscribe(f: (view: View<C>) => void): () => void {
    this.listeners.add(f);
    return () => this.listeners.delete(f);
  }

  /** Takes over the content that a person made. False: nothing is edited in this state. */
  edit(content: C | ((now: C) => C)): boolean {
    if (!this.state().editable) return false;
    this.dispatch({ type: "edit", content: typeof content === "function" ? (content as (now: C) => C)(this.s.local as C) : content });
    return true;
  }

  /** Saves now. True once everything is saved; false when something is in the way, such as a conflict or no network. */
  flush(): Promise<boolean> {
    this.dispatch({ type: "flush" });
    return this.when(({ phase }) => {
      if (phase === "dirty") this.dispatch({ type: "flush" });
      return /^(saving|loading|dirty)$/.test(phase) ? undefined : /^(clean|closed)$/.test(phase);
    });
  }

  // Settles with what f says of a state, as soon as it says something.
  private when(f: (s: State<C>) => boolean | undefined): Promise<boolean> {
    return new Promise((done) => {
      const look = (): void => {
        const said = f(this.s);
        if (said === undefined) return;
        stop();
        done(said);
      };
      const stop = this.subscribe(look);
      look();
    });
  }

  /** Tries again what stopped, because the user says so. */
  retry(): void {
    this.dispatch({ type: "again" });
  }

  /**
   * Resolves a conflict by merging: the result is saved against the stored version. False: there is nothing to resolve,
   * or the base or the stored content is not known. It throws for a kind that does not merge.
   */
  async rebase(resolve: Resolve<C> = (m) => m.content): Promise<boolean> {
    const { merge } = this.kind;
    if (!merge) throw new Error(this.kind.type + " does not merge");
    const { base, theirs, local } = this.s;
    if (this.s.phase !== "conflict" || base?.content === undefined || theirs?.content === undefined) return false;
    const sides = { base: base.content, mine: local as C, theirs: theirs.content };
    let content = (await resolve(merge(sides.base, sides.mine, sides.theirs), sides)) as C;
    // What was edited meanwhile is kept too.
    if (this.s.local !== local) content = merge(local as C, this.s.local as C, content).content;
    return this.resolved(content, theirs);
  }

  /** Resolves a conflict by saving what is here as the next version. False: there is none, or it is not known what is stored. */
  keepMine(): boolean {
    const { theirs } = this.s;
    return theirs?.content !== undefined && this.resolved(this.s.local as C, theirs);
  }

  private resolved(content: C, theirs: { version: number; rev: string }): boolean {
    const before = this.s;
    this.dispatch({ type: "resolved", content, theirs });
    return before.phase === "conflict" && this.s.phase === "saving";
  }

  /** Reads what is stored, and takes it instead of what is here, if and only if the read succeeded and nothing was edited meanwhile. */
  discardAndReload(): Promise<boolean> {
    this.dispatch({ type: "discard" });
    const { seq } = this.s;
    return this.when((s) => (s.wantDiscard || s.request?.what === "discard" ? undefined : s.phase === "clean" && s.seq === seq));
  }

  /** Brings a deleted file back, with the work that is here. */
  restore(): void {
    this.dispatch({ type: "restore" });
  }

  /** Gives up the work of a file that is gone. */
  forget(): void {
    this.dispatch({ type: "forget" });
  }

  /** Unsaved work of this file in other slots. What was saved after all is cleared away first. */
  async siblings(): Promise<Sibling<C>[]> {
    const alive = await live(this.desk.env);
    const out: Sibling<C>[] = [];
    for (const slot of (await this.desk.drafts.all(this.id)) as Sibling<C>[]) {
      if (slot.writer === this.cx.writer) continue;
      const open = this.desk.env.locks ? alive(slot.writer) && !this.desk.own(slot.writer) : undefined;
      if (slot.draft && open === false && (await this.settled(slot.draft))) this.desk.drafts.drop(slot.key);
      else out.push({ ...slot, open });
    }
    return out;
  }

  // A draft whose tab is gone may say what is stored, what was adopted here, or what was saved before the answer was lost.
  private async settled(d: Draft<C>): Promise<boolean> {
    if (this.holds(d) || (this.s.phase === "clean" && same(this.cx, d.content, this.s.local))) return true;
    if (d.inflight?.seq !== d.seq) return false;
    return (await this.desk.http.send("settled/" + this.id, "GET", this.path("/saves/", d.inflight.saveId))).is === "ok";
  }

  // The own slot has what was adopted from another one. The hash is the quick way to see that it has not.
  private holds(d: Draft<C>): boolean {
    const own = this.slot(this.cx.writer);
    return own?.adoptedFrom === d.writer && own.hash === d.hash && textOf(own.content) === textOf(d.content);
  }
  private slot(writer: string): Draft<C> | undefined {
    return this.desk.drafts.now(this.id, writer)?.draft as Draft<C> | undefined;
  }

  /**
   * Takes over a sibling's work: it becomes unsaved work of this tab, on its own base, and its slot is deleted once this
   * one is there. It throws when there is unsaved work here, or when the sibling's tab lives.
   */
  async adopt(sibling: Sibling<C>): Promise<void> {
    await this.alone(sibling, (free) => {
      const draft = this.slot(sibling.writer) ?? sibling.draft;
      if (!draft) throw new Error("this draft cannot be read here");
      if (this.s.phase !== "clean") throw new Error("save or discard what is here first");
      this.dispatch({ type: "adopt", draft });
      if (free && this.holds(draft)) this.desk.drafts.drop(sibling.key);
    });
  }

  /** Deletes a sibling's work. It throws when its tab lives, or when nobody can know. */
  async discardSibling(sibling: Sibling<C>): Promise<void> {
    await this.alone(sibling, (free) => {
      if (!free) throw new Error("whether its tab is open cannot be known here");
      this.desk.drafts.drop(sibling.key);
    });
  }

  private async alone(sibling: Sibling<C>, what: (free: boolean) => void): Promise<void> {
    // Its slot beside this tab's own needs no lock: it is this tab's.
    const release = this.desk.own(sibling.writer) ? () => undefined : await hold(this.desk.env, sibling.writer);
    if (this.desk.env.locks && !release) throw new Error("it is open in another tab");
    try {
      what(release !== null);
    } finally {
      release?.();
    }
  }

  /** A view is gone. The session saves what it has, and stays until that is done. */
  close(): void {
    if (--this.views > 0) return;
    void this.flush();
    this.desk.left(this);
  }

  /** Nothing is open here that would be lost. */
  get idle(): boolean {
    return this.views <= 0 && !isDirty(this.s) && this.s.phase !== "saving";
  }
  get unkept(): boolean {
    return isDirty(this.s) && this.s.keeping !== "kept";
  }
  get slotKey(): string {
    return this.desk.drafts.key(this.id, this.cx.writer);
  }

  /** For Desk: the events that concern all sessions, and what others tell. */
  dispatch(e: Event<C>): void {
    this.queue.push(e);
    if (this.busy) return;
    this.busy = true;
    const before = this.s;
    try {
      for (let next = this.queue.shift(); next; next = this.queue.shift()) {
        const [s, effects] = step(this.s, next, this.cx);
        this.s = s;
        for (const effect of effects) this.run(effect);
      }
    } finally {
      this.busy = false;
    }
    if (this.s !== before) this.tell();
  }

  private tell(): void {
    this.shown = undefined;
    for (const f of [...this.listeners]) f(this.state());
    if (this.idle) this.desk.left(this);
  }

  private look(): View<C> {
    const { phase, local, file, problem, theirs, newer, keeping, base } = this.s;
    return {
      phase, content: local, unsaved: isDirty(this.s), name: file?.name ?? "", version: base?.version ?? 0, keeping, problem, theirs, newer,
      editable: editable(phase),
      canRebase: phase === "conflict" && !!this.kind.merge && base?.content !== undefined && theirs?.content !== undefined,
    };
  }

  /** For the modules beside it: where the file is. */
  path(then = "", id = ""): string {
    return "files/" + encodeURIComponent(this.id) + then + encodeURIComponent(id);
  }

  private ask(id: number, method: string, path: string, body?: string, leaving = false): void {
    void this.desk.http.send(this.id + "#" + id, method, path, body, leaving).then((answer) => this.dispatch({ type: "answer", id, answer }));
  }

  private run(e: Effect<C>): void {
    const { desk } = this;
    switch (e.do) {
      case "read":
        return this.ask(e.id, "GET", this.path());
      case "probe":
        return this.ask(e.id, "GET", this.path("/saves/", e.saveId));
      case "put":
        return this.ask(e.id, "PUT", this.path(), e.body, e.leaving);
      case "restore":
        return this.ask(e.id, "POST", this.path("/restore"));
      case "abort":
        return desk.http.abort(this.id + "#" + e.id);
      case "set":
        return this.set(e.timer, e.timer === "retry" ? (e.after ?? 0) + backoff(e.failures ?? 1, desk.env.random()) : delays[e.timer] * (e.timer === "draft" ? this.pace : 1));
      case "stop":
        desk.env.window.clearTimeout(this.timers.get(e.timer));
        this.timers.delete(e.timer);
        return;
      case "write": {
        const began = desk.env.clock();
        const outcome = desk.drafts.write(e.draft);
        // A large document's slot is written less often: typing goes before.
        this.pace = Math.min(20, Math.max(1, (desk.env.clock() - began) / 4));
        if (outcome !== this.s.keeping) this.queue.push({ type: "drafted", outcome });
        return;
      }
      case "clear":
        return desk.drafts.clear(this.id, this.cx.writer, e.seq);
      case "announce":
        return desk.announce(this.id, e.version);
    }
  }

  private set(timer: Timer, ms: number): void {
    if (timer === "ceiling" && this.timers.has(timer)) return;
    this.desk.env.window.clearTimeout(this.timers.get(timer));
    this.timers.set(
      timer,
      this.desk.env.window.setTimeout(() => {
        this.timers.delete(timer);
        this.dispatch({ type: "timer", timer });
      }, ms),
    );
  }
}
