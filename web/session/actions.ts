import { hashOf, textOf } from "./content";
import { type Effect, type Event, type State, type What } from "./state";
import type { Context, Facts } from "./input";
import type { Draft, FileInfo, Save, Version } from "./types";

type Do = <C>(n: State<C>, e: Event<C>, f: Facts<C>, cx: Context<C>, out: Effect<C>[]) => void;

/** What the table does on its ways. n is the new state, which only the running transition has. */
export const actions = {
  takeFile(n, _e, f, _cx, out) {
    n.file = f.file!;
    n.base = at(f.file!, f.content);
    n.local = f.content;
    if (n.draft) n.seq = n.draft.seq;
    settleAll(n, out);
  },

  takeDraft(n, e, f, cx, out) {
    const d = n.draft!;
    n.draft = null;
    n.local = d.content;
    n.seq = Math.max(d.seq, 1);
    n.saved = n.seq - 1;
    n.slot.seq = d.seq;
    n.mine = d.mine;
    n.adoptedFrom = d.adoptedFrom;
    n.generation++;
    if (f.file) n.file = f.file;
    const unsent = d.inflight && d.inflight.seq === d.seq && d.inflight.expectedVersion === d.base.version;
    switch (f.input) {
      case "draftFits":
        n.base = at(f.file!, f.content);
        if (d.inflight && f.file!.rev !== d.inflight.saveId) {
          if (unsent && f.file!.rev === d.base.rev) n.inflight = { ...d.inflight, content: d.content, body: bodyOf(d.inflight.saveId, d.base, d.content, cx) };
          else n.mine = [...n.mine, d.inflight.saveId];
        }
        n.slot.stale = true;
        arm(out);
        return;
      case "fileGone":
        n.base = d.base;
        n.file = { id: cx.file, type: cx.kind.type, name: d.name, ...at(d.base) };
        if (unsent) n.inflight = { ...d.inflight!, content: d.content, body: bodyOf(d.inflight!.saveId, d.base, d.content, cx) };
        n.problem = e.type === "answer" && e.answer.is === "gone" ? e.answer.problem : null;
        return;
      default: {
        n.base = f.committed ? { version: f.committed, rev: d.inflight!.saveId } : d.base;
        if (!f.committed && d.inflight) n.mine = [...n.mine, d.inflight.saveId];
        n.theirs = stored(f.file!, f.content);
        n.slot.stale = true;
      }
    }
  },

  probe(n, _e, f, _cx, out) {
    n.file = f.file!;
    n.base = at(f.file!, f.content);
    out.push({ do: "probe", id: ask(n, "probe", out), saveId: n.draft!.inflight!.saveId });
  },

  load(n, _e, _f, _cx, out) {
    n.base = n.file = null;
    out.push({ do: "stop", timer: "retry" }, { do: "read", id: ask(n, "first", out) });
  },

  waitToLoad(n, e, _f, _cx, out) {
    complain(n, e);
    const final = e.type === "answer" && (e.answer.is === "ok" || e.answer.is === "gone" || e.answer.is === "forbidden");
    if (!final) retry(n, out);
  },

  edit(n, e, _f, _cx, out) {
    n.local = (e as { content: typeof n.local }).content;
    n.seq++;
    n.generation++;
    n.slot.stale = true;
    n.wantDiscard = false;
    if (n.phase === "dirty") arm(out);
  },

  send: (n, _e, _f, cx, out) => send(n, cx, out, false),
  sendLeaving: (n, _e, _f, cx, out) => send(n, cx, out, true),
  sendFresh(n, _e, _f, cx, out) {
    n.failures = 0;
    send(n, cx, out, false);
  },
  /** After the back/forward cache the answer may have gone to nobody: the same is asked again, then all is read again. */
  resend(n, _e, _f, cx, out) {
    n.wantRead = true;
    send(n, cx, out, false);
  },

  confirm(n, e, f, _cx, out) {
    const sent = n.inflight!;
    n.file = { ...n.file!, ...f.file! };
    n.base = at(f.file!, sent.content);
    n.inflight = null;
    n.mine = [];
    n.failures = 0;
    n.problem = null;
    n.generation++;
    out.push({ do: "announce", version: f.file!.version });
    const current = ((e as { answer: { data: { currentVersion: number } } }).answer.data).currentVersion;
    n.newer = current > f.file!.version ? current : null;
    if (n.newer) n.wantRead = true;
    if (n.seq === sent.seq) {
      settleAll(n, out);
      return;
    }
    n.saved = sent.seq;
    n.slot.stale = true;
    arm(out);
  },

  backOff(n, e, _f, _cx, out) {
    retry(n, out, e.type === "answer" && e.answer.is === "limited" ? e.answer.after * 1000 : undefined);
  },

  complain: (n, e) => complain(n, e),

  /** The server will never take it. What is saved next is another save. */
  drop(n, e) {
    complain(n, e);
    n.inflight = null;
    n.slot.stale = true;
  },

  meet(n, e, f, _cx, out) {
    const current = (e as { answer: { current: object } }).answer.current;
    n.theirs = { ...current, version: f.file!.version, rev: f.file!.rev };
    n.inflight = null;
    n.failures = 0;
    n.slot.stale = true;
    n.newer = null;
    out.push({ do: "read", id: ask(n, "theirs", out) });
  },

  /** What is stored is a save of this very work, whose answer was lost: no conflict. */
  rebaseOntoOwn(n, _e, f, cx, out) {
    n.base = at(f.file!, f.content);
    n.mine = n.mine.filter((id) => id !== f.file!.rev);
    n.inflight = null;
    n.theirs = null;
    n.generation++;
    send(n, cx, out, false);
  },

  keepTheirs(n, _e, f) {
    n.failures = 0;
    n.theirs = stored(f.file!, f.content);
  },
  readTheirs(n, _e, _f, _cx, out) {
    if (n.request?.what !== "theirs") out.push({ do: "read", id: ask(n, "theirs", out) });
  },
  waitForTheirs(n, _e, _f, _cx, out) {
    retry(n, out);
  },

  resolve(n, e, _f, cx, out) {
    const t = n.theirs!;
    n.base = at(t, t.content);
    n.local = (e as { content: typeof n.local }).content;
    n.seq++;
    n.generation++;
    n.theirs = null;
    n.adoptedFrom = undefined;
    n.slot.stale = true;
    send(n, cx, out, false);
  },

  refresh(n, _e, _f, _cx, out) {
    n.wantRead = true;
    if (n.phase === "dirty") arm(out);
  },
  hint(n, e, f) {
    n.newer = f.file ? f.file.version : e.type === "changed" ? e.version : n.newer;
  },

  wishToDiscard(n) {
    n.wantDiscard = true;
  },
  goOn(n, _e, _f, _cx, out) {
    if (n.phase === "dirty") arm(out);
    if (n.phase === "retrying" || n.phase === "conflict") retry(n, out);
  },

  adopt(n, e, _f, _cx, out) {
    const d = (e as { draft: Draft<typeof n.local> }).draft;
    if (n.phase === "conflict") {
      n.theirs = stored({ ...n.file!, ...n.base! }, n.base!.content);
      n.base = d.base as typeof n.base;
    } else arm(out);
    n.local = d.content;
    n.seq++;
    n.generation++;
    n.mine = d.inflight ? [...d.mine, d.inflight.saveId] : d.mine;
    n.adoptedFrom = d.writer;
    n.slot.stale = true;
  },

  restore(n, _e, _f, _cx, out) {
    out.push({ do: "restore", id: ask(n, "restore", out) });
  },
  forget: (n, _e, _f, _cx, out) => settleAll(n, out),
} satisfies Record<string, Do>;

