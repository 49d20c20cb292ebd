// All of a user's unsaved work on this device: of files that are deleted too.
import type { Desk } from "./desk";
import type { Slot } from "./drafts";
import { hold, live, tabOf } from "./writer";

/** Unsaved work that is kept on this device. */
export interface Kept extends Slot {
  /** A session works on it, here or in a tab that lives: then it is not to be touched. Undefined where there are no locks to ask. */
  open: boolean | undefined;
}

/** All of it, or one file's. */
export async function kept(desk: Desk, file?: string): Promise<Kept[]> {
  const alive = await live(desk.env);
  return (await desk.drafts.all(file)).map((s) => ({ ...s, open: isOwn(desk, s) ? isHere(desk, s) : alive(s.writer) }));
}

const isOwn = (desk: Desk, slot: Slot): boolean => tabOf(slot.writer) === desk.writer;
const isHere = (desk: Desk, slot: Slot): boolean => desk.known.get(slot.file)?.slotKey === slot.key;

/**
 * Does something to a slot while its tab cannot come back to it. sure is false where there are no locks: then nobody
 * can know. False: a session works on it, and nothing was done.
 */
export async function alone(desk: Desk, slot: Slot, what: (sure: boolean) => void | Promise<void>): Promise<boolean> {
  const own = isOwn(desk, slot); // this tab has its lock already
  const release = own ? null : await hold(desk.env, slot.writer);
  if (own ? isHere(desk, slot) : desk.env.locks && !release) return false;
  try {
    await what(own || release !== null);
    return true;
  } finally {
    release?.();
  }
}

/** Deletes unsaved work that no session works on. False: one does. */
export const forget = (desk: Desk, slot: Slot): Promise<boolean> => alone(desk, slot, () => desk.drafts.drop(slot.key));

/**
 * Before the user signs out: saves what can be saved, and asks about what is left on this device. ask returns whether
 * to delete it. Null cancels. True: nothing is left here that the user did not decide about.
 */
export async function leave(desk: Desk, ask: (left: Kept[]) => Promise<"keep" | "delete" | null>): Promise<boolean> {
  await Promise.all([...desk.known.values()].map((s) => s.flush()));
  const left = await kept(desk);
  if (left.length === 0) return true;
  const decided = await ask(left);
  if (decided === "delete") for (const slot of left) desk.drafts.drop(slot.key);
  return decided !== null;
}
