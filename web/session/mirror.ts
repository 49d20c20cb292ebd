/**
 * A second copy of the slots, in IndexedDB with strict durability: localStorage loses the last tens of seconds when the
 * whole browser is killed, this does not. It is written a moment later, and read only at load.
 */
export class Mirror {
  private db: Promise<IDBDatabase>;

  constructor(factory: IDBFactory | null) {
    this.db = new Promise((done, fail) => {
      const open = factory!.open("weir.drafts", 1); // null: it fails like a database that cannot be opened
      open.onupgradeneeded = () => open.result.createObjectStore("slots");
      open.onsuccess = () => {
        const db = open.result;
        db.onversionchange = () => db.close();
        done(db);
      };
      open.onerror = open.onblocked = fail;
    });
    this.db.catch(() => undefined);
  }

  /** Settles when it is on the disk; false: it is not. */
  put(key: string, text: string): Promise<boolean> {
    return this.run("readwrite", (s) => s.put(text, key), () => true, false);
  }
  delete(key: string): Promise<boolean> {
    return this.run("readwrite", (s) => s.delete(key), () => true, false);
  }

  /** The slots whose key begins with a prefix. */
  all(prefix: string): Promise<[string, string][]> {
    const range = () => IDBKeyRange.bound(prefix, prefix + "\uffff");
    return this.run(
      "readonly",
      (s) => [s.getAllKeys(range()), s.getAll(range())],
      ([keys, values]) => keys.result.map((k, i) => [String(k), String(values.result[i])] as [string, string]),
      [],
    );
  }

  private run<R, T>(mode: IDBTransactionMode, what: (s: IDBObjectStore) => R, result: (r: R) => T, failed: T): Promise<T> {
    return this.db
      .then(
        (db) =>
          new Promise<T>((done, fail) => {
            const tx = db.transaction("slots", mode, { durability: "strict" });
            const r = what(tx.objectStore("slots"));
            tx.oncomplete = () => done(result(r));
            tx.onerror = tx.onabort = fail;
          }),
      )
      .catch(() => failed);
  }
}
