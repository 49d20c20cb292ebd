// Unsaved work of one document in other slots: of other tabs, and of tabs that are gone.
import { textOf } from "./content";
import type { Slot } from "./drafts";
import { same } from "./input";
import { alone, forget, found, kept, type Kept } from "./kept";
import type { Session } from "./session";
import type { Draft } from "./types";

export interface Sibling<C> extends Kept {
  draft?: Draft<C>;
}

/** The siblings of a session's own slot. What was saved after all, or was adopted here, is cleared away first. */
export async function siblings<C>(session: Session<C>): Promise<Sibling<C>[]> {
  const { desk, id } = session;
  const out: Sibling<C>[] = [];
  for (const slot of (await kept(desk, id)) as Sibling<C>[]) {
    if (slot.key === session.slotKey) continue;
    const gone = slot.draft && slot.open === false && (await settled(session, slot.draft)) && (await forget(desk, slot));
    if (!gone) out.push(slot);
  }
  return out;
}

/**
 * Takes over a sibling's work, as it is by now: it becomes unsaved work of this tab, on its own base, and its slot is
 * deleted once this one is there. It throws when there is unsaved work here, or when the sibling's tab lives.
 */
export async function adopt<C>(session: Session<C>, sibling: Slot): Promise<void> {
  const { desk } = session;
  const done = await alone(desk, sibling, async () => {
    const draft = (await found(desk, sibling))?.draft as Draft<C> | undefined;
    if (!draft) throw new Error("this draft cannot be read here, or is gone");
    if (session.state().phase !== "clean") throw new Error("save or discard what is here first");
    session.dispatch({ type: "adopt", draft });
    if (desk.env.locks && holds(session, draft)) desk.drafts.drop(sibling.key);
    return true;
  });
  if (!done) throw new Error("it is open in another tab");
}

/** Deletes a sibling's work. It throws when its tab lives or nobody can know, and when there is other work by now. */
export async function discardSibling<C>({ desk }: Session<C>, sibling: Slot): Promise<void> {
  if (!desk.env.locks) throw new Error("whether its tab is open cannot be known here");
  if (!(await forget(desk, sibling))) throw new Error("it is open in another tab, or has changed");
}

// The own slot has what was adopted from another one. The hash is the quick way to see that it has not.
function holds<C>({ desk, slotKey }: Session<C>, d: Draft<C>): boolean {
  const own = desk.drafts.now(slotKey)?.draft;
  return own?.adoptedFrom === d.writer && own.hash === d.hash && textOf(own.content) === textOf(d.content);
}

// A draft whose tab is gone may say what is stored, what was adopted here, or what was saved before the answer was lost.
async function settled<C>(session: Session<C>, d: Draft<C>): Promise<boolean> {
  const { desk, kind } = session;
  const { phase, content } = session.state();
  if (holds(session, d) || (phase === "clean" && same(kind, d.content, content as C))) return true;
  return d.inflight?.seq === d.seq && (await desk.http.send("GET", session.path("/saves/", d.inflight.saveId))).is === "ok";
}
