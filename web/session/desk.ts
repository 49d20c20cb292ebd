import { Drafts, type Slot } from "./drafts";
import { browser, type Environment } from "./environment";
import { hints } from "./hints";
import { Http } from "./http";
import { Session } from "./session";
import type { Event } from "./state";
import type { Kind } from "./types";
import { claim, hold, live } from "./writer";

export interface DeskConfig {
  /** Who the work belongs to. The server refuses requests under another session, and other users' drafts are never seen. */
  user: string;
  /** Kinds whose drafts may be here beside those of the sessions that are opened. */
  kinds: Kind<any>[];
  /** Where the API is. Defaults to /api/desk/. */
  base?: string;
  environment?: Environment;
}

/** Unsaved work that is kept on this device. */
export interface Kept extends Slot {
  open: boolean;
}

/** The documents of one user in one tab: it hands the same session to each view of a document. */
export class Desk {
  readonly env: Environment;
  readonly user: string;
  readonly http: Http;
  readonly drafts: Drafts;
  writer = "";
  private sessions = new Map<string, Promise<Session<any>>>();
  private known = new Map<string, Session<any>>();
  private channel: BroadcastChannel | undefined;
  private release = () => undefined as void;

  private constructor(config: DeskConfig) {
    this.env = config.environment ?? browser();
    this.user = config.user;
    this.http = new Http(this.env, config.user, config.base);
    this.drafts = new Drafts(this.env, config.user, (type, schema) => config.kinds.some((k) => k.type === type && k.schema >= schema));
  }

  /** Claims a writer id for this tab, and begins to listen to the page's life. One for each page. */
  static async start(config: DeskConfig): Promise<Desk> {
    const desk = new Desk(config);
    ({ writer: desk.writer, release: desk.release } = await claim(desk.env));
    desk.listen();
    return desk;
  }

  /** The session of a document. Close it when the view is gone. */
  open<C>(file: string, kind: Kind<C>): Promise<Session<C>> {
    let s = this.sessions.get(file) as Promise<Session<C>> | undefined;
    if (!s) {
      const fresh = new Session<C>(this, file, kind);
      this.known.set(file, fresh);
      s = fresh.start().then(() => fresh);
      this.sessions.set(file, s);
    }
    const session = this.known.get(file) as Session<C>;
    if (session.kind !== kind) throw new Error("the document is open as another kind");
    session.views++;
    return s;
  }

  /** For sessions: one without views and without work is let go. */
  left(s: Session<any>): void {
    if (!s.idle || this.known.get(s.id) !== s) return;
    this.known.delete(s.id);
    this.sessions.delete(s.id);
  }

  /** All of the user's unsaved work on this device: of files that are deleted too. */
  async kept(): Promise<Kept[]> {
    const alive = await live(this.env);
    return (await this.drafts.all()).map((s) => ({ ...s, open: this.own(s.writer) ? this.known.has(s.file) : alive(s.writer) }));
  }

  private own(writer: string): boolean {
    return writer.split("_")[0] === this.writer;
  }

  /** Deletes unsaved work of a tab that is gone. False: its tab lives. */
  async forget(slot: Slot): Promise<boolean> {
    const release = this.own(slot.writer) ? !this.known.has(slot.file) : await hold(this.env, slot.writer);
    if (this.env.locks && !release) return false;
    this.drafts.drop(slot.key);
    if (typeof release === "function") release();
    return true;
  }

  /**
   * Before the user signs out: saves what can be saved, and asks about what is left on this device. ask returns whether
   * to delete it. Null cancels. True: nothing is left here that the user did not decide about.
   */
  async leave(ask: (left: Kept[]) => Promise<"keep" | "delete" | null>): Promise<boolean> {
    await Promise.all([...this.known.values()].map((s) => s.flush()));
    const left = await this.kept();
    if (left.length === 0) return true;
    const decided = await ask(left);
    if (decided === "delete") for (const slot of left) this.drafts.drop(slot.key);
    return decided !== null;
  }

  announce(file: string, version: number): void {
    this.channel?.postMessage({ file, version });
  }

  private all(e: Event<never>): void {
    for (const s of this.known.values()) s.dispatch(e);
  }

  private listen(): void {
    const { window } = this.env;
    const on = (type: string, f: (e: any) => void) => window.addEventListener(type, f);
    this.channel = this.env.channel?.("weir.desk/" + encodeURIComponent(this.user));
    if (this.channel) this.channel.onmessage = (e) => this.hear(e.data);
    const hint = hints(this.env, this.http.base, () => [...this.known.keys()], (m) => this.hear(m));

    on("storage", (e: StorageEvent) => {
      for (const s of this.known.values()) if (e.key === null || e.key === s.slotKey) s.dispatch({ type: "slotLost" });
    });
    on("online", () => this.all({ type: "online" }));
    on("pagehide", (e: PageTransitionEvent) => {
      this.all({ type: "hide" });
      hint(false);
      // A page that is only kept for the way back is not alive: its work may be taken over, and a lock would keep it from being kept.
      if (e.persisted) this.release();
    });
    on("pageshow", (e: PageTransitionEvent) => {
      if (!e.persisted) return;
      void hold(this.env, this.writer).then((release) => {
        // Another tab has the name now, a copy of this one: a page that is loaded anew takes another one.
        if (!release && this.env.locks) return this.env.reload();
        if (release) this.release = release;
        this.all({ type: "resume" });
        hint(true);
      });
    });
    on("beforeunload", (e: Event_) => {
      if ([...this.known.values()].some((s) => s.unkept)) {
        e.preventDefault();
        e.returnValue = true;
      }
    });
    window.document?.addEventListener("visibilitychange", () => {
      const visible = window.document?.visibilityState === "visible";
      this.all({ type: visible ? "visible" : "hide" });
      hint(visible);
    });
    hint(true);
  }

  private hear(m: { file?: unknown; version?: unknown } | null): void {
    if (m && typeof m.file === "string" && typeof m.version === "number") this.known.get(m.file)?.dispatch({ type: "changed", version: m.version });
  }
}

interface Event_ {
  preventDefault(): void;
  returnValue: unknown;
}
