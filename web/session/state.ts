import type { Answer, Draft, FileInfo, Problem, Sent, Version } from "./types";

/** Where a document stands. The table in table.ts says what leads where. */
export type Phase =
  | "loading" // the first read is under way: nothing can be edited
  | "unavailable" // the first read failed: nothing can be edited
  | "clean" // what is shown is what is stored
  | "dirty" // there are edits, and a timer for them
  | "saving" // one save is under way
  | "retrying" // a save's outcome is not known: it is sent again, as it was
  | "conflict" // another version is stored: nothing is saved until the user resolves it
  | "auth_required" // somebody must sign in, as the same user
  | "blocked" // the user may not save
  | "orphaned" // the file is deleted, or not there
  | "rejected" // the server will never take this save
  | "reload_required" // the page is older than the server
  | "closed"; // the work was discarded, or kept elsewhere

/** What a request is for. There is at most one at a time for each session. */
export type What = "first" | "probe" | "refresh" | "theirs" | "discard" | "save" | "restore";

export interface Request {
  id: number;
  what: What;
  /** The session's generation when it was sent: a read of another generation is too late. */
  generation: number;
}

/** Whether work would outlive the tab. */
export type Keeping = "kept" | "behind" | "unavailable";

export interface State<C> {
  phase: Phase;
  file?: FileInfo | null;
  /** The confirmed version that local was made from. Its content is unknown when only a draft remembers it. */
  base?: (Version & { content?: C }) | null;
  local?: C;
  /** Counts edits, across reloads. */
  seq: number;
  /** The edit that the server has. Unsaved work is what is above it. */
  saved: number;
  inflight?: Sent | null;
  /** What is in flight, or was last. The bytes are made once: a retry sends the same. */
  sending?: { content: C; body: string };
  /** Own save ids whose outcome was never learned. */
  mine: string[];
  request?: Request | null;
  requests: number;
  /** Raised by every edit and every version that is taken over. */
  generation: number;
  /** Tries of the same save since the last success. */
  failures: number;
  /** Save ids are this and a number. */
  nonce: string;
  /** The draft that is being restored while loading. */
  draft?: Draft<C> | null;
  adoptedFrom?: string;
  /** The slot does not hold what memory holds. */
  stale?: boolean;
  /** There is a timer for the slot. */
  armed?: boolean;
  keeping: Keeping;
  /** What is stored instead of base, in conflict; content once it was read. */
  theirs: (Partial<FileInfo> & Version & { content?: C }) | null;
  /** Somebody saved this version meanwhile: a hint. */
  newer: number | null;
  problem: Problem | null;
  wantRead?: boolean;
  wantDiscard?: boolean;
}

export type Timer = "debounce" | "ceiling" | "retry" | "draft";

export type Event<C> =
  | { type: "open"; draft: Draft<C> | null; nonce: string; keeping: Keeping }
  | { type: "edit"; content: C }
  | { type: "flush" | "again" | "online" | "visible" | "hide" | "resume" | "discard" | "restore" | "forget" | "slotLost" }
  | { type: "timer"; timer: Timer }
  | { type: "answer"; id: number; answer: Answer }
  | { type: "drafted"; outcome: Keeping }
  | { type: "resolved"; content: C; theirs: Version }
  | { type: "adopt"; draft: Draft<C> }
  | { type: "changed"; version: number }
  | { type: "named"; name: string };

export type Effect<C> =
  | Ask
  | { do: "abort"; id: number }
  | { do: "set"; timer: Timer; failures?: number; after?: number }
  | { do: "stop" } // all timers
  | { do: "write"; draft: Omit<Draft<C>, "savedAt"> }
  | { do: "clear"; seq: number }
  | { do: "announce"; version: number };

/** What is asked of the server. */
export interface Ask {
  do: "read" | "probe" | "put" | "restore";
  id: number;
  saveId?: string;
  body?: string;
  leaving?: boolean;
}

export function initial<C>(): State<C> {
  return {
    phase: "loading", seq: 0, saved: 0, mine: [], requests: 0, generation: 0, failures: 0, nonce: "", keeping: "kept", theirs: null, newer: null, problem: null,
  };
}

export const isDirty = (s: { seq: number; saved: number }): boolean => s.seq > s.saved;
