import { attempt } from "./environment";
import type { Answer, Current, Problem } from "./types";

/** An HTTP answer as it came. status 0: none came, or it was cut, or it took too long. */
export interface Reply {
  status: number;
  type?: string | null;
  body?: string;
  retryAfter?: string | null;
}

const isObject = (v: unknown): v is Record<string, unknown> => typeof v === "object" && v !== null && !Array.isArray(v);
export const isVersion = (v: unknown): v is number => typeof v === "number" && Number.isSafeInteger(v) && v >= 1;

/**
 * Says what a reply means. Only a whole JSON envelope from the API counts as an answer; a page, a redirect or half a
 * body is an unknown outcome, whatever its status says.
 */
export function judge(reply: Reply): Answer {
  const { status } = reply;
  if (status === 204) return { is: "ok", data: null };
  const body = parse(reply);
  if (status >= 200 && status < 300) {
    return isObject(body) && "data" in body ? { is: "ok", data: body.data } : { is: "lost", why: "the answer was no answer of this API" };
  }
  if (status === 429) return { is: "limited", after: seconds(reply.retryAfter) };
  if (status < 400 || status === 408 || status === 425 || status >= 500) {
    return { is: "lost", why: status === 0 ? "no answer came" : "status " + status };
  }
  const error = isObject(body) && isObject(body.error) ? body.error : {};
  const { code, message, fields } = error;
  const problem = { code: code ? String(code) : "status_" + status, message: typeof message === "string" ? message : "", ...(isObject(fields) && { fields }) } as Problem;
  const current = error.current as Current | undefined;
  if (code === "unknown_save" && status === 404) return { is: "unknown" };
  // A proxy's own 404 says nothing of the file.
  if (status === 404 && code !== "not_found") return { is: "lost", why: "status 404" };
  if (status === 409 && code === "version_conflict" && isObject(current) && isVersion(current.version) && typeof current.rev === "string" && typeof current.saveId === "string") {
    return { is: "conflict", current };
  }
  return { is: meaning[status] ?? (status === 422 && code === "schema_outdated" ? "outdated" : "rejected"), problem };
}

const meaning: Record<number, "unauthenticated" | "forbidden" | "gone"> = { 401: "unauthenticated", 403: "forbidden", 404: "gone", 410: "gone" };

function parse({ type, body }: Reply): unknown {
  return /^application\/json\s*(;|$)/i.test(type ?? "") ? attempt(() => JSON.parse(body ?? "")) : null;
}

// A date, which Retry-After may be too, would need a clock to be trusted.
function seconds(text: string | null | undefined): number {
  const n = Number(text);
  return text && n >= 0 && n <= 3600 ? n : 5;
}

/** Full jitter: some part of a time that doubles with each failure, from a second to 45. In milliseconds. */
export function backoff(failures: number, random: number): number {
  return Math.round(random * Math.min(45_000, 1000 * 2 ** Math.min(failures, 10)));
}
