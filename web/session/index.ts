/** Versioned document sessions: see docs/session-guide.md. */
export { Desk, type DeskConfig, type Kept } from "./desk";
export { Session, type Resolve, type Sibling, type View } from "./session";
export { browser, type Environment } from "./environment";
export { markdown, type Markdown } from "./kinds/markdown";
export { mergeRecords, record, type RecordContent } from "./kinds/record";
export { spreadsheet, withCell, type Cell, type Column, type Spreadsheet } from "./kinds/spreadsheet";
export type { Clash, Draft, FileInfo, Kind, Merge, Problem } from "./types";
export type { Keeping, Phase } from "./state";
