import type { Phase } from "./state";
import type { Action } from "./actions";

/** What an event comes down to in a given state; see input.ts. */
export type Input =
  | "edit" | "due" | "flush" | "again" | "online" | "visible" | "hide" | "resume" | "behind"
  | "loaded" | "draftFits" | "draftConflicts" | "draftUnsure" | "loadFailed" | "fileGone"
  | "saved" | "savedMore" | "lost" | "limited" | "unauthenticated" | "forbidden" | "gone" | "conflict" | "ownConflict" | "outdated" | "rejected"
  | "fresh" | "peeked" | "theirs" | "theirsSame" | "theirsOwn" | "theirsFailed" | "resolved"
  | "discard" | "discarded" | "discardEnded" | "changed" | "adopted" | "adoptedConflict"
  | "restore" | "fileRestored" | "restoreFailed" | "forget";

/** from, on, to, and what is done on the way. What is in no row changes nothing. */
export type Row = [from: Phase[], on: Input, to: Phase | "=", then: Action];

const kept: Phase[] = ["auth_required", "blocked", "orphaned", "reload_required"];
const discardable: Phase[] = ["clean", "dirty", "retrying", "conflict", "auth_required", "blocked", "rejected", "reload_required"];

/** The whole machine. docs/documents-session.md draws it from here. */
export const table: Row[] = [
  [["loading"], "loaded", "clean", "takeFile"],
  [["loading"], "draftFits", "dirty", "takeDraft"],
  [["loading"], "draftConflicts", "conflict", "takeDraft"],
  [["loading"], "draftUnsure", "loading", "probe"],
  [["loading"], "fileGone", "orphaned", "takeDraft"],
  [["loading"], "loadFailed", "unavailable", "waitToLoad"],
  [["loading", "unavailable"], "resume", "loading", "load"],
  [["unavailable"], "again", "loading", "load"],
  [["unavailable"], "online", "loading", "load"],
  [["unavailable"], "visible", "loading", "load"],

  [["clean"], "edit", "dirty", "edit"],
  [["clean"], "fresh", "clean", "takeFile"],
  [["clean"], "changed", "clean", "refresh"],
  [["clean"], "resume", "clean", "refresh"],
  [["clean"], "adopted", "dirty", "adopt"],
  [["clean"], "adoptedConflict", "conflict", "adopt"],

  [["dirty"], "edit", "dirty", "edit"],
  [["dirty"], "due", "saving", "send"],
  [["dirty"], "flush", "saving", "send"],
  [["dirty"], "hide", "saving", "sendLeaving"],
  [["dirty"], "behind", "saving", "send"],
  [["dirty"], "resume", "dirty", "refresh"],
  [["dirty"], "peeked", "dirty", "hint"],
  [["dirty"], "changed", "dirty", "hint"],

  [["saving", "retrying"], "edit", "=", "edit"],
  [["saving"], "saved", "clean", "confirm"],
  [["saving"], "savedMore", "dirty", "confirm"],
  [["saving"], "lost", "retrying", "backOff"],
  [["saving"], "limited", "retrying", "backOff"],
  [["saving"], "unauthenticated", "auth_required", "complain"],
  [["saving"], "forbidden", "blocked", "complain"],
  [["saving"], "gone", "orphaned", "complain"],
  [["saving"], "conflict", "conflict", "meet"],
  [["saving"], "ownConflict", "saving", "rebaseOntoOwn"],
  [["saving"], "outdated", "reload_required", "complain"],
  [["saving"], "rejected", "rejected", "drop"],
  [["saving", "retrying"], "resume", "saving", "resend"],
  [["saving", "retrying"], "changed", "=", "hint"],
  [["retrying"], "again", "saving", "send"],
  [["retrying"], "online", "saving", "sendFresh"],
  [["retrying"], "flush", "saving", "sendFresh"],

  [["conflict"], "edit", "conflict", "edit"],
  [["conflict"], "theirs", "conflict", "keepTheirs"],
  [["conflict"], "theirsSame", "clean", "takeFile"],
  [["conflict"], "theirsOwn", "saving", "rebaseOntoOwn"],
  [["conflict"], "theirsFailed", "conflict", "waitForTheirs"],
  [["conflict"], "again", "conflict", "readTheirs"],
  [["conflict"], "online", "conflict", "readTheirs"],
  [["conflict"], "resume", "conflict", "readTheirs"],
  [["conflict"], "changed", "conflict", "readTheirs"],
  [["conflict"], "resolved", "saving", "resolve"],
  [["conflict"], "gone", "orphaned", "complain"],

  [kept, "edit", "=", "edit"],
  [["auth_required", "blocked", "reload_required", "orphaned"], "again", "saving", "sendFresh"],
  [["auth_required"], "visible", "saving", "sendFresh"],
  [["auth_required"], "online", "saving", "sendFresh"],
  [["rejected"], "edit", "dirty", "edit"],
  [["rejected"], "again", "saving", "sendFresh"],

  [["orphaned"], "restore", "orphaned", "restore"],
  [["orphaned"], "fileRestored", "saving", "sendFresh"],
  [["orphaned"], "restoreFailed", "orphaned", "complain"],
  [["orphaned", "conflict", "rejected", "blocked"], "forget", "closed", "forget"],

  [[...discardable, "saving"], "discard", "=", "wishToDiscard"],
  [discardable, "discarded", "clean", "takeFile"],
  [discardable, "discardEnded", "=", "goOn"],
];
