import { Drafts } from "./drafts";
import { browser, type Environment } from "./environment";
import type { Hints } from "./hints";
import { Http } from "./http";
import { Session } from "./session";
import type { Event } from "./state";
import type { Kind } from "./types";
import { claim, hold, tabOf } from "./writer";

export interface DeskConfig {
  /** Who the work belongs to. The server refuses requests under another session, and other users' drafts are never seen. */
  user: string;
  /** Kinds whose drafts may be here beside those of the sessions that are opened. */
  kinds: Kind<any>[];
  /** Where the API is. Defaults to /api/desk/. */
  base?: string;
  /** Tells of saves elsewhere: hints of "@weirqueue/session/hints". Without it the tabs of this browser tell each other, and the next save finds out. */
  hints?: Hints;
  environment?: Environment;
}

/** The documents of one user in one tab: it hands the same session to each view of a document. */
export class Desk {
  readonly env: Environment;
  readonly user: string;
  readonly http: Http;
  readonly drafts: Drafts;
  writer = "";
  /** The sessions that are open, by file. */
  readonly known = new Map<string, Session<any>>();
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
    desk.listen(config.hints);
    return desk;
  }

  /** The session of a document. Close it when the view is gone. */
  open<C>(file: string, kind: Kind<C>): Promise<Session<C>> {
    let s = this.known.get(file) as Session<C> | undefined;
    if (!s) this.known.set(file, (s = new Session<C>(this, file, kind)));
    if (s.kind !== kind) throw new Error("the document is open as another kind");
    s.views++;
    return s.started;
  }

  /** For sessions: one without views and without work is let go. */
  left(s: Session<any>): void {
    if (!s.idle || this.known.get(s.id) !== s) return;
    this.known.delete(s.id);
  }

  /** Whether a writer is this tab. */
  own(writer: string): boolean {
    return tabOf(writer) === this.writer;
  }

  announce(file: string, version: number): void {
    this.channel?.postMessage({ file, version });
  }

  private all(e: Event<never>): void {
    for (const s of this.known.values()) s.dispatch(e);
  }

  private listen(hints?: Hints): void {
    const { window } = this.env;
    const on = (type: string, f: (e: any) => void) => window.addEventListener(type, f);
    const hear = (m: any): void => {
      if (typeof m?.version === "number") this.known.get(m.file)?.dispatch({ type: "changed", version: m.version });
    };
    this.channel = this.env.channel?.("weir.desk/" + encodeURIComponent(this.user));
    if (this.channel) this.channel.onmessage = (e) => hear(e.data);
    const hint = hints?.(this.env, this.http.base, () => [...this.known.keys()], hear);

    on("storage", (e: StorageEvent) => {
      for (const s of this.known.values()) if (e.key === null || e.key === s.slotKey) s.dispatch({ type: "slotLost" });
    });
    on("online", () => this.all({ type: "online" }));
    on("pagehide", (e: PageTransitionEvent) => {
      this.all({ type: "hide" });
      hint?.(false);
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
        hint?.(true);
      });
    });
    on("beforeunload", (e: Event_) => {
      for (const s of this.known.values()) {
        if (!s.unkept) continue;
        e.preventDefault();
        e.returnValue = true;
      }
    });
    const { document } = window;
    document?.addEventListener("visibilitychange", () => {
      const visible = document.visibilityState === "visible";
      this.all({ type: visible ? "visible" : "hide" });
      hint?.(visible);
    });
    hint?.(true);
  }
}

interface Event_ {
  preventDefault(): void;
  returnValue: unknown;
}
