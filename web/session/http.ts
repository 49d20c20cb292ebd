import { judge } from "./judge";
import type { Environment } from "./environment";
import type { Answer } from "./types";

const timeout = 30_000;
// What may be in flight beyond a page's end is 64 KiB in total, and a little of it is headers.
const keepaliveBytes = 60_000;
// In UTF-16 units: a millisecond's work on a slow machine.
const piece = 65_536;

/** Speaks the API of documents for one user. */
export class Http {
  private under = new Map<string, AbortController>();

  constructor(
    private env: Environment,
    private user: string,
    readonly base = "/api/desk/",
  ) {}

  /** Sends, and says what came of it. It never throws: no answer is an answer too. key names the request for abort. */
  async send(key: string, method: string, path: string, body?: string, leaving = false): Promise<Answer> {
    const abort = new AbortController();
    this.under.set(key, abort);
    const timer = this.env.window.setTimeout(() => abort.abort(), timeout);
    try {
      const keepalive = leaving && (!body || new TextEncoder().encode(body).length < keepaliveBytes);
      const sent = leaving ? body : await this.pieces(body);
      const reply = await this.env.fetch(this.base + path, {
        method, credentials: "same-origin", cache: "no-store", redirect: "error", signal: abort.signal,
        headers: { Accept: "application/json", "X-Desk-User": encodeURIComponent(this.user), ...(body !== undefined && { "Content-Type": "application/json" }) },
        ...(sent !== undefined && { body: sent }), ...(keepalive && { keepalive }),
      });
      return judge({ status: reply.status, type: reply.headers.get("Content-Type"), retryAfter: reply.headers.get("Retry-After"), body: await reply.text() });
    } catch {
      return judge({ status: 0 });
    } finally {
      this.env.window.clearTimeout(timer);
      this.under.delete(key);
    }
  }

  // Turning a large text into bytes takes longer than a key may wait for. It is done a piece at a time.
  private async pieces(body: string | undefined): Promise<string | Blob | undefined> {
    if (!body || body.length <= piece) return body;
    const parts: Blob[] = [];
    for (let at = 0; at < body.length; ) {
      await new Promise((done) => this.env.window.setTimeout(done as () => void, 0));
      let end = at + piece;
      if (/[\ud800-\udbff]/.test(body.charAt(end - 1))) end++; // a surrogate pair is one character
      parts.push(new Blob([body.slice(at, end)]));
      at = end;
    }
    return new Blob(parts);
  }

  abort(key: string): void {
    this.under.get(key)?.abort();
  }
}
