// A browser of which only what is asked for is there: tabs that share a storage and locks, with the real desk and session in each
// of them, before the server of world.ts. Nothing in it takes time: timers are fired by the test.
import { Desk } from "../desk";
import type { Environment } from "../environment";
import type { Session } from "../session";
import type { Kind } from "../types";
import type { Reply } from "../judge";
import type { Server } from "./world";

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
  signal: { stop?: () => void } = {};
  abort() {
    this.signal.stop?.();
  }
};
global.IDBKeyRange ??= { bound: (from: string, to: string) => ({ from, to }) };
global.TextEncoder ??= class {
  encode = (s: string) => ({ length: unescape(encodeURIComponent(s)).length });
};

/** The locks of a browser, as one of its pages has them. */
export function locksOf(locked: Set<string>, own = new Set<string>()): LockManager {
  return {
    request(name: string, _o: object, f: (lock: object | null) => unknown) {
      if (locked.has(name)) return Promise.resolve(f(null));
      locked.add(name);
      own.add(name);
      return Promise.resolve(f({ name })).then(() => {
        if (own.delete(name)) locked.delete(name);
      });
    },
    query: () => Promise.resolve({ held: [...locked].map((name) => ({ name })) }),
  } as unknown as LockManager;
}

/** A database of one store. It can be one that fails, or one that never answers. */
export class Database {
  slots = new Map<string, unknown>();
  behaviour: "works" | "fails" | "hangs" = "works";
  modes: string[] = [];
  private soon(o: any, event: string): void {
    if (this.behaviour !== "hangs") void Promise.resolve().then(() => o[event]?.({}));
  }
  factory(): IDBFactory {
    const objectStore = () => ({
      put: (value: unknown, key: string) => this.slots.set(key, value),
      delete: (key: string) => this.slots.delete(key),
      getAll: ({ from, to }: { from: string; to: string }) => ({ result: [...this.slots].filter(([k]) => k >= from && k <= to).map(([, v]) => v) }),
    });
    const result = {
      close() {},
      createObjectStore() {},
      transaction: (_: string, mode: string, o: { durability: string }) => {
        this.modes.push(mode + " " + o.durability);
        const tx = { objectStore };
        this.soon(tx, this.behaviour === "fails" ? "onabort" : "oncomplete");
        return tx;
      },
    };
    return {
      open: () => {
        const open = { result };
        this.soon(open, this.behaviour === "fails" ? "onerror" : "onsuccess");
        return open;
      },
    } as unknown as IDBFactory;
  }
}

export class Browser {
  local = new Store();
  locked = new Set<string>();
  database = new Database();
  /** What the network makes of a request; null: nobody answers. */
  network: (method: string, path: string, body: string, page: Page) => Reply | null | Promise<Reply | null> = (method, path, body) => this.serve(method, path, body);
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
  private own = new Set<string>();
  constructor(
    public browser: Browser,
    public tab: Store,
  ) {}

  environment(prefix: string): Environment {
    const { browser } = this;
    return {
      fetch: (url: string, init: RequestInit) =>
        new Promise((done, fail) => {
          const path = url.replace("/api/desk/", "");
          browser.asked.push(init.method + " " + path);
          (init.signal as { stop?: () => void }).stop = () => fail(new Error("aborted"));
          void Promise.resolve(browser.network(init.method!, path, init.body as string, this)).then((r) => {
            if (!r?.status) return fail(new Error("no answer"));
            done({ status: r.status, headers: { get: (name: string) => (name === "Content-Type" ? r.type : null) }, text: () => Promise.resolve(r.body ?? "") });
          });
        }),
      local: browser.local, tab: this.tab, database: browser.database.factory(), locks: locksOf(browser.locked, this.own), channel: null,
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
    for (const name of this.own) this.browser.locked.delete(name);
    this.own.clear();
    this.timers.clear();
    this.listeners.clear();
  }
}

/** All promises that wait for nothing but other promises are settled. */
export async function quiet(): Promise<void> {
  for (let i = 0; i < 60; i++) await null;
}
