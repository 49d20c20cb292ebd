import { hashOf, withContent } from "./content";
import type { Effect, Event, State, Timer, What } from "./state";
import { sent, type Context, type Facts } from "./input";
import type { Draft, FileInfo, Save, Sent, Version } from "./types";

/**
 * What the table does on its ways. n is the new state, which only the running transition has; out is what is to be done
 * outside; f is what was understood of the event.
 */
export type Action = <C>(n: State<C>, out: Effect<C>[], f: Facts<C>, cx: Context<C>, e: Event<C>) => void;

export const takeFile: Action = (n, out, f) => {
  takeBase(n, f);
  n.local = f.content;
  if (n.draft) n.seq = n.draft.seq;
  settleAll(n, out);
};

export const takeDraft: Action = (n, out, f, cx) => {
  const d = n.draft!;
  const { base, inflight } = d;
  n.draft = null;
  n.local = d.content;
  n.seq = Math.max(d.seq, 1);
  n.saved = n.seq - 1;
  n.mine = sent(d);
  n.adoptedFrom = d.adoptedFrom;
  n.generation++;
  n.base = base;
  // The very save that was under way is sent again, where the slot has no later edit and nobody saved since.
  const again = inflight?.seq === d.seq && inflight.expectedVersion === base.version;
  if (f.input === "fileGone") {
    n.file = { id: cx.file, type: cx.kind.type, name: d.name, ...at(base) };
    n.problem = problemOf(f);
    if (again) repeat(n, d, cx);
    return;
  }
  n.stale = true;
  n.file = f.file!;
  if (f.input === "draftConflicts") {
    if (f.committed) n.base = { version: f.committed, rev: inflight!.saveId };
    n.theirs = stored(n.file, f.content);
    return;
  }
  takeBase(n, f);
  if (again && n.file.rev === base.rev) repeat(n, d, cx);
  arm(out);
};

export const probe: Action = (n, out, f) => {
  takeBase(n, f);
  ask(n, out, "probe", { do: "probe", saveId: n.draft!.inflight!.saveId });
};

export const load: Action = (n, out) => {
  n.base = n.file = null;
  stop(out, "retry");
  ask(n, out, "first");
};

export const waitToLoad: Action = (n, out, f) => {
  n.problem = problemOf(f);
  // Asking again would not change these.
  if (!/^(ok|gone|forbidden)$/.test(f.answer!.is)) retry(n, out);
};

export const edit: Action = (n, out, _f, _cx, e) => {
  change(n, (e as { content: typeof n.local }).content);
  n.wantDiscard = false;
  if (n.phase === "dirty") arm(out);
};

/**
 * Sends what is under way already, as it was, or a new save of the latest edit. The version is read now, not when a timer
 * was set.
 */
export const send: Action = (n, out, _f, cx) => sendNow(n, out, cx, false);
/** The page goes: the request is to outlive it where it can. */
export const sendLeaving: Action = (n, out, _f, cx) => sendNow(n, out, cx, true);
export const sendFresh: Action = (n, out, f, cx, e) => {
  n.failures = 0;
  send(n, out, f, cx, e);
};
/** After the back/forward cache the answer may have gone to nobody: the same is asked again, then all is read again. */
export const resend: Action = (n, out, f, cx, e) => {
  n.wantRead = true;
  send(n, out, f, cx, e);
};

export const confirm: Action = (n, out, f) => {
  const { content, seq } = n.inflight!;
  const { version } = f.file!;
  takeBase(n, { ...f, content, file: { ...n.file!, ...f.file! } });
  n.inflight = n.problem = null;
  n.mine = [];
  n.failures = 0;
  n.generation++;
  out.push({ do: "announce", version });
  n.newer = f.current! > version ? f.current! : null;
  if (n.newer) n.wantRead = true;
  if (n.seq === seq) return settleAll(n, out);
  n.saved = seq;
  n.stale = true;
  arm(out);
};

export const backOff: Action = (n, out, { answer: a }) => retry(n, out, a?.is === "limited" ? a.after * 1000 : 0);

export const complain: Action = (n, _out, f) => {
  n.problem = problemOf(f);
};

/** The server will never take it. What is saved next is another save. */
export const drop: Action = (n, _out, f) => {
  n.problem = problemOf(f);
  n.inflight = null;
  n.stale = true;
};

export const meet: Action = (n, out, f) => {
  n.theirs = f.file!;
  n.inflight = n.newer = null;
  n.failures = 0;
  n.stale = true;
  ask(n, out, "theirs");
};

/** What is stored is a save of this very work, whose answer was lost: no conflict. */
export const rebaseOntoOwn: Action = (n, out, f, cx, e) => {
  n.base = at(f.file!, f.content);
  n.mine = n.mine.filter((id) => id !== n.base!.rev);
  n.inflight = n.theirs = null;
  n.generation++;
  send(n, out, f, cx, e);
};

export const keepTheirs: Action = (n, _out, f) => {
  n.failures = 0;
  n.theirs = stored(f.file!, f.content);
};
export const readTheirs: Action = (n, out) => {
  if (n.request?.what !== "theirs") ask(n, out, "theirs");
};
export const waitForTheirs: Action = (n, out) => retry(n, out);

export const resolve: Action = (n, out, f, cx, e) => {
  n.base = at(n.theirs!, n.theirs!.content);
  change(n, (e as { content: typeof n.local }).content);
  n.theirs = null;
  n.adoptedFrom = undefined;
  send(n, out, f, cx, e);
};

