// All of a user's unsaved work on this device: of files that are deleted too.
import type { Desk } from "./desk";
import type { Slot } from "./drafts";
import { hold, live } from "./writer";

/** Unsaved work that is kept on this device. */
export interface Kept extends Slot {
  open: boolean;
}

export async function kept(desk: Desk): Promise<Kept[]> {
  const alive = await live(desk.env);
  return (await desk.drafts.all()).map((s) => ({ ...s, open: desk.own(s.writer) ? desk.known.has(s.file) : alive(s.writer) }));
}

/** Deletes unsaved work of a tab that is gone. False: its tab lives. */
export async function forget(desk: Desk, slot: Slot): Promise<boolean> {
  const release = desk.own(slot.writer) ? !desk.known.has(slot.file) : await hold(desk.env, slot.writer);
  if (desk.env.locks && !release) return false;
  desk.drafts.drop(slot.key);
  if (typeof release === "function") release();
  return true;
}

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
