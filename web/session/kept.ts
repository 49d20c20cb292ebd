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

/** What is in a slot by now: it may have been written again, or taken, since it was listed. */
export const found = async (desk: Desk, slot: Slot): Promise<Slot | undefined> => (await desk.drafts.all(slot.file)).find((s) => s.key === slot.key);

const isOwn = (desk: Desk, slot: Slot): boolean => tabOf(slot.writer) === desk.writer;
const isHere = (desk: Desk, slot: Slot): boolean => desk.known.get(slot.file)?.slotKey === slot.key;

/**
 * Does something to a slot while its tab cannot come back to it, and returns what that says. False: a session works on
 * it, and nothing was done. Where there are no locks nobody can know.
 */
export async function alone(desk: Desk, slot: Slot, what: () => Promise<boolean>): Promise<boolean> {
  const own = isOwn(desk, slot); // this tab has its lock already
  const release = own ? null : await hold(desk.env, slot.writer);
  if (own ? isHere(desk, slot) : desk.env.locks && !release) return false;
  try {
    return await what();
  } finally {
    release?.();
  }
}

/** Deletes unsaved work, if it still is what was listed and no session works on it. Otherwise false. */
export const forget = (desk: Desk, slot: Slot): Promise<boolean> =>
  alone(desk, slot, async () => {
    const same = (await found(desk, slot))?.text === slot.text;
    if (same) desk.drafts.drop(slot.key);
    return same;
  });

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
