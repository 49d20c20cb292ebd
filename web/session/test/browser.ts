// A browser of which only what is asked for is there: tabs that share a storage and locks, with the real desk and session in each
// of them, before the server of world.ts. Nothing in it takes time: timers are fired by the test.
import { Desk } from "../desk";
import type { Environment } from "../environment";
import type { Session } from "../session";
import type { Kind } from "../types";
import { noReply, type Server } from "./world";
import type { Reply } from "../judge";

export class Store {
  [key: string]: unknown;
  static full = false;
  getItem(k: string): string | null {
    return Object.prototype.hasOwnProperty.call(this, k) ? (this[k] as string) : null;
  }
  setItem(k: string, v: string): void {
    if (Store.full) throw new Error("QuotaExceededError");
    this[k] = v;
  }
  removeItem(k: string): void {
    delete this[k];
  }
}

const global = globalThis as any;
global.AbortController ??= class {
  signal = {};
  abort() {}
};
global.TextEncoder ??= class {
  encode = (s: string) => ({ length: unescape(encodeURIComponent(s)).length });
};

export function locksOf(locked: Set<string>): LockManager {
  return {
    request(name: string, _o: object, f: (lock: object | null) => unknown) {
      if (locked.has(name)) return Promise.resolve(f(null));
      locked.add(name);
      return Promise.resolve(f({ name })).then(() => void locked.delete(name));
    },
    query: () => Promise.resolve({ held: [...locked].map((name) => ({ name })) }),
  } as unknown as LockManager;
}

export class Browser {
  local = new Store();
  locked = new Set<string>();
  /** What the network makes of a request; null: nobody answers. */
  network: (method: string, path: string, body: string) => Reply | null = (method, path, body) => this.serve(method, path, body);
  asked: string[] = [];
  private ids = 0;
  constructor(public server: Server) {}

  serve(method: string, path: string, body: string): Reply {
    if (method === "PUT") return this.server.put(body);
    if (path.endsWith("/restore")) this.server.deleted = false;
    const probe = /\/saves\/(.*)$/.exec(path);
    return probe ? this.server.probe(decodeURIComponent(probe[1])) : this.server.get();
  }

  /** A tab; with the sessionStorage of one before, it is that one again. */
  async tab(kinds: Kind<any>[], tab = new Store()): Promise<Page> {
    const page = new Page(this, tab);
    page.desk = await Desk.start({ user: "ada", kinds, environment: page.environment("browser-" + ++this.ids + "-") });
    return page;
  }
}

export class Page {
  desk!: Desk;
  timers = new Map<number, () => void>();
  reloads = 0;
  private listeners = new Map<string, ((e: any) => void)[]>();
  private count = 0;
  constructor(
    public browser: Browser,
    public tab: Store,
  ) {}

  environment(prefix: string): Environment {
    const { browser } = this;
    return {
      fetch: (url: string, init: RequestInit) => {
        const path = url.replace("/api/desk/", "");
        browser.asked.push(init.method + " " + path);
        const r = browser.network(init.method!, path, init.body as string);
        if (!r || r === noReply) return Promise.reject(new Error("no answer"));
        return Promise.resolve({ status: r.status, headers: { get: (name: string) => (name === "Content-Type" ? r.type : null) }, text: () => Promise.resolve(r.body ?? "") });
      },
      local: browser.local, tab: this.tab, database: null, locks: locksOf(browser.locked), channel: null,
      window: {
        addEventListener: (type: string, f: (e: any) => void) => void this.listeners.set(type, [...(this.listeners.get(type) ?? []), f]),
        setTimeout: (f: () => void) => (this.timers.set(++this.count, f), this.count),
        clearTimeout: (id: number) => void this.timers.delete(id),
      },
      id: () => prefix + ++this.count, random: () => 0, now: () => "now", reload: () => void this.reloads++,
    } as unknown as Environment;
  }

  async open<C>(kind: Kind<C>): Promise<Session<C>> {
    const s = await this.desk.open(this.browser.server.id, kind);
    await quiet();
    return s;
  }
  async happens(type: string, more: object = {}): Promise<void> {
    for (const f of this.listeners.get(type) ?? []) f({ preventDefault() {}, ...more });
    await quiet();
  }
  /** The time of all timers that are set comes. */
  async fireAll(): Promise<void> {
    const due = [...this.timers.values()];
    this.timers.clear();
    for (const f of due) f();
    await quiet();
  }
  /** The tab is gone, and its locks with it. What it had under way is not heard of any more. */
  async gone(): Promise<void> {
    this.browser.locked.delete("weir.writer/" + this.desk.writer);
    this.timers.clear();
    this.listeners.clear();
  }
}

/** All promises that wait for nothing but other promises are settled. */
export async function quiet(): Promise<void> {
  for (let i = 0; i < 60; i++) await null;
}
