import { equal } from "./content";
import { attempt } from "./environment";
import { isVersion } from "./judge";
import { isDirty, type Effect, type Event, type Keeping, type State } from "./state";
import type { Input } from "./table";
import type { Answer, Draft, FileInfo, Kind, Sent, Version } from "./types";

/** What a session is of. */
export interface Context<C> {
  kind: Kind<C>;
  user: string;
  file: string;
  writer: string;
}

/** What was understood of an event. */
interface Facts<C> {
  input: Input | null;
  file?: FileInfo;
  content?: C;
  /** The version that the draft's save in flight made. */
  committed?: number;
  /** The version that is stored now. */
  current?: number;
}

/** All that an action has to know beside the state: the event's own fields, what was understood of it, and where what is to be done outside goes. */
export interface Turn<C> extends Facts<C> {
  answer?: Answer;
  draft?: Draft<C> | null;
  nonce?: string;
  keeping?: Keeping;
  version?: number;
  cx: Context<C>;
  out: Effect<C>[];
}

export const same = <C>(kind: Kind<C>, a: C, b: C): boolean => (kind.same ?? equal)(a, b);

/** The same number with another rev is another version: a restored backup. */
export const isAt = (v: Version, other: Version): boolean => v.version === other.version && v.rev === other.rev;

/** Says what an event comes down to in a state. It changes nothing. */
export function inputOf<C>(s: State<C>, e: Event<C>, cx: Context<C>): Facts<C> {
  return e.type === "answer" ? ofAnswer(s, e.answer, cx) : { input: ofEvent(s, e) };
}

function ofEvent<C>(s: State<C>, e: Exclude<Event<C>, { type: "answer" }>): Input | null {
  const { request, theirs } = s;
  // A discard that no edit has canceled is not overtaken by a save.
  const discarding = request?.what === "discard" && !tooLate(s);
  switch (e.type) {
    case "timer":
      return discarding || e.timer === "draft" ? null : "due";
    case "edit":
    case "resume":
    case "forget":
      return e.type;
    case "discard":
    case "restore":
      return request?.what === e.type ? null : e.type;
    case "drafted":
      return e.outcome === "behind" && s.keeping !== "behind" ? "behind" : null;
    case "changed":
      return e.version > Math.max(s.file?.version ?? 0, theirs?.version ?? 0) ? "changed" : null;
    case "resolved":
      // A resolution of what is not stored any more would overwrite what is.
      return theirs && isAt(theirs, e.theirs) ? "resolved" : null;
    case "adopt":
      // It may be saved after all, and edited further.
      return isAt(e.draft.base, s.base!) || sent(e.draft).includes(s.base!.rev) ? "adopted" : "adoptedConflict";
    default:
      return discarding ? null : (e.type as Input); // the table knows what is none
  }
}

/** The ids of the saves whose outcome the writer did not learn. */
export const sent = ({ mine, inflight }: { mine: string[]; inflight?: Sent | null }): string[] => (inflight ? [...mine, inflight.saveId] : mine);

const tooLate = <C>(s: State<C>): boolean => s.request!.generation !== s.generation;

function ofAnswer<C>(s: State<C>, a: Answer, cx: Context<C>): Facts<C> {
  const { what } = s.request!;
  const met = s.theirs;
  if (what === "save") return ofSave(s, a, cx);
  if (what === "restore") return { input: a.is === "ok" ? "fileRestored" : "restoreFailed" };
  if (what === "probe") return ofProbe(s, a);
  const read = readFile(a, cx);
  const input = (): Input | null => {
    switch (what) {
      case "first":
        return read ? fits(s.draft, read.file, read.content, cx) : a.is === "gone" && s.draft ? "fileGone" : "loadFailed";
      case "refresh":
        if (!read || read.file.version < s.base!.version || isAt(read.file, s.base!)) return null;
        return s.phase === "dirty" ? "peeked" : tooLate(s) || isDirty(s) ? null : "fresh";
      case "theirs":
        if (!read || !met || (read.file.version < met.version && read.file.rev !== met.rev)) return a.is === "gone" ? "gone" : "theirsFailed";
        if (same(cx.kind, read.content, s.local as C)) return "theirsSame";
        return s.mine.includes(read.file.rev) ? "theirsOwn" : "theirs";
      default:
        return read && !tooLate(s) && read.file.version >= (met ?? s.base!).version ? "discarded" : "discardEnded";
    }
  };
  return { ...read, input: input() };
}

function ofSave<C>(s: State<C>, a: Answer, cx: Context<C>): Facts<C> {
  if (a.is === "conflict") return { input: s.mine.includes(a.current!.saveId) ? "ownConflict" : "conflict", file: a.current as Version as FileInfo };
  if (a.is !== "ok") return { input: a.is === "unknown" ? "lost" : a.is };
  const { saveId, seq, expectedVersion } = s.inflight!;
  const { file, currentVersion: current, ...data } = (a.data ?? {}) as { file?: FileInfo; saveId?: string; currentVersion?: number };
  // Each save makes the version after its base. Anything else is no answer to this request.
  const mine = data.saveId === saveId && file?.id === cx.file && file.version === expectedVersion + 1 && file.rev === saveId && isVersion(current);
  return { file, current, input: !mine ? "lost" : s.seq === seq ? "saved" : "savedMore" };
}

function readFile<C>({ data }: Answer, cx: Context<C>): { file: FileInfo; content: C } | undefined {
  const { content: raw, limits: _, ...file } = (data ?? {}) as FileInfo & { content?: unknown; limits?: unknown };
  const content = attempt(() => cx.kind.read(raw)); // a kind that throws has not understood it
  const ours = file.id === cx.file && file.type === cx.kind.type && isVersion(file.version) && typeof file.rev === "string";
  return ours && content !== null ? { file, content } : undefined;
}

// What a draft means beside the stored version.
function fits<C>(d: Draft<C> | null | undefined, file: FileInfo, content: C, cx: Context<C>): Input {
  if (!d || same(cx.kind, d.content, content)) return "loaded";
  const { inflight } = d;
  if (inflight?.saveId === file.rev) return inflight.seq === d.seq ? "loaded" : "draftFits";
  // On the stored version an unknown save is sent again.
  if (isAt(d.base, file) || d.mine.includes(file.rev)) return "draftFits";
  return inflight ? "draftUnsure" : "draftConflicts";
}

// The file was read before: it is in s.file and s.base.
function ofProbe<C>(s: State<C>, a: Answer): Facts<C> {
  const { inflight, seq } = s.draft!;
  const { version: committed } = (a.data ?? {}) as { version?: number };
  if (a.is !== "unknown" && committed !== inflight!.expectedVersion + 1) return { input: "loadFailed" };
  // Committed, and others have saved since.
  return { file: s.file!, content: s.base!.content, committed, input: committed && inflight!.seq === seq ? "loaded" : "draftConflicts" };
}
