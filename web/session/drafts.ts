import { withContent } from "./content";
import { attempt, type Environment } from "./environment";
import { isVersion } from "./judge";
import { mirrorOf } from "./mirror";
import type { Keeping } from "./state";
import type { Draft, Kind } from "./types";

/** A slot that was found: with its draft, or with why it cannot be read here. Such a one is never touched. */
export interface Slot {
  key: string;
  file: string;
  writer: string;
  text: string;
  draft?: Draft<unknown>;
  unreadable?: "newer" | "broken";
}

/**
 * The slots of one user's unsaved work: one for each file and writer. They are written to localStorage at once, and to
 * IndexedDB right after. See docs/adr/0009-drafts-in-two-places.md for what that promises.
 */
export interface Drafts {
  key(file: string, writer: string): string;
  /** Writes a slot, and says whether it is there. An old value stays when there is no room for the new one. */
  write(draft: Omit<Draft<unknown>, "savedAt">): Keeping;
  /** Deletes a slot, unless it holds a later edit than seq. */
  clear(key: string, seq: number): void;
  drop(key: string): void;
  /** What localStorage holds now. */
  now(key: string): Slot | null;
  /** Whether this page did not write what was found. */
  foreign(slot: Slot): boolean;
  /** All slots of this user, or of one file, from both places: the later edit of each. */
  all(file?: string): Promise<Slot[]>;
}

/** A draft is read as a content of its kind, as a file is. */
export function draftsOf({ local, database, window, now }: Environment, user: string, kinds: Iterable<Kind<unknown>>): Drafts {
  const mirror = mirrorOf(database);
  const mine = "weir.draft/" + encodeURIComponent(user) + "/";
  /** What this page wrote, by key. */
  const written = new Map<string, { text: string; seq: number }>();

  const folder = (file: string): string => mine + encodeURIComponent(file) + "/";
  const keyOf = (file: string, writer: string): string => folder(file) + encodeURIComponent(writer);
  const raw = (key: string): string | null => attempt(() => local?.getItem(key));

  const look = (key: string, text = raw(key)): Slot | null => {
    const [file, writer] = attempt(() => key.slice(mine.length).split("/").map(decodeURIComponent)) ?? [];
    if (text === null || !writer) return null; // a key that is no slot's is somebody else's
    const d = attempt(() => JSON.parse(text) as Draft<unknown>);
    const kind = [...kinds].find((k) => k.type === d?.type && k.schema >= d.schema);
    const read = (content: unknown) => attempt(() => kind!.read(content)) ?? undefined;
    const content = read(d?.content);
    const whole = d && isVersion(d.seq) && isVersion(d.base?.version) && Array.isArray(d.mine) && content !== undefined && d.file === file;
    const unreadable = d && (d.format !== 1 || !kind) ? "newer" : whole ? undefined : "broken";
    return { key, file, writer, text, unreadable, draft: unreadable ? undefined : { ...d!, content, base: { ...d!.base, content: read(d!.base.content) } } };
  };

  const drop = (key: string): void => {
    attempt(() => local?.removeItem(key));
    mirror.delete(key);
  };

  const all = async (file?: string): Promise<Slot[]> => {
    const from = file === undefined ? mine : folder(file);
    const found = new Map<string, Slot>();
    const take = (key: string, text?: string) => {
      const slot = look(key, text);
      const other = found.get(key);
      if (slot && (!other || later(slot, other))) found.set(key, slot);
    };
    for (const key of attempt(() => Object.keys(local ?? {})) ?? []) if (key.startsWith(from)) take(key);
    // A database that never answers, as some browsers' do at times, must not keep a document from being opened.
    const late = new Promise<[string, string][]>((done) => window.setTimeout(() => done([]), 10_000));
    for (const [key, text] of await Promise.race([mirror.all(from), late])) take(key, text);
    return [...found.values()];
  };

  return {
    key: keyOf,
    drop,
    all,
    now: look,
    foreign: ({ key, text }) => text !== written.get(key)?.text,

    write({ content, base: { content: was, ...version }, ...head }) {
      if (!local) return "unavailable";
      const text = '{"base":' + withContent(version, was) + "," + withContent({ ...head, savedAt: now() }, content).slice(1);
      const key = keyOf(head.file, head.writer);
      written.set(key, { text, seq: head.seq });
      mirror.put(key, text);
      try {
        local.setItem(key, text);
        return "kept";
      } catch {
        return "behind";
      }
    },

    clear(key, seq) {
      const text = raw(key);
      // What this page wrote itself need not be read to be known: that takes as long as the document is large.
      const own = written.get(key);
      const slot = text === own?.text ? null : look(key, text);
      const later = slot ? slot.draft?.seq : own?.seq;
      if (!slot?.unreadable && !(later! > seq)) drop(key);
    },
  };
}

// Of two copies of one slot the unreadable one is kept as it is, and else the later edit counts.
function later(a: Slot, b: Slot): boolean {
  const [x, y] = [a.draft, b.draft];
  if (!x || !y) return !!y;
  return x.base.version > y.base.version || (x.base.version === y.base.version && x.seq > y.seq);
}
