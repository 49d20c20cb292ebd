import { hashOf, withContent } from "./content";
import type { Ask, State, What } from "./state";
import { sent, type Turn } from "./input";
import type { Sent, Version } from "./types";

/** What the table does on its ways. n is the new state, which only the running transition has; t is what it has to know. */
export type Action = <C>(n: State<C>, t: Turn<C>) => void;

export const takeFile: Action = (n, t) => {
  takeBase(n, t);
  n.local = t.content;
  if (n.draft) n.seq = n.draft.seq;
  settleAll(n, t);
};

export const takeDraft: Action = (n, t) => {
  const d = n.draft!;
  const { base, inflight } = d;
  n.draft = null;
  n.local = d.content;
  n.seq = d.seq;
  n.saved = d.seq - 1;
  n.mine = sent(d);
  n.adoptedFrom = d.adoptedFrom;
  n.stale = true;
  n.base = base;
  n.file = t.file ?? { id: t.cx.file, type: t.cx.kind.type, name: d.name, ...at(base) };
  if (t.input === "draftConflicts") {
    if (t.committed) n.base = { version: t.committed, rev: inflight!.saveId };
    n.theirs = { ...n.file, content: t.content };
    return;
  }
  // The very save that was under way is sent again, where the slot has no later edit and nobody saved since.
  if (inflight?.seq === d.seq && d.schema === t.cx.kind.schema && inflight.expectedVersion === base.version && n.file.rev === base.rev) {
    n.mine = d.mine;
    prepare(n, t, inflight);
  }
  if (t.input === "fileGone") return complain(n, t);
  takeBase(n, t);
  arm(t);
};

export const probe: Action = (n, t) => {
  takeBase(n, t);
  ask(n, t, "probe", { do: "probe", saveId: n.draft!.inflight!.saveId });
};

export const open: Action = (n, t) => {
  const { nonce, draft, keeping } = t;
  Object.assign(n, { nonce, draft, keeping });
  load(n, t);
};

export const load: Action = (n, t) => {
  n.base = n.file = null;
  stop(n, t);
  ask(n, t, "first");
};

export const waitToLoad: Action = (n, t) => {
  complain(n, t);
  // Asking again would not change these.
  if (!/^(ok|gone|forbidden)$/.test(t.answer!.is)) backOff(n, t);
};

export const edit: Action = (n, t) => {
  change(n, t.content);
  n.wantDiscard = false;
  if (n.phase === "dirty") arm(t);
};

/**
 * Sends what is under way already, as it was, or a new save of the latest edit. The version is read now, not when a timer
 * was set.
 */
export const send: Action = <C>(n: State<C>, t: Turn<C>) => {
  stop(n, t);
  if (t.input !== "due" || !n.inflight) n.failures = 0; // whoever asks for it does not wait for the failures before
  // After the back/forward cache the answer may have gone to nobody: the same is asked again, then all is read again.
  if (t.input === "resume") n.wantRead = true;
  n.problem = null;
  if (!n.inflight) {
    prepare(n, t, { saveId: n.nonce + "-" + n.requests, expectedVersion: n.base!.version, seq: n.seq, hash: hashOf(n.local) });
    n.stale = true;
  }
  // The slot knows of a save before it leaves.
  if (n.stale) write(n, t);
  // When the page goes, the request is to outlive it where it can.
  ask(n, t, "save", { do: "put", body: n.sending!.body, leaving: t.input === "hide" });
};

export const confirm: Action = (n, t) => {
  const { seq } = n.inflight!;
  const { version } = t.file!;
  takeBase(n, { ...t, content: n.sending!.content });
  n.inflight = n.problem = null;
  n.mine = [];
  t.out.push({ do: "announce", version });
  n.newer = t.current! > version ? t.current! : null;
  if (n.newer) n.wantRead = true;
  if (n.seq === seq) return settleAll(n, t);
  n.saved = seq;
  n.stale = true;
  arm(t);
};

export const backOff: Action = (n, t) => retry(n, t, t.answer!.is === "limited" ? t.answer!.after : 0);

export const complain: Action = (n, t) => {
  n.problem = t.answer!.problem ?? { code: "unreadable", message: "not understood" };
};

/** The server will not take it now, whatever became of an earlier copy of it. What is saved next is another save. */
export const drop: Action = (n, t) => {
  complain(n, t);
  n.mine = sent(n);
  n.inflight = null;
  n.stale = true;
};

export const meet: Action = (n, t) => {
  n.theirs = t.file!;
  n.inflight = n.newer = null;
  n.failures = 0;
  n.stale = true;
  ask(n, t, "theirs");
};

