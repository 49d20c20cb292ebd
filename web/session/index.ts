/** Versioned document sessions: see docs/session-guide.md. The kinds that come with it are modules of their own, in kinds/. */
export { Desk, type DeskConfig, type Kept } from "./desk";
export { Session, type Resolve, type Sibling, type View } from "./session";
export { browser, type Environment } from "./environment";
export type { Clash, Draft, FileInfo, Kind, Merge, Problem } from "./types";
export type { Keeping, Phase } from "./state";
