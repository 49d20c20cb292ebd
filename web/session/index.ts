/** Versioned document sessions: see docs/session-guide.md. What not every application needs is in modules beside it: kinds/, files, hints, kept and siblings. */
export { Desk, type DeskConfig } from "./desk";
export type { Hints } from "./hints";
export type { Slot } from "./drafts";
export type { Session, Resolve, View } from "./session";
export { browser, type Environment } from "./environment";
export type { Clash, Draft, FileInfo, Kind, Merge, Problem } from "./types";
export type { Keeping, Phase } from "./state";