export const refresh: Action = (n, out) => {
  n.wantRead = true;
  if (n.phase === "dirty") arm(out);
};
export const hint: Action = (n, _out, f, _cx, e) => {
  n.newer = f.file?.version ?? (e as { version: number }).version;
};

export const wishToDiscard: Action = (n) => {
  n.wantDiscard = true;
};
export const goOn: Action = (n, out) => {
  if (n.phase === "dirty") arm(out);
  if (n.phase === "retrying" || n.phase === "conflict") retry(n, out);
};

export const adopt: Action = (n, out, _f, _cx, e) => {
  const d = (e as { draft: Draft<typeof n.local> }).draft;
  if (n.phase === "conflict") {
    n.theirs = stored({ ...n.file!, ...n.base! }, n.base!.content);
    n.base = d.base as typeof n.base;
  } else arm(out);
  change(n, d.content);
  n.mine = sent(d);
  n.adoptedFrom = d.writer;
};

export const restore: Action = (n, out) => ask(n, out, "restore", { do: "restore" });

/** Nothing is unsaved any more: stored, discarded, or given up. */
export const settleAll = <C>(n: State<C>, out: Effect<C>[]): void => {
  if (n.inflight) n.mine = [...n.mine, n.inflight.saveId];
  n.saved = n.seq;
  n.inflight = n.theirs = n.problem = n.draft = null;
  n.failures = 0;
  n.generation++;
  n.adoptedFrom = undefined;
  n.wantDiscard = n.stale = false;
  if (n.base && n.newer && n.base.version >= n.newer) n.newer = null;
  stop(out, "debounce", "ceiling", "retry");
  out.push({ do: "clear", seq: n.seq });
  if (n.keeping === "behind") n.keeping = "kept";
};

const at = <C>(v: Version, content?: C) => ({ version: v.version, rev: v.rev, ...(content !== undefined && { content }) });
const stored = <C>(file: FileInfo, content: C | undefined) => ({ ...at(file, content), name: file.name, writerId: file.writerId ?? null, updatedAt: file.updatedAt });

function takeBase<C>(n: State<C>, { file, content }: Facts<C>): void {
  n.file = file!;
  n.base = at(file!, content);
}

function change<C>(n: State<C>, content: C | undefined): void {
  n.local = content;
  n.seq++;
  n.generation++;
  n.stale = true;
}

type Asks<C> = Effect<C> extends infer E ? (E extends { id: number } ? Omit<E, "id"> : never) : never;

/** Asks the server, in place of what was asked before. */
export function ask<C>(n: State<C>, out: Effect<C>[], what: What, effect: Asks<C> = { do: "read" }): void {
  if (n.request) out.push({ do: "abort", id: n.request.id });
  const id = ++n.requests;
  n.request = { id, what, generation: n.generation };
  out.push({ ...effect, id } as Effect<C>);
}

function problemOf<C>({ answer: a }: Facts<C>) {
  if (a && "problem" in a) return a.problem;
  return a?.is === "lost" ? { code: "lost", message: a.why } : { code: "unreadable", message: "This document cannot be read here." };
}

// The timers of a save. The ceiling is not set anew while it runs, so that who types on and on is saved too.
function arm<C>(out: Effect<C>[]): void {
  out.push({ do: "set", timer: "debounce" }, { do: "set", timer: "ceiling" });
}
function stop<C>(out: Effect<C>[], ...timers: Timer[]): void {
  for (const timer of timers) out.push({ do: "stop", timer });
}
function retry<C>(n: State<C>, out: Effect<C>[], after = 0): void {
  out.push({ do: "set", timer: "retry", failures: ++n.failures, after });
}

function sendNow<C>(n: State<C>, out: Effect<C>[], cx: Context<C>, leaving: boolean): void {
  stop(out, "debounce", "ceiling", "retry");
  n.problem = null;
  if (!n.inflight) {
    const content = n.local as C;
    const base = n.base!;
    const saveId = n.nonce + "-" + ++n.saves;
    n.inflight = { saveId, seq: n.seq, content, expectedVersion: base.version, hash: hashOf(content), body: bodyOf(saveId, base, content, cx) };
    n.stale = true;
  }
  // The slot knows of a save before it leaves.
  if (n.stale) write(n, out, cx);
  ask(n, out, "save", { do: "put", body: n.inflight.body, leaving });
}

// Its bytes are made once more, from what the slot holds.
function repeat<C>(n: State<C>, { inflight, base, content, mine }: Draft<C>, cx: Context<C>): void {
  n.mine = mine;
  n.inflight = { ...inflight!, content, body: bodyOf(inflight!.saveId, base, content, cx) };
}

function bodyOf<C>(saveId: string, base: Version, content: C, cx: Context<C>): string {
  return withContent({ expectedVersion: base.version, expectedRev: base.rev, saveId, writerId: cx.writer, schemaVersion: cx.kind.schema }, content);
}

/** Writes the slot: all that is needed to go on from here after the tab was killed. */
export function write<C>(n: State<C>, out: Effect<C>[], { kind, user, file, writer }: Context<C>): void {
  const content = n.local as C;
  n.stale = false;
  out.push({
    do: "write",
    draft: {
      format: 1, schema: kind.schema, type: kind.type, user, file, writer, name: n.file?.name ?? "",
      base: at(n.base!, kind.merge && n.base!.content),
      seq: n.seq, mine: n.mine, hash: hashOf(content), inflight: n.inflight ? sentOf(n.inflight) : undefined, adoptedFrom: n.adoptedFrom, content,
    },
  });
}

// What a slot says of a save: its bytes can be made again from the content.
const sentOf = ({ body: _, content: __, ...sent }: Save<unknown>): Sent => sent;
