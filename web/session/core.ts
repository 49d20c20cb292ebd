import { abandon, ask, write } from "./actions";
import { inputOf, type Context, type Turn } from "./input";
import { isDirty, type Effect, type Event, type Phase, type State } from "./state";
import { table } from "./table";

/**
 * The session's core: what an event does to a state, and what is to be done outside. It has no clock, no storage, no
 * network and no chance in it, and leaves the state that it is given as it was. What changes nothing gives back the same one.
 */
export function step<C>(s: State<C>, e: Event<C>, cx: Context<C>): [State<C>, Effect<C>[]] {
  // The answer to something that nobody waits for any more.
  if (e.type === "answer" && s.request?.id !== e.id) return [s, []];
  const out: Effect<C>[] = [];
  const n: State<C> = { ...s };
  const t: Turn<C> = { ...e, ...inputOf(s, e, cx), cx, out };
  if (e.type === "named" && n.file) n.file = { ...n.file, name: e.name };
  if (t.answer) n.request = null;
  if (e.type === "resume") abandon(n, t);
  const [then, to] = (t.input && table[s.phase][t.input]) || [];
  if (to) n.phase = to;
  then?.(n, t);
  keepDraft(n, e, t);
  readOn(n, t);
  const changed = (Object.keys(n) as (keyof State<C>)[]).some((k) => n[k] !== s[k]);
  return [changed ? n : s, out];
}

export const editable = (p: Phase): boolean => !/^(loading|unavailable|closed)$/.test(p);

// Unsaved work is in its slot, or a timer for that runs: a slot is not written for every key that is pressed.
function keepDraft<C>(n: State<C>, e: Event<C>, t: Turn<C>): void {
  const due = e.type === "timer" && e.timer === "draft";
  if (due) n.armed = false;
  if (e.type === "drafted") n.keeping = e.outcome;
  // Of a page that sleeps in the back/forward cache nobody's slot is safe.
  if (/^(slotLost|resume)$/.test(e.type)) n.stale = true;
  if (!isDirty(n) || !editable(n.phase)) n.stale = false;
  if (!n.stale) return;
  if (due || /^(hide|slotLost|resume|adopt|answer)$/.test(e.type)) write(n, t);
  else if (!n.armed) {
    n.armed = true;
    t.out.push({ do: "set", timer: "draft" });
  }
}

// Reads wait until nothing else is under way.
function readOn<C>(n: State<C>, t: Turn<C>): void {
  if (n.request || n.phase === "saving") return;
  if (n.wantDiscard && editable(n.phase)) {
    n.wantDiscard = false;
    ask(n, t, "discard");
  } else if (n.wantRead && /^(clean|dirty)$/.test(n.phase)) {
    n.wantRead = false;
    ask(n, t, "refresh");
  }
}