/** What is stored is a save of this very work, whose answer was lost: no conflict. */
export const rebaseOntoOwn: Action = (n, t) => {
  takeBase(n, t);
  n.mine = n.mine.filter((id) => id !== n.base!.rev);
  n.inflight = n.theirs = null;
  send(n, t);
};

export const keepTheirs: Action = (n, t) => {
  n.failures = 0;
  n.theirs = { ...t.file!, content: t.content };
};
export const readTheirs: Action = (n, t) => {
  if (n.request?.what !== "theirs") ask(n, t, "theirs");
};

export const resolve: Action = (n, t) => {
  n.base = at(n.theirs!, n.theirs!.content);
  change(n, t.content);
  n.theirs = null;
  n.adoptedFrom = undefined;
  send(n, t);
};

export const refresh: Action = (n, t) => {
  n.wantRead = true;
  if (n.phase === "dirty") arm(t);
};
export const hint: Action = (n, t) => {
  n.newer = t.file?.version ?? t.version!;
};

export const wishToDiscard: Action = (n) => {
  n.wantDiscard = true;
};
export const goOn: Action = (n, t) => {
  if (n.phase === "dirty") arm(t);
  if (/^(retrying|conflict)$/.test(n.phase)) retry(n, t);
};

export const adopt: Action = (n, t) => {
  const d = t.draft!;
  if (n.phase === "conflict") {
    n.theirs = { ...n.file!, ...n.base! };
    n.base = d.base as typeof n.base;
  } else arm(t);
  change(n, d.content);
  n.mine = sent(d);
  n.adoptedFrom = d.writer;
};

export const restore: Action = (n, t) => ask(n, t, "restore", { do: "restore" });

/** Nothing is unsaved any more: stored, discarded, or given up. */
export const settleAll = <C>(n: State<C>, t: Turn<C>): void => {
  n.mine = sent(n);
  n.saved = n.seq;
  n.inflight = n.theirs = n.problem = n.draft = null;
  n.adoptedFrom = undefined;
  n.wantDiscard = n.stale = false;
  if (n.base && n.newer && n.base.version >= n.newer) n.newer = null;
  stop(n, t);
  t.out.push({ do: "clear", seq: n.seq });
  if (n.keeping === "behind") n.keeping = "kept";
};

const at = <C>({ version, rev }: Version, content?: C) => ({ version, rev, content });

function takeBase<C>(n: State<C>, { file, content }: Turn<C>): void {
  n.file = { ...n.file!, ...file! };
  n.base = at(file!, content);
  n.generation++;
}

function change<C>(n: State<C>, content: C | undefined): void {
  n.local = content;
  n.seq++;
  n.generation++;
  n.stale = true;
}

/** Nobody waits for what was asked before. */
export function abandon<C>(n: State<C>, t: Turn<C>): void {
  if (n.request) t.out.push({ do: "abort", id: n.request.id });
  n.request = null;
}

/** Asks the server, in place of what was asked before. */
export function ask<C>(n: State<C>, t: Turn<C>, what: What, effect: Omit<Ask, "id"> = { do: "read" }): void {
  abandon(n, t);
  const id = ++n.requests;
  n.request = { id, what, generation: n.generation };
  t.out.push({ ...effect, id });
}

// The timers of a save. The ceiling is not set anew while it runs, so that who types on and on is saved too.
function arm<C>(t: Turn<C>): void {
  t.out.push({ do: "set", timer: "debounce" }, { do: "set", timer: "ceiling" });
}
function stop<C>(n: State<C>, t: Turn<C>): void {
  n.armed = false;
  t.out.push({ do: "stop" });
}
function retry<C>(n: State<C>, t: Turn<C>, after = 0): void {
  t.out.push({ do: "set", timer: "retry", failures: ++n.failures, after });
}

/** What is in n.local is under way from here, as these bytes, however often they are sent. */
function prepare<C>(n: State<C>, { cx }: Turn<C>, inflight: Sent): void {
  const content = n.local as C;
  const { saveId, expectedVersion } = inflight;
  const head = { expectedVersion, expectedRev: n.base!.rev, saveId, writerId: cx.writer, schemaVersion: cx.kind.schema };
  n.inflight = inflight;
  n.sending = { content, body: withContent(head, content) };
}

/** Writes the slot: all that is needed to go on from here after the tab was killed. */
export function write<C>(n: State<C>, { out, cx: { kind, ...who } }: Turn<C>): void {
  const { seq, mine, inflight, adoptedFrom } = n;
  const content = n.local as C;
  n.stale = false;
  out.push({
    do: "write",
    draft: {
      format: 1, schema: kind.schema, type: kind.type, ...who, name: n.file!.name,
      base: at(n.base!, kind.merge && n.base!.content), seq, mine, hash: hashOf(content), inflight, adoptedFrom, content,
    },
  });
}
