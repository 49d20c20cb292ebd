// The words of a session. Everything here is plain data, so that the core can run anywhere.

/** Which version of a file: its number, and the id of the save that made it. A restored backup has the same number and another rev. */
export interface Version {
  version: number;
  rev: string;
}

/** What is known of a file beside its content. Times are for display only: versions order everything. */
export interface FileInfo extends Version {
  id: string;
  type: string;
  name: string;
  writerId?: string | null;
  updatedAt?: string;
}

/** What a merge made, and where both sides had changed the same thing differently. */
export interface Merge<C> {
  content: C;
  clashes: Clash[];
}

/** One thing that both sides changed differently; undefined stands for "deleted". The merge took mine. */
export interface Clash {
  id: string;
  base: unknown;
  mine: unknown;
  theirs: unknown;
}

/** A kind of document. Write one to keep another content in a session. */
export interface Kind<C> {
  /** The file's type on the server. */
  type: string;
  /** The form of the content that this code reads and writes. */
  schema: number;
  /** The content of a file, or undefined when it is not understood. Such a document is not edited. */
  read(content: unknown): C | undefined;
  /** Whether both say the same. Defaults to deep equality, whatever the order of keys. */
  same?(a: C, b: C): boolean;
  /** Three-way merge. A kind without it does not offer rebase. */
  merge?(base: C, mine: C, theirs: C): Merge<C>;
}

/** A save that was sent and whose outcome is not known. */
export interface Sent {
  saveId: string;
  expectedVersion: number;
  /** The edit that it holds. */
  seq: number;
  /** Of the content that it holds. */
  hash: string;
}

/** What a slot in storage holds: everything that is needed to go on after the tab was killed. */
export interface Draft<C> {
  format: 1;
  schema: number;
  type: string;
  user: string;
  file: string;
  writer: string;
  /** The file's name when it was written, for lists of recovered work. */
  name: string;
  /** What the content was made from. The base's content is kept for kinds that merge. */
  base: Version & { content?: C };
  /** Counts edits; a slot is deleted only for the edit that was acknowledged. */
  seq: number;
  inflight?: Sent | null;
  /** Save ids of this work whose outcome was never learned. */
  mine: string[];
  adoptedFrom?: string;
  hash: string;
  /** For display. */
  savedAt: string;
  content: C;
}

/** How an answer is understood; see judge. */
export interface Answer {
  is: "ok" | "lost" | "limited" | "unauthenticated" | "forbidden" | "gone" | "conflict" | "outdated" | "unknown" | "rejected";
  /** When it is ok. */
  data?: unknown;
  /** When it is not. */
  problem?: Problem;
  /** When it is limited: seconds. */
  after?: number;
  /** When it is a conflict. */
  current?: Current;
}

/** The stored version that a save met. */
export interface Current extends Version {
  saveId: string;
  writerId?: string | null;
  updatedAt?: string;
}

export interface Problem {
  code: string;
  message: string;
  fields?: Record<string, string>;
}
