/**
 * A second copy of the slots, in IndexedDB with strict durability: localStorage loses the last tens of seconds when the
 * whole browser is killed, this does not. It is written a moment later, and read only at load.
 */
export interface Mirror {
  put(key: string, text: string): void;
  delete(key: string): void;
  /** The slots whose key begins with a prefix. None where there is no database. */
  all(prefix: string): Promise<[key: string, text: string][]>;
}

export function mirrorOf(factory: IDBFactory | null): Mirror {
  const opened = new Promise<IDBDatabase>((done, fail) => {
    const open = factory!.open("weir.drafts", 1); // null: it fails like a database that cannot be opened
    open.onupgradeneeded = () => open.result.createObjectStore("slots");
    open.onsuccess = () => {
      const db = open.result;
      db.onversionchange = () => db.close();
      done(db);
    };
    open.onerror = open.onblocked = fail;
  });

  // What f returns, once it is on the disk.
  const run = async <R>(mode: IDBTransactionMode, f: (slots: IDBObjectStore) => R): Promise<R | undefined> => {
    try {
      const tx = (await opened).transaction("slots", mode, { durability: "strict" });
      const r = f(tx.objectStore("slots"));
      await new Promise((done, fail) => {
        tx.oncomplete = done;
        tx.onerror = tx.onabort = fail;
      });
      return r;
    } catch {
      return undefined;
    }
  };
  opened.catch(() => undefined);

  return {
    put: (key, text) => void run("readwrite", (slots) => slots.put([key, text], key)),
    delete: (key) => void run("readwrite", (slots) => slots.delete(key)),
    all: async (prefix) => (await run("readonly", (slots) => slots.getAll(IDBKeyRange.bound(prefix, prefix + "\uffff"))))?.result ?? [],
  };
}
