/**
 * A second copy of the slots, in IndexedDB with strict durability: localStorage loses the last tens of seconds when the
 * whole browser is killed, this does not. It is written a moment later, and read only at load.
 */
export class Mirror {
  private db: Promise<IDBDatabase | null>;

  constructor(factory: IDBFactory | null) {
    this.db = new Promise((done) => {
      if (!factory) return done(null);
      try {
        const open = factory.open("weir.drafts", 1);
        open.onupgradeneeded = () => open.result.createObjectStore("slots");
        open.onsuccess = () => {
          const db = open.result;
          db.onversionchange = () => db.close();
          done(db);
        };
        open.onerror = open.onblocked = () => done(null);
      } catch {
        done(null);
      }
    });
  }

  /** Settles when it is on the disk; false: it is not. */
  put(key: string, text: string): Promise<boolean> {
    return this.write((s) => s.put(text, key));
  }
  delete(key: string): Promise<boolean> {
    return this.write((s) => s.delete(key));
  }

  /** The slots whose key begins with a prefix. */
  async all(prefix: string): Promise<[string, string][]> {
    const db = await this.db;
    if (!db) return [];
    return new Promise((done) => {
      try {
        const range = IDBKeyRange.bound(prefix, prefix + "\uffff");
        const store = db.transaction("slots").objectStore("slots");
        const keys = store.getAllKeys(range);
        const values = store.getAll(range);
        values.onsuccess = () => done(keys.result.map((k, i) => [String(k), String(values.result[i])]));
        values.onerror = keys.onerror = () => done([]);
      } catch {
        done([]);
      }
    });
  }

  private async write(what: (s: IDBObjectStore) => IDBRequest): Promise<boolean> {
    const db = await this.db;
    if (!db) return false;
    return new Promise((done) => {
      try {
        const tx = db.transaction("slots", "readwrite", { durability: "strict" });
        what(tx.objectStore("slots"));
        tx.oncomplete = () => done(true);
        tx.onerror = tx.onabort = () => done(false);
      } catch {
        done(false);
      }
    });
  }
}
