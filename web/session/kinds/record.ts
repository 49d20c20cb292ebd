import { equal } from "../content";
import type { Clash, Kind, Merge } from "../types";

export type Attributes = Record<string, unknown>;
export interface RecordContent {
  attributes: Attributes;
}

const has = (o: Attributes, id: string): boolean => Object.prototype.hasOwnProperty.call(o, id);
const at = (o: Attributes, id: string): unknown => (has(o, id) ? o[id] : undefined);

/**
 * Merges by attribute id. What one side changed is taken; what both changed alike is no clash; what both changed
 * differently, a deletion against a change included, is mine and is reported. Order: theirs, then what I added.
 */
export function mergeRecords(base: RecordContent, mine: RecordContent, theirs: RecordContent): Merge<RecordContent> {
  const [b, m, t] = [base.attributes, mine.attributes, theirs.attributes];
  const clashes: Clash[] = [];
  const out: Attributes = Object.create(null);
  for (const id of new Set([...Object.keys(t), ...Object.keys(m), ...Object.keys(b)])) {
    const [x, y, z] = [at(b, id), at(m, id), at(t, id)];
    const iChanged = !equal(x, y);
    const theyChanged = !equal(x, z);
    if (iChanged && theyChanged && !equal(y, z)) clashes.push({ id, base: x, mine: y, theirs: z });
    const from = iChanged ? m : t;
    if (has(from, id)) out[id] = from[id];
  }
  return { content: { attributes: { ...out } }, clashes };
}

/** Records: attributes of any value, each with an id. They merge. */
export const record: Kind<RecordContent> = {
  type: "record",
  schema: 1,
  read(content) {
    const c = content as Partial<RecordContent> | null;
    return c && typeof c.attributes === "object" && c.attributes !== null && !Array.isArray(c.attributes) ? (c as RecordContent) : undefined;
  },
  merge: mergeRecords,
};
