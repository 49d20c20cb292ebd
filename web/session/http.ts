import { judge } from "./judge";
import type { Environment } from "./environment";
import type { Answer } from "./types";

// What may be in flight beyond a page's end is 64 KiB in total, and a little of it is headers.
const keepaliveBytes = 60_000;
// In UTF-16 units: a millisecond's work on a slow machine.
const piece = 65_536;

/** Speaks the API of documents for one user. */
export interface Http {
  /** Where the API is. */
  base: string;
  /** Sends, and says what came of it. It never throws: no answer is an answer too. */
  send(method: string, path: string, body?: string, leaving?: boolean, abort?: AbortController): Promise<Answer>;
}

export function httpOf({ fetch, window }: Environment, user: string, base = "/api/desk/"): Http {
  // Turning a large text into bytes takes longer than a key may wait for. It is done a piece at a time.
  const pieces = async (body: string): Promise<Blob> => {
    const parts: Blob[] = [];
    for (let at = 0; at < body.length; ) {
      await new Promise((done) => window.setTimeout(done as () => void, 0));
      let end = at + piece;
      if (/[\ud800-\udbff]/.test(body.charAt(end - 1))) end++; // a surrogate pair is one character
      parts.push(new Blob([body.slice(at, end)]));
      at = end;
    }
    return new Blob(parts);
  };

  return {
    base,
    async send(method, path, body, leaving, abort = new AbortController()) {
      const timer = window.setTimeout(() => abort.abort(), 30_000);
      try {
        const reply = await fetch(base + path, {
          method, cache: "no-store", redirect: "error", signal: abort.signal,
          headers: { "X-Desk-User": encodeURIComponent(user), ...(body && { "Content-Type": "application/json" }) },
          body: body && body.length > piece && !leaving ? await pieces(body) : body,
          keepalive: leaving && new TextEncoder().encode(body).length < keepaliveBytes,
        });
        return judge({ status: reply.status, type: reply.headers.get("Content-Type"), retryAfter: reply.headers.get("Retry-After"), body: await reply.text() });
      } catch {
        return judge({ status: 0 });
      } finally {
        window.clearTimeout(timer);
      }
    },
  };
}
