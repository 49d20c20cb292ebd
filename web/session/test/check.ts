// What tests are made of. The Go test that runs them lists them by name and calls them one by one.
const tests: [string, () => void | Promise<void>][] = [];

export function test(name: string, body: () => void | Promise<void>): void {
  tests.push([name, body]);
}
export const all = (): [string, () => void | Promise<void>][] => tests;

const show = (v: unknown): string => {
  const text = JSON.stringify(v);
  return text === undefined ? String(v) : text.length > 500 ? text.slice(0, 500) + "…" : text;
};

export function is(got: unknown, want: unknown, what = ""): void {
  const [a, b] = [JSON.stringify(got), JSON.stringify(want)];
  if (a !== b) throw new Error(what + ": got " + show(got) + ", want " + show(want));
}
export function ok(v: unknown, what: string): asserts v {
  if (!v) throw new Error(what);
}
export function throws(f: () => unknown, what: string): void {
  try {
    f();
  } catch {
    return;
  }
  throw new Error(what + ": nothing was thrown");
}
export async function rejects(p: Promise<unknown>, what: string): Promise<void> {
  let failed = false;
  await p.catch(() => (failed = true));
  if (!failed) throw new Error(what + ": it was done");
}
