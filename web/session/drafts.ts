import { textOf } from "./content";
import type { Environment } from "./environment";
import { Mirror } from "./mirror";
import type { Keeping } from "./state";
import type { Draft } from "./types";

/** A slot that was found: with its draft, or with why it cannot be read here. Such a one is never touched. */
export interface Slot {
  key: string;
  file: string;
  writer: string;
  text: string;
  draft?: Draft<unknown>;
  unreadable?: "newer" | "broken";
}

const prefix = "weir.draft/";

/**
 * The slots of one user's unsaved work: one for each file and writer. They are written to localStorage at once, and to
 * IndexedDB right after. See docs/adr/0009-drafts-in-two-places.md for what that promises.
 */
export class Drafts {
  private mirror: Mirror;
  private mine: string;

  constructor(
    private env: Environment,
    user: string,
    /** Whether a draft's form is one that this code reads: see Kind.schema. */
    private reads: (type: string, schema: number) => boolean,
  ) {
    this.mirror = new Mirror(env.database);
    this.mine = prefix + encodeURIComponent(user) + "/";
  }

  key(file: string, writer: string): string {
    return this.mine + encodeURIComponent(file) + "/" + encodeURIComponent(writer);
  }

  /** Writes a slot, and says whether it is there. An old value stays when there is no room for the new one. */
  write(draft: Omit<Draft<unknown>, "savedAt">): Keeping {
    if (!this.env.local) return "unavailable";
    const { content, ...head } = draft;
    const text = JSON.stringify({ ...head, savedAt: this.env.now() }).slice(0, -1) + ',"content":' + textOf(content) + "}";
    const key = this.key(draft.file, draft.writer);
    void this.mirror.put(key, text);
    try {
      this.env.local.setItem(key, text);
      return "kept";
    } catch {
      return "behind";
    }
  }

  /** Deletes a slot, unless it holds a later edit than seq. */
  clear(file: string, writer: string, seq: number): void {
    const key = this.key(file, writer);
    const slot = this.look(key, this.raw(key));
    if (slot?.unreadable || (slot?.draft && slot.draft.seq > seq)) return;
    this.drop(key);
  }

  drop(key: string): void {
    try {
      this.env.local?.removeItem(key);
    } catch {
      // forbidden: then there is nothing in it either
    }
    void this.mirror.delete(key);
  }

  /** What localStorage holds now. */
  now(file: string, writer: string): Slot | null {
    const key = this.key(file, writer);
    return this.look(key, this.raw(key));
  }

  /** All slots of this user, or of one file, from both places: the later edit of each. */
  async all(file?: string): Promise<Slot[]> {
    const from = this.mine + (file === undefined ? "" : encodeURIComponent(file) + "/");
    const found = new Map<string, Slot>();
    const take = (key: string, text: string | null) => {
      const slot = this.look(key, text);
      const other = found.get(key);
      if (slot && (!other || later(slot, other))) found.set(key, slot);
    };
    for (const key of this.keys()) if (key.startsWith(from)) take(key, this.raw(key));
    // A database that never answers, as some browsers' do at times, must not keep a document from being opened.
    const late = new Promise<[string, string][]>((done) => this.env.window.setTimeout(() => done([]), 10_000));
    for (const [key, text] of await Promise.race([this.mirror.all(from), late])) take(key, text);
    return [...found.values()];
  }

  async read(file: string, writer: string): Promise<Slot | null> {
    const key = this.key(file, writer);
    return (await this.all(file)).find((s) => s.key === key) ?? null;
  }

  private keys(): string[] {
    try {
      return Object.keys(this.env.local ?? {});
    } catch {
      return [];
    }
  }
  private raw(key: string): string | null {
    try {
      return this.env.local?.getItem(key) ?? null;
    } catch {
      return null;
    }
  }

  private look(key: string, text: string | null): Slot | null {
    if (text === null) return null;
    const [file, writer] = key.slice(this.mine.length).split("/").map(decodeURIComponent);
    const slot: Slot = { key, file, writer, text };
    try {
      const d = JSON.parse(text) as Draft<unknown>;
      const whole = typeof d.seq === "number" && d.base && typeof d.base.version === "number" && Array.isArray(d.mine) && "content" in d && d.file === file;
      if (d.format !== 1 || !this.reads(d.type, d.schema)) slot.unreadable = "newer";
      else if (!whole) slot.unreadable = "broken";
      else slot.draft = d;
    } catch {
      slot.unreadable = "broken";
    }
    return slot;
  }
}

// Of two copies of one slot the unreadable one is kept as it is, and else the later edit counts.
function later(a: Slot, b: Slot): boolean {
  if (b.unreadable || !b.draft) return false;
  if (!a.draft) return true;
  const [x, y] = [a.draft, b.draft];
  return x.base.version > y.base.version || (x.base.version === y.base.version && x.seq > y.seq);
}
