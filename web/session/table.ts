import * as does from "./actions";
import type { Action } from "./actions";
import type { Phase } from "./state";

/** What an event comes down to in a given state; see input.ts. */
export type Input =
  | "open" | "edit" | "due" | "flush" | "again" | "online" | "visible" | "hide" | "resume" | "behind"
  | "loaded" | "draftFits" | "draftConflicts" | "draftUnsure" | "loadFailed" | "fileGone"
  | "saved" | "savedMore" | "lost" | "limited" | "unauthenticated" | "forbidden" | "gone" | "conflict" | "ownConflict" | "outdated" | "rejected"
  | "fresh" | "peeked" | "theirs" | "theirsSame" | "theirsOwn" | "theirsFailed" | "resolved"
  | "discard" | "discarded" | "discardEnded" | "changed" | "adopted" | "adoptedConflict"
  | "restore" | "fileRestored" | "restoreFailed" | "forget";

/** What is done, and where it leads; without that, the session stays where it is. */
export type Row = [then: Action, to?: Phase];
type Rows = { [on in Input]?: Row };

// What several states have in common.
const edits: Rows = { edit: [does.edit] };
const discards: Rows = { discard: [does.wishToDiscard], discarded: [does.takeFile, "clean"], discardEnded: [does.goOn] };
const forgets: Rows = { forget: [does.settleAll, "closed"] };
const sends: Row = [does.send, "saving"];
const stopped: Rows = { ...edits, again: sends };
const underWay: Rows = { ...edits, changed: [does.hint], resume: sends };
const loads: Row = [does.load, "loading"];
const readsTheirs: Row = [does.readTheirs];

/** The whole machine: from, on, and what comes of it. What is in no row changes nothing. docs/session-states.md draws it from here. */
export const table: Record<Phase, Rows> = {
  loading: {
    open: [does.open],
    loaded: [does.takeFile, "clean"],
    draftFits: [does.takeDraft, "dirty"],
    draftConflicts: [does.takeDraft, "conflict"],
    draftUnsure: [does.probe],
    fileGone: [does.takeDraft, "orphaned"],
    loadFailed: [does.waitToLoad, "unavailable"],
    resume: loads,
  },
  unavailable: { due: loads, again: loads, online: loads, visible: loads, resume: loads },
  clean: {
    edit: [does.edit, "dirty"],
    fresh: [does.takeFile],
    changed: [does.refresh],
    resume: [does.refresh],
    adopted: [does.adopt, "dirty"],
    adoptedConflict: [does.adopt, "conflict"],
    ...discards,
  },
  dirty: {
    ...edits,
    due: sends,
    flush: sends,
    hide: sends,
    behind: sends,
    resume: [does.refresh],
    peeked: [does.hint],
    changed: [does.hint],
    ...discards,
  },
  saving: {
    ...underWay,
    saved: [does.confirm, "clean"],
    savedMore: [does.confirm, "dirty"],
    lost: [does.backOff, "retrying"],
    limited: [does.backOff, "retrying"],
    unauthenticated: [does.complain, "auth_required"],
    forbidden: [does.complain, "blocked"],
    gone: [does.complain, "orphaned"],
    conflict: [does.meet, "conflict"],
    ownConflict: [does.rebaseOntoOwn],
    outdated: [does.complain, "reload_required"],
    rejected: [does.drop, "rejected"],
    discard: [does.wishToDiscard],
  },
  retrying: { ...underWay, due: sends, again: sends, online: sends, flush: sends, ...discards },
  conflict: {
    ...edits,
    theirs: [does.keepTheirs],
    theirsSame: [does.takeFile, "clean"],
    theirsOwn: [does.rebaseOntoOwn, "saving"],
    theirsFailed: [does.backOff],
    due: readsTheirs,
    again: readsTheirs,
    online: readsTheirs,
    resume: readsTheirs,
    changed: readsTheirs,
    resolved: [does.resolve, "saving"],
    gone: [does.complain, "orphaned"],
    ...forgets,
    ...discards,
  },
  auth_required: { ...stopped, visible: sends, online: sends, ...discards },
  blocked: { ...stopped, ...forgets, ...discards },
  orphaned: {
    ...stopped,
    restore: [does.restore],
    fileRestored: sends,
    restoreFailed: [does.complain],
    ...forgets,
  },
  rejected: { ...stopped, edit: [does.edit, "dirty"], ...forgets, ...discards },
  reload_required: { ...stopped, ...discards },
  closed: {},
};
