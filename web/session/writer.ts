import { attempt, type Environment } from "./environment";

/** The tab that a writer is of: beside a slot that it cannot read, a tab writes under its name and a number. */
export const tabOf = (writer: string): string => writer.split("_")[0];
const name = (writer: string): string => "weir.writer/" + tabOf(writer);

/**
 * Holds a writer's lock. Null: somebody else holds it. The lock ends with the page, or with release.
 */
export function hold(env: Environment, writer: string): Promise<(() => void) | null> {
  return new Promise((done) => {
    const none = () => done(null);
    if (!env.locks) return none();
    env.locks.request(name(writer), { ifAvailable: true }, (lock) => (lock ? new Promise<void>(done) : none())).catch(none);
  });
}

/** Says of a writer whether its tab lives: undefined where there are no locks to ask. */
export async function live({ locks }: Environment): Promise<(writer: string) => boolean | undefined> {
  const held = locks && new Set((await locks.query()).held?.map((l) => l.name));
  return (writer) => held?.has(name(writer));
}

/**
 * Who this tab is. The id outlives a reload. A duplicated tab has a copy of it: whoever does not get the lock takes
 * another one, and so does everybody where there are no locks to ask.
 */
export async function claim(env: Environment): Promise<{ writer: string; release: () => void }> {
  const key = "weir.writer";
  let writer = attempt(() => env.tab?.getItem(key)) ?? "";
  let release = /^[a-z0-9-]{8,48}$/i.test(writer) ? await hold(env, writer) : null;
  if (!release) {
    writer = env.id();
    release = await hold(env, writer);
    // Where this is forbidden, a reload is another writer.
    attempt(() => env.tab?.setItem(key, writer));
  }
  return { writer, release: release ?? (() => undefined) };
}