const at = <C>(v: Version, content?: C) => ({ version: v.version, rev: v.rev, ...(content !== undefined && { content }) });
const stored = <C>(file: FileInfo, content: C | undefined) => ({ ...at(file, content), name: file.name, writerId: file.writerId ?? null, updatedAt: file.updatedAt });

export type Action = keyof typeof actions;

export function ask<C>(n: State<C>, what: What, out: Effect<C>[]): number {
  if (n.request) out.push({ do: "abort", id: n.request.id });
  n.request = { id: ++n.requests, what, generation: n.generation };
  return n.request.id;
}

function complain<C>(n: State<C>, e: Event<C>): void {
  const a = e.type === "answer" ? e.answer : undefined;
  n.problem = a && "problem" in a ? a.problem : { code: a?.is === "lost" ? "lost" : "unreadable", message: a?.is === "lost" ? a.why : "This document cannot be read here." };
}

// The timers of a save. The ceiling is not set anew while it runs, so that who types on and on is saved too.
function arm<C>(out: Effect<C>[]): void {
  out.push({ do: "set", timer: "debounce" }, { do: "set", timer: "ceiling" });
}

function calm<C>(out: Effect<C>[]): void {
  for (const timer of ["debounce", "ceiling", "retry"] as const) out.push({ do: "stop", timer });
}
const retry = <C>(n: State<C>, out: Effect<C>[], after?: number): unknown => out.push({ do: "set", timer: "retry", failures: ++n.failures, ...(after !== undefined && { after }) });

