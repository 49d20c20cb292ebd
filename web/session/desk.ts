import { draftsOf, type Drafts } from "./drafts";
import { attempt, browser, type Environment } from "./environment";
import type { Hints } from "./hints";
import { httpOf, type Http } from "./http";
import { isVersion } from "./judge";
import { sessionOf, type Session } from "./session";
import type { Kind } from "./types";
import { claim, hold } from "./writer";

export interface DeskConfig {
  /** Who the work belongs to. The server refuses requests under another session, and other users' drafts are never seen. */
  user: string;
  /** Kinds whose drafts may be here beside those of the sessions that are opened. Drafts of another kind are kept, and not read. */
  kinds: Kind<any>[];
  /** Where the API is. Defaults to /api/desk/. */
  base?: string;
  /** Tells of saves elsewhere: hints of "@weirqueue/session/hints". Without it the tabs of this browser tell each other, and the next save finds out. */
  hints?: Hints;
  environment?: Environment;
}

/** The documents of one user in one tab: it hands the same session to each view of a document. */
export interface Desk {
  readonly env: Environment;
  readonly user: string;
  readonly http: Http;
  readonly drafts: Drafts;
  /** Who this tab is. */
  readonly writer: string;
  /** The sessions that are open, by file. */
  readonly known: Map<string, Session<any>>;
  /** The session of a document. Close it when the view is gone. */
  open<C>(file: string, kind: Kind<C>): Promise<Session<C>>;
  /** For sessions: tells the other tabs of a save. */
  announce(file: string, version: number): void;
}

export const Desk = {
  /** Claims a writer id for this tab, and begins to listen to the page's life. One for each page. */
  async start({ user, kinds, base, hints, environment: env = browser() }: DeskConfig): Promise<Desk> {
    const { window, locks } = env;
    const { document } = window;
    const known: Desk["known"] = new Map();
    const all = new Set(kinds);
    const http = httpOf(env, user, base);
    let { writer, release } = await claim(env);
    const hear = (m: any): void => {
      if (isVersion(m?.version)) known.get(m.file)?.dispatch({ type: "changed", version: m.version });
    };
    const channel = attempt(() => env.channel?.("weir.desk/" + encodeURIComponent(user)));
    if (channel) channel.onmessage = (e) => hear(e.data);
    const hint = hints?.(env, http.base, () => [...known.keys()], hear);

    const each = (f: (s: Session<any>) => void) => [...known.values()].forEach(f);
    const tell = (type: "online" | "hide" | "visible") => each((s) => s.dispatch({ type }));
    const on = (type: string, f: (e: any) => void) => window.addEventListener(type, f);
    on("storage", ({ key }: StorageEvent) => each((s) => (key === null || key === s.slotKey) && s.dispatch({ type: "slotLost" })));
    on("online", () => tell("online"));
    on("pagehide", (e: PageTransitionEvent) => {
      tell("hide");
      hint?.(false);
      // A page that is only kept for the way back is not alive: its work may be taken over, and a lock would keep it from being kept.
      if (e.persisted) release();
    });
    on("pageshow", async (e: PageTransitionEvent) => {
      if (!e.persisted) return;
      const held = await hold(env, writer);
      // Another tab has the name now, a copy of this one: a page that is loaded anew takes another one.
      if (!held && locks) return env.reload();
      release = held ?? release;
      each((s) => s.resume());
      hint?.(true);
    });
    on("beforeunload", (e: Event) => {
      each((s) => {
        const { unsaved, keeping } = s.state();
        if (!unsaved || keeping === "kept") return;
        e.preventDefault();
        (e as BeforeUnloadEvent).returnValue = true;
      });
    });
    document?.addEventListener("visibilitychange", () => {
      const visible = document.visibilityState === "visible";
      tell(visible ? "visible" : "hide");
      hint?.(visible);
    });
    hint?.(true);

    const desk: Desk = {
      env, user, http, writer, known,
      drafts: draftsOf(env, user, all),
      announce: (file, version) => channel?.postMessage({ file, version }),
      open(file, kind) {
        all.add(kind);
        const s = known.get(file) ?? sessionOf(desk, file, kind);
        known.set(file, s);
        if (s.kind !== kind) throw new Error("it is open as another kind");
        return s.open();
      },
    };
    return desk;
  },
};
