/** Deep equality of JSON values, whatever the order of keys. */
export function equal(a: unknown, b: unknown): boolean {
  if (a === b) return true;
  if (typeof a !== "object" || typeof b !== "object" || a === null || b === null) return false;
  if (Array.isArray(a) !== Array.isArray(b)) return false;
  const x = a as Record<string, unknown>;
  const y = b as Record<string, unknown>;
  const keys = Object.keys(x);
  return keys.length === Object.keys(y).length && keys.every((k) => Object.prototype.hasOwnProperty.call(y, k) && equal(x[k], y[k]));
}

// Contents are never changed in place, so the text and the hash of the last one need not be made twice: a draft and a
// save of the same edit share them.
let last: { content: unknown; text: string; hash?: string } | undefined;

/** The JSON of a content. */
export function textOf(content: unknown): string {
  if (last?.content !== content) last = { content, text: JSON.stringify(content) };
  return last!.text;
}

/** A hash (FNV-1a) of a content's JSON. It tells contents apart by accident only, so whoever deletes something compares the text too. */
export function hashOf(content: unknown): string {
  const text = textOf(content);
  if (last!.hash === undefined) {
    let h = 0x811c9dc5;
    for (let i = 0; i < text.length; i++) h = Math.imul(h ^ text.charCodeAt(i), 0x01000193);
    last!.hash = text.length + "." + (h >>> 0);
  }
  return last!.hash!;
}

/** The JSON of an object and its content. */
export const withContent = (head: object, content: unknown): string => JSON.stringify(head).slice(0, -1) + ',"content":' + textOf(content) + "}";
