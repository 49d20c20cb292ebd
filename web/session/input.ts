import { equal } from "./content";
import { isVersion } from "./judge";
import { isDirty, type Event, type State } from "./state";
import type { Input } from "./table";
import type { Answer, Draft, FileInfo, Kind } from "./types";

/** What a session is of. */
export interface Context<C> {
  kind: Kind<C>;
  user: string;
  file: string;
  writer: string;
}

/** What was understood of an event, for the action. */
export interface Facts<C> {
  input: Input | null;
  file?: FileInfo;
  content?: C;
  /** The version that the draft's save in flight made. */
  committed?: number;
}

const none = { input: null };

export function same<C>(cx: Context<C>, a: C | undefined, b: C | undefined): boolean {
  return a !== undefined && b !== undefined && (cx.kind.same ?? equal)(a, b);
}

/** Says what an event comes down to in a state. It changes nothing. */
export function inputOf<C>(s: State<C>, e: Event<C>, cx: Context<C>): Facts<C> {
  switch (e.type) {
    case "edit":
      return { input: "edit" };
    case "timer":
      if (e.timer === "draft") return none;
      return { input: discarding(s) ? null : e.timer === "retry" ? "again" : "due" };
    case "flush":
    case "again":
    case "online":
    case "visible":
    case "hide":
    case "resume":
      return { input: discarding(s) && e.type !== "resume" ? null : e.type };
    case "discard":
    case "restore":
      return { input: s.request?.what === e.type ? null : e.type };
    case "forget":
      return { input: e.type };
    case "drafted":
      return { input: e.outcome === "behind" && s.slot.keeping !== "behind" ? "behind" : null };
    case "changed": {
      const known = Math.max(s.file?.version ?? 0, s.theirs?.version ?? 0);
      return { input: e.version > known ? "changed" : null };
    }
    case "resolved":
      // A resolution of what is not stored any more would overwrite what is.
      return { input: s.theirs && s.theirs.version === e.theirs.version && s.theirs.rev === e.theirs.rev ? "resolved" : null };
    case "adopt": {
      const d = e.draft;
      const rev = s.base!.rev;
      const own = d.inflight?.saveId === rev || d.mine.includes(rev); // saved after all, and edited further
      return { input: own || (d.base.version === s.base!.version && d.base.rev === rev) ? "adopted" : "adoptedConflict" };
    }
    case "answer":
      return s.request?.id === e.id ? ofAnswer(s, e.answer, cx) : none;
  }
  return none;
}

// A discard that no edit has canceled is not overtaken by a save.
function discarding<C>(s: State<C>): boolean {
  return s.request?.what === "discard" && s.request.generation === s.generation;
}

function ofAnswer<C>(s: State<C>, a: Answer, cx: Context<C>): Facts<C> {
  switch (s.request!.what) {
    case "save":
      return ofSave(s, a, cx);
    case "restore":
      return { input: a.is === "ok" ? "fileRestored" : "restoreFailed" };
    case "probe":
      return ofProbe(s, a);
    case "first":
      return ofFirst(s, a, cx);
    case "refresh": {
      const read = readFile(a, cx);
      if (!read || read.file.version < s.base!.version || (read.file.version === s.base!.version && read.file.rev === s.base!.rev)) return none;
      if (s.phase === "dirty") return { input: "peeked", ...read };
      return { input: tooLate(s) || isDirty(s) ? null : "fresh", ...read };
    }
    case "theirs": {
      const read = readFile(a, cx);
      const met = s.theirs;
      if (!read || !met || (read.file.version < met.version && read.file.rev !== met.rev)) {
        return { input: a.is === "gone" ? "gone" : "theirsFailed" };
      }
      if (same(cx, read.content, s.local)) return { input: "theirsSame", ...read };
      return { input: s.mine.includes(read.file.rev) ? "theirsOwn" : "theirs", ...read };
    }
    case "discard": {
      const read = readFile(a, cx);
      const known = s.theirs ?? s.base;
      const good = read && !tooLate(s) && read.file.version >= (known?.version ?? 0);
      return { input: good ? "discarded" : "discardEnded", ...read };
    }
  }
}

const tooLate = <C>(s: State<C>): boolean => s.request!.generation !== s.generation;

function ofSave<C>(s: State<C>, a: Answer, cx: Context<C>): Facts<C> {
  switch (a.is) {
    case "ok": {
      const sent = s.inflight!;
      const data = a.data as { file?: FileInfo; saveId?: string; currentVersion?: number };
      // Each save makes the version after its base. Anything else is no answer to this request.
      const mine = data.saveId === sent.saveId && data.file?.id === cx.file && data.file.version === sent.expectedVersion + 1 && data.file.rev === sent.saveId;
      if (!mine || !isVersion(data.currentVersion)) return { input: "lost" };
      return { input: s.seq === sent.seq ? "saved" : "savedMore", file: data.file };
    }
    case "conflict":
      return { input: s.mine.includes(a.current.saveId) ? "ownConflict" : "conflict", file: asFile(s, cx, a.current) };
    case "unknown":
      return { input: "lost" };
    default:
      return { input: a.is };
  }
}

function asFile<C>(s: State<C>, cx: Context<C>, v: { version: number; rev: string }): FileInfo {
  return { id: cx.file, type: cx.kind.type, name: s.file?.name ?? "", ...v };
}

function readFile<C>(a: Answer, cx: Context<C>): { file: FileInfo; content: C } | undefined {
  if (a.is !== "ok" || !a.data) return undefined;
  const { content, limits: _, ...file } = a.data as FileInfo & { content: unknown; limits?: unknown };
  const read = cx.kind.read(content);
  const ours = file.id === cx.file && file.type === cx.kind.type && isVersion(file.version) && typeof file.rev === "string" && read !== undefined;
  return ours ? { file, content: read } : undefined;
}

function ofFirst<C>(s: State<C>, a: Answer, cx: Context<C>): Facts<C> {
  const read = readFile(a, cx);
  if (!read) return { input: a.is === "gone" && s.draft ? "fileGone" : "loadFailed" };
  return { ...read, input: fits(s.draft, read.file, read.content, cx) };
}

// What a draft means beside the stored version.
function fits<C>(d: Draft<C> | null, file: FileInfo, content: C, cx: Context<C>): Input {
  if (!d || same(cx, d.content, content)) return "loaded";
  if (d.inflight && d.inflight.saveId === file.rev) return d.inflight.seq === d.seq ? "loaded" : "draftFits";
  if (d.base.version === file.version && d.base.rev === file.rev) return "draftFits"; // an unknown save is sent again
  if (d.mine.includes(file.rev)) return "draftFits";
  return d.inflight ? "draftUnsure" : "draftConflicts";
}

// The file was read before: it is in s.file and s.base.
function ofProbe<C>(s: State<C>, a: Answer): Facts<C> {
  const d = s.draft!;
  const read = { file: s.file!, content: s.base!.content! };
  if (a.is === "unknown") return { input: "draftConflicts", ...read };
  const version = a.is === "ok" ? (a.data as { version?: unknown } | null)?.version : undefined;
  if (!isVersion(version)) return { input: "loadFailed" };
  // Committed, and others have saved since.
  return { ...read, committed: version, input: d.inflight!.seq === d.seq ? "loaded" : "draftConflicts" };
}
