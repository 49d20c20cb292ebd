import { ask, write } from "./actions";
import { inputOf, type Context } from "./input";
import { isDirty, type Effect, type Event, type Phase, type State } from "./state";
import { table } from "./table";

/**
 * The session's core: what an event does to a state, and what is to be done outside. It has no clock, no storage, no
 * network and no chance in it, and leaves the state that it is given as it was.
 */
export function step<C>(s: State<C>, e: Event<C>, cx: Context<C>): [State<C>, Effect<C>[]] {
  const out: Effect<C>[] = [];
  const n: State<C> = { ...s };
  if (e.type === "open") {
    n.nonce = e.nonce;
    n.draft = e.draft;
    n.keeping = e.keeping;
    ask(n, out, "first");
    return [n, out];
  }
  if (e.type === "named" && n.file) n.file = { ...n.file, name: e.name };
  const facts = inputOf(s, e, cx);
  if (e.type === "resume" && n.request) out.push({ do: "abort", id: n.request.id });
  if (e.type === "resume" || facts.answer) n.request = null;
  const [then, to] = (facts.input && table[s.phase][facts.input]) || [];
  if (to) n.phase = to;
  then?.(n, out, facts, cx, e);
  keepDraft(n, e, cx, out);
  readOn(n, out);
  return [n, out];
}

export const editable = (p: Phase): boolean => !/^(loading|unavailable|closed)$/.test(p);

// Unsaved work is in its slot, or a timer for that runs: a slot is not written for every key that is pressed.
function keepDraft<C>(n: State<C>, e: Event<C>, cx: Context<C>, out: Effect<C>[]): void {
  const due = e.type === "timer" && e.timer === "draft";
  if (due) n.armed = false;
  if (e.type === "drafted") n.keeping = e.outcome;
  if (e.type === "slotLost") n.stale = true;
  if (!isDirty(n) || !editable(n.phase)) n.stale = false;
  if (!n.stale) return;
  if (due || /^(hide|slotLost|adopt|answer)$/.test(e.type)) write(n, out, cx);
  else if (!n.armed) {
    n.armed = true;
    out.push({ do: "set", timer: "draft" });
  }
}

// Reads wait until nothing else is under way.
function readOn<C>(n: State<C>, out: Effect<C>[]): void {
  if (n.request || n.phase === "saving") return;
  if (n.wantDiscard && editable(n.phase)) {
    n.wantDiscard = false;
    ask(n, out, "discard");
  } else if (n.wantRead && (n.phase === "clean" || n.phase === "dirty")) {
    n.wantRead = false;
    ask(n, out, "refresh");
  }
}
