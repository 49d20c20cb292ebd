/** Deep equality of JSON values, whatever the order of keys. */
export function equal(a: any, b: any): boolean {
  if (a === b) return true;
  if (Object(a) !== a || Object(b) !== b || Array.isArray(a) !== Array.isArray(b)) return false;
  const keys = Object.keys(a);
  return keys.length === Object.keys(b).length && keys.every((k) => Object.hasOwn(b, k) && equal(a[k], b[k]));
}

// Contents are never changed in place, so the text and the hash of one need not be made twice: a draft and a save of the
// same edit share them, and so do the drafts that have the same base.
const made = new WeakMap<object, { text: string; hash?: string }>();

function make(content: any): { text: string; hash?: string } {
  let m = made.get(content);
  if (!m) {
    m = { text: JSON.stringify(content) };
    if (Object(content) === content) made.set(content, m);
  }
  return m;
}

/** The JSON of a content. */
export const textOf = (content: unknown): string => make(content).text;

/** A hash (FNV-1a) of a content's JSON. It tells contents apart by accident only, so whoever deletes something compares the text too. */
export function hashOf(content: unknown): string {
  const m = make(content);
  if (!m.hash) {
    let h = 0x811c9dc5;
    for (let i = 0; i < m.text.length; i++) h = Math.imul(h ^ m.text.charCodeAt(i), 0x01000193);
    m.hash = m.text.length + "." + (h >>> 0);
  }
  return m.hash;
}

/** The JSON of an object and its content, if there is one. */
export function withContent(head: object, content: unknown): string {
  const text = JSON.stringify(head);
  return content === undefined ? text : text.slice(0, -1) + ',"content":' + textOf(content) + "}";
}
