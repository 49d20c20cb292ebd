import { editable, step } from "./core";
import { textOf } from "./content";
import type { Desk } from "./desk";
import type { Slot } from "./drafts";
import type { Context } from "./input";
import { backoff } from "./judge";
import { initial, isDirty, type Effect, type Event, type Keeping, type Phase, type State, type Timer } from "./state";
import type { Draft, Kind, Merge, Problem, Version } from "./types";

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

/** In milliseconds. */
export const delays: Record<Exclude<Timer, "retry">, number> = { debounce: 1500, ceiling: 10_000, draft: 100 };

const requests = { read: ["GET"], probe: ["GET", "/saves/"], put: ["PUT"], restore: ["POST", "/restore"] };

/** Whoever resolves a merge: takes what it made, or makes something else of it. */
export type Resolve<C> = (merge: Merge<C>, sides: { base: C; mine: C; theirs: C }) => C | Promise<C>;

/**
 * One document, in one tab. It belongs to the document and not to a view: Desk.open hands the same one to each of them.
 * Nothing that it promises depends on anybody looking at it.
 */
export interface Session<C> {
  readonly desk: Desk;
  readonly id: string;
  readonly kind: Kind<C>;

  state(): View<C>;

  /** Calls f after each change, and returns how to stop that. */
  subscribe(f: (view: View<C>) => void): () => void;

  /** Takes over the content that a person made. False: nothing is edited in this state. */
  edit(content: C | ((now: C) => C)): boolean;

  /** Saves now. True once everything is saved; false when something is in the way, such as a conflict or no network. */
  flush(): Promise<boolean>;

  /** Tries again what stopped, because the user says so. */
  retry(): void;

  /**
   * Resolves a conflict by merging: the result is saved against the stored version. False: there is nothing to resolve,
   * or the base or the stored content is not known. It throws for a kind that does not merge.
   */
  rebase(resolve?: Resolve<C>): Promise<boolean>;

  /** Resolves a conflict by saving what is here as the next version. False: there is none, or it is not known what is stored. */
  keepMine(): boolean;

  /** Reads what is stored, and takes it instead of what is here, if and only if the read succeeded and nothing was edited meanwhile. */
  discardAndReload(): Promise<boolean>;

  /** Brings a deleted file back, with the work that is here. */
  restore(): void;

  /** Gives up the work of a file that is gone. */
  forget(): void;

  /** A view is gone. The session saves what it has, and stays until that is done. */
  close(): void;

  /** For Desk: another view is there. It settles once the file is asked for. */
  open(): Promise<Session<C>>;
  /** For Desk: the page comes back. While it slept another one may have had its name, and have left work in its slot. */
  resume(): Promise<void>;
  /** For Desk: the events that concern all sessions, and what others tell. */
  dispatch(e: Event<C>): void;
  /** For Desk, and for the modules beside it: where the draft is. */
  readonly slotKey: string;
  /** For the modules beside it: where the file is. */
  path(then?: string, of?: string): string;
}

