import { withContent } from "./content";
import { attempt, type Environment } from "./environment";
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
  /** What was written last. */
  private last: { text: string; seq: number } | undefined;

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
    const { content, base, ...head } = draft;
    const { content: was, ...version } = base;
    const text = '{"base":' + withContent(version, was) + "," + withContent({ ...head, savedAt: this.env.now() }, content).slice(1);
    const key = this.key(draft.file, draft.writer);
    this.last = { text, seq: draft.seq };
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
    const text = this.raw(key);
    // What this tab wrote itself need not be read to be known: that takes as long as the document is large.
    const own = text !== null && text === this.last?.text;
    const slot = own ? null : this.look(key, text);
    const later = own ? this.last!.seq : slot?.draft?.seq;
    if (!slot?.unreadable && !(later! > seq)) this.drop(key);
  }

  drop(key: string): void {
    attempt(() => this.env.local?.removeItem(key));
    void this.mirror.delete(key);
  }

  /** What localStorage holds now. */
  now(file: string, writer: string): Slot | null {
    return this.look(this.key(file, writer));
  }

  /** All slots of this user, or of one file, from both places: the later edit of each. */
  async all(file?: string): Promise<Slot[]> {
    const from = this.mine + (file === undefined ? "" : encodeURIComponent(file) + "/");
    const found = new Map<string, Slot>();
    const take = (key: string, text?: string) => {
      const slot = this.look(key, text);
      const other = found.get(key);
      if (slot && (!other || later(slot, other))) found.set(key, slot);
    };
    for (const key of attempt(() => Object.keys(this.env.local ?? {})) ?? []) if (key.startsWith(from)) take(key);
    // A database that never answers, as some browsers' do at times, must not keep a document from being opened.
    const late = new Promise<[string, string][]>((done) => this.env.window.setTimeout(() => done([]), 10_000));
    for (const [key, text] of await Promise.race([this.mirror.all(from), late])) take(key, text);
    return [...found.values()];
  }

  async read(file: string, writer: string): Promise<Slot | null> {
    const key = this.key(file, writer);
    return (await this.all(file)).find((s) => s.key === key) ?? null;
  }

  private raw(key: string): string | null {
    return attempt(() => this.env.local?.getItem(key));
  }

  private look(key: string, text = this.raw(key)): Slot | null {
    const [file, writer] = attempt(() => key.slice(this.mine.length).split("/").map(decodeURIComponent)) ?? [];
    if (text === null || !writer) return null; // a key that is no slot's is somebody else's
    const slot: Slot = { key, file, writer, text };
    const d = attempt(() => JSON.parse(text) as Draft<unknown>);
    const whole = d && typeof d.seq === "number" && d.base && typeof d.base.version === "number" && Array.isArray(d.mine) && "content" in d && d.file === file;
    if (d && (d.format !== 1 || !this.reads(d.type, d.schema))) slot.unreadable = "newer";
    else if (whole) slot.draft = d;
    else slot.unreadable = "broken";
    return slot;
  }
}

// Of two copies of one slot the unreadable one is kept as it is, and else the later edit counts.
function later(a: Slot, b: Slot): boolean {
  const [x, y] = [a.draft, b.draft];
  if (!x || !y) return !!y;
  return x.base.version > y.base.version || (x.base.version === y.base.version && x.seq > y.seq);
}