// Nothing is unsaved any more: stored, or discarded.
function settleAll<C>(n: State<C>, out: Effect<C>[]): void {
  if (n.inflight) n.mine = [...n.mine, n.inflight.saveId];
  n.saved = n.seq;
  n.inflight = n.theirs = n.problem = n.draft = null;
  n.failures = 0;
  n.generation++;
  n.adoptedFrom = undefined;
  n.wantDiscard = false;
  if (n.base && n.newer && n.base.version >= n.newer) n.newer = null;
  calm(out);
  out.push({ do: "clear", seq: n.seq });
  n.slot = { ...n.slot, seq: -1, stale: false, keeping: n.slot.keeping === "behind" ? "kept" : n.slot.keeping };
}

// Sends what is under way already, as it was, or a new save of the latest edit. The version is read now, not when a
// timer was set.
function send<C>(n: State<C>, cx: Context<C>, out: Effect<C>[], leaving: boolean): void {
  const id = ask(n, "save", out);
  calm(out);
  n.problem = null;
  if (!n.inflight) {
    const saveId = n.nonce + "-" + ++n.saves;
    n.inflight = make(n, cx, saveId);
    n.slot.stale = true;
  }
  if (n.slot.stale) write(n, cx, out);
  out.push({ do: "put", id, body: n.inflight.body, leaving });
}

function make<C>(n: State<C>, cx: Context<C>, saveId: string): Save<C> {
  const content = n.local as C;
  return { saveId, seq: n.seq, content, expectedVersion: n.base!.version, hash: hashOf(content), body: bodyOf(saveId, n.base!, content, cx) };
}

function bodyOf<C>(saveId: string, base: { version: number; rev: string }, content: C, cx: Context<C>): string {
  const head = JSON.stringify({ expectedVersion: base.version, expectedRev: base.rev, saveId, writerId: cx.writer, schemaVersion: cx.kind.schema });
  return head.slice(0, -1) + ',"content":' + textOf(content) + "}";
}

/** Writes the slot: all that is needed to go on from here after the tab was killed. */
export function write<C>(n: State<C>, cx: Context<C>, out: Effect<C>[]): void {
  const content = n.local as C;
  const b = n.base!;
  const sent = n.inflight;
  n.slot = { ...n.slot, seq: n.seq, stale: false };
  out.push({
    do: "write",
    draft: {
      format: 1, schema: cx.kind.schema, type: cx.kind.type, user: cx.user, file: cx.file, writer: cx.writer, name: n.file?.name ?? "",
      base: { version: b.version, rev: b.rev, ...(cx.kind.merge && b.content !== undefined && { content: b.content }) },
      seq: n.seq, mine: n.mine, hash: hashOf(content),
      ...(sent && { inflight: { saveId: sent.saveId, expectedVersion: sent.expectedVersion, seq: sent.seq, hash: sent.hash } }),
      ...(n.adoptedFrom && { adoptedFrom: n.adoptedFrom }),
      content,
    },
  });
}