export function sessionOf<C>(desk: Desk, id: string, kind: Kind<C>): Session<C> {
  const { env, http, drafts } = desk;
  const { window } = env;
  const listeners = new Set<(view: View<C>) => void>();
  const timers = new Map<Timer, number>();
  const queue: Event<C>[] = [];
  let s: State<C> = initial();
  let cx: Context<C> = { kind, user: desk.user, file: id, writer: desk.writer };
  let shown: View<C> | undefined;
  let busy = false;
  let pace = 1;
  let views = 0;
  let abort: AbortController | undefined;

  // Finds the own slot. What is not this session's stays where it is, and this one's work goes beside it.
  const find = async (foreign: (slot: Slot) => boolean): Promise<Slot | undefined> => {
    const slots = await drafts.all(id);
    for (let n = 1; ; n++) {
      const own = slots.find((slot) => slot.key === session.slotKey);
      if (!own || !foreign(own)) return own;
      cx = { ...cx, writer: desk.writer + "_" + n };
    }
  };

  // Reads the own slot, then the file.
  const start = async (): Promise<Session<C>> => {
    const own = await find((slot) => slot.draft?.type !== kind.type);
    dispatch({ type: "open", draft: (own?.draft as Draft<C>) ?? null, nonce: env.id(), keeping: env.local ? "kept" : "unavailable" });
    return session;
  };

  const state = (): View<C> => {
    const { phase, local: content, file, problem, theirs, newer, keeping, base } = s;
    return (shown ??= {
      phase, content, unsaved: isDirty(s), name: file?.name ?? "", version: base?.version ?? 0, keeping, problem, theirs, newer,
      editable: editable(phase),
      canRebase: phase === "conflict" && !!kind.merge && base?.content !== undefined && theirs?.content !== undefined,
    });
  };

  const subscribe = (f: (view: View<C>) => void) => {
    listeners.add(f);
    return () => listeners.delete(f);
  };

  // Settles with what f says of the state, as soon as it says something.
  const when = (f: () => boolean | undefined): Promise<boolean> =>
    new Promise((done) => {
      const look = (): void => {
        const said = f();
        if (said === undefined) return;
        stop();
        done(said);
      };
      const stop = subscribe(look);
      look();
    });

  const does = (type: "flush" | "again" | "discard" | "restore" | "forget") => dispatch({ type });

  const flush = (): Promise<boolean> => {
    does("flush");
    return when(() => {
      if (s.phase === "dirty") does("flush");
      return /^(saving|loading|dirty)$/.test(s.phase) ? undefined : /^(clean|closed)$/.test(s.phase);
    });
  };

  const resolved = (content: C, theirs: Version): boolean => {
    const before = s;
    dispatch({ type: "resolved", content, theirs });
    return before.phase === "conflict" && s.phase === "saving";
  };

  const stop = (): void => {
    timers.forEach((id) => window.clearTimeout(id));
    timers.clear();
  };

  // Without views and without work it is let go, and asks for nothing more.
  const leave = (): void => {
    if (views > 0 || isDirty(s) || /^(saving|loading)$/.test(s.phase)) return;
    stop();
    if (desk.known.get(id) === session) desk.known.delete(id);
  };

  const dispatch = (e: Event<C>): void => {
    queue.push(e);
    if (busy) return;
    busy = true;
    const before = s;
    try {
      for (let next = queue.shift(); next; next = queue.shift()) {
        const [after, effects] = step(s, next, cx);
        s = after;
        effects.forEach(run);
      }
    } finally {
      busy = false;
    }
    if (s === before) return;
    shown = undefined;
    for (const f of [...listeners]) {
      try {
        f(state());
      } catch (e) {
        void Promise.reject(e); // a view that fails is told of, and stops nobody else
      }
    }
    leave();
  };

  const path = (then = "", of = ""): string => "files/" + encodeURIComponent(id) + then + encodeURIComponent(of);

  const run = (e: Effect<C>): void => {
    switch (e.do) {
      case "abort":
        return abort?.abort();
      case "set":
        return set(e.timer, e.timer === "retry" ? e.after! * 1000 + backoff(e.failures!, env.random()) : delays[e.timer] * (e.timer === "draft" ? pace : 1));
      case "stop":
        return stop();
      case "write": {
        const outcome = drafts.write(e.draft);
        // A large document's slot is written less often: typing goes before.
        pace = Math.max(1, textOf(e.draft.content).length / 100_000);
        if (outcome !== s.keeping) queue.push({ type: "drafted", outcome });
        return;
      }
      case "clear":
        return drafts.clear(session.slotKey, e.seq);
      case "announce":
        return desk.announce(id, e.version);
      default: {
        const [method, then] = requests[e.do];
        abort = new AbortController();
        void http.send(method, path(then, e.saveId), e.body, e.leaving, abort).then((answer) => dispatch({ type: "answer", id: e.id, answer }));
      }
    }
  };

  const set = (timer: Timer, ms: number): void => {
    const before = timers.get(timer);
    if (before !== undefined && timer === "ceiling") return;
    window.clearTimeout(before);
    timers.set(
      timer,
      window.setTimeout(() => {
        timers.delete(timer);
        dispatch({ type: "timer", timer });
      }, ms),
    );
  };

  const session: Session<C> = {
    desk, id, kind, state, subscribe, flush, dispatch, path,

    edit(content) {
      if (!editable(s.phase)) return false;
      dispatch({ type: "edit", content: typeof content === "function" ? (content as (now: C) => C)(s.local as C) : content });
      return true;
    },

    async rebase(resolve = (m) => m.content) {
      const { merge } = kind;
      if (!merge) throw new Error(kind.type + " does not merge");
      const { base, theirs, local } = s;
      if (!state().canRebase) return false;
      const sides = { base: base!.content as C, mine: local as C, theirs: theirs!.content as C };
      let content = (await resolve(merge(sides.base, sides.mine, sides.theirs), sides)) as C;
      // What was edited meanwhile is kept too.
      if (s.local !== local) content = merge(local as C, s.local as C, content).content;
      return resolved(content, theirs!);
    },

    keepMine: () => s.theirs?.content !== undefined && resolved(s.local as C, s.theirs),

    discardAndReload() {
      does("discard");
      const { seq } = s;
      return when(() => (s.wantDiscard || s.request?.what === "discard" ? undefined : s.phase === "clean" && s.seq === seq));
    },

    retry: () => does("again"),
    restore: () => does("restore"),
    forget: () => does("forget"),

    close() {
      if (--views > 0) return;
      void flush();
      leave();
    },

    open() {
      views++;
      return started;
    },
    async resume() {
      await find(drafts.foreign);
      dispatch({ type: "resume" });
    },
    get slotKey() {
      return drafts.key(id, cx.writer);
    },
  };
  const started = start();
  return session;
}
