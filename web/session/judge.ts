import { attempt } from "./environment";
import type { Answer } from "./types";

/** An HTTP answer as it came. status 0: none came, or it was cut, or it took too long. */
export interface Reply {
  status: number;
  type?: string | null;
  body?: string;
  retryAfter?: string | null;
}

export const isVersion = (v: unknown): v is number => Number.isSafeInteger(v) && (v as number) >= 1;

// By status, and by status and code where that says more. A proxy's own 404 says nothing of the file.
const meaning: Record<string, Answer["is"]> = {
  401: "unauthenticated",
  403: "forbidden",
  404: "lost",
  "404 not_found": "gone",
  "404 unknown_save": "unknown",
  408: "lost",
  "409 version_conflict": "conflict",
  410: "gone",
  "422 schema_outdated": "outdated",
  425: "lost",
  429: "limited",
};

/**
 * Says what a reply means. Only a whole JSON envelope from the API counts as an answer; a page, a redirect or half a
 * body is an unknown outcome, whatever its status says.
 */
export function judge({ status, type, body, retryAfter }: Reply): Answer {
  const json: any = /^application\/json\s*(;|$)/i.test(type ?? "") ? attempt(() => JSON.parse(body!)) : null;
  if (status === 204 || (status >= 200 && status < 300 && json?.data !== undefined)) return { is: "ok", data: json?.data };
  const { code, message, fields, current } = json?.error ?? {};
  let is = meaning[status + " " + code] ?? meaning[status] ?? (status < 400 || status >= 500 ? "lost" : "rejected");
  if (is === "conflict" && !(isVersion(current?.version) && typeof current.rev === "string" && typeof current.saveId === "string")) is = "rejected";
  return { is, current, after: seconds(retryAfter), problem: { code: String(code ?? status), message: String(message ?? (status ? "status " + status : "no answer")), fields } };
}

// A date, which Retry-After may be too, would need a clock to be trusted.
function seconds(text: string | null | undefined): number {
  const n = Number(text);
  return text && n >= 0 && n <= 3600 ? n : 5;
}

/** Full jitter: some part of a time that doubles with each failure, from a second to 45. In milliseconds. */
export function backoff(failures: number, random: number): number {
  return random * Math.min(45_000, 1000 * 2 ** Math.min(failures, 10));
}
