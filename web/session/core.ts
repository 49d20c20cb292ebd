import { actions, ask, write } from "./actions";
import { inputOf, type Context } from "./input";
import { isDirty, type Effect, type Event, type Phase, type State } from "./state";
import { table, type Input, type Row } from "./table";

const rows = new Map<string, Row>();
for (const row of table) for (const from of row[0]) rows.set(from + " " + row[1], row);

/** The row for an input, or undefined: nothing changes then. */
export const rowFor = (from: Phase, on: Input): Row | undefined => rows.get(from + " " + on);

/**
 * The session's core: what an event does to a state, and what is to be done outside. It has no clock, no storage, no
 * network and no chance in it, and leaves the state that it is given as it was.
 */
export function step<C>(s: State<C>, e: Event<C>, cx: Context<C>): [State<C>, Effect<C>[]] {
  const out: Effect<C>[] = [];
  const n: State<C> = { ...s, slot: { ...s.slot } };
  if (e.type === "open") {
    n.nonce = e.nonce;
    n.draft = e.draft;
    n.slot.keeping = e.keeping;
    out.push({ do: "read", id: ask(n, "first", out) });
    return [n, out];
  }
  const facts = inputOf(s, e, cx);
  if (e.type === "resume" && n.request) {
    out.push({ do: "abort", id: n.request.id });
    n.request = null;
  }
  const row = facts.input && rowFor(s.phase, facts.input);
  const answered = e.type === "answer" && s.request?.id === e.id;
  if (answered) n.request = null;
  if (row) {
    if (row[2] !== "=") n.phase = row[2];
    (actions[row[3]] as (typeof actions)["send"])(n, e as never, facts as never, cx as never, out as never);
  }
  keepDraft(n, e, cx, out);
  readOn(n, out);
  return [n, out];
}

const editable = (p: Phase): boolean => p !== "loading" && p !== "unavailable" && p !== "closed";

// Unsaved work is in its slot, or a timer for that runs: a slot is not written for every key that is pressed.
function keepDraft<C>(n: State<C>, e: Event<C>, cx: Context<C>, out: Effect<C>[]): void {
  if (e.type === "timer" && e.timer === "draft") n.slot.armed = false;
  if (e.type === "drafted") n.slot.keeping = e.outcome;
  if (e.type === "slotLost") n.slot.stale = true;
  if (!isDirty(n) || !editable(n.phase)) {
    n.slot.stale = false;
    return;
  }
  if (!n.slot.stale) return;
  if (e.type === "hide" || e.type === "slotLost" || e.type === "adopt" || (e.type === "timer" && e.timer === "draft") || e.type === "answer") {
    write(n, cx, out);
    return;
  }
  if (!n.slot.armed) {
    n.slot.armed = true;
    out.push({ do: "set", timer: "draft" });
  }
}

// Reads wait until nothing else is under way.
function readOn<C>(n: State<C>, out: Effect<C>[]): void {
  if (n.request || n.phase === "saving") return;
  if (n.wantDiscard && editable(n.phase)) {
    n.wantDiscard = false;
    out.push({ do: "read", id: ask(n, "discard", out) });
  } else if (n.wantRead && (n.phase === "clean" || n.phase === "dirty")) {
    n.wantRead = false;
    out.push({ do: "read", id: ask(n, "refresh", out) });
  }
}
