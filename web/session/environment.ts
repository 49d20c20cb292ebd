/** What a session needs of a browser. Everything that may be missing may be null: the session works all the same, and says so. */
export interface Environment {
  fetch: typeof fetch;
  /** Null where storage is forbidden: the getter itself may throw. */
  local: Storage | null;
  tab: Storage | null;
  database: IDBFactory | null;
  locks: LockManager | null;
  /** It may throw. */
  channel: ((name: string) => BroadcastChannel) | null;
  window: Pick<Window, "addEventListener" | "setTimeout" | "clearTimeout"> & { document?: Pick<Document, "addEventListener" | "visibilityState"> };
  id(): string;
  random(): number;
  now(): string;
  reload(): void;
}

/** What f returns, or null where it is not possible: what a browser forbids throws. */
export function attempt<T>(f: () => T | null | undefined): T | null {
  try {
    return f() ?? null;
  } catch {
    return null;
  }
}

/** The browser that this runs in. */
export function browser(): Environment {
  return {
    fetch: (...a) => fetch(...a),
    local: attempt(() => localStorage),
    tab: attempt(() => sessionStorage),
    database: attempt(() => indexedDB),
    locks: attempt(() => navigator.locks),
    channel: (name) => new BroadcastChannel(name),
    window,
    id: () => crypto.getRandomValues(new Uint32Array(4)).join("-"),
    random: Math.random,
    now: () => new Date().toISOString(),
    reload: () => location.reload(),
  };
}
