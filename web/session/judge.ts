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

/**
 * Says what a reply means. Only a whole JSON envelope from the API counts as an answer; a page, a redirect or half a
 * body is an unknown outcome, whatever its status says.
 */
export function judge({ status, type, body, retryAfter }: Reply): Answer {
  if (status === 204) return { is: "ok", data: null };
  const json: any = /^application\/json\s*(;|$)/i.test(type ?? "") ? attempt(() => JSON.parse(body ?? "")) : null;
  if (status >= 200 && status < 300) {
    return json?.data !== undefined ? { is: "ok", data: json.data } : { is: "lost", why: "no answer of this API" };
  }
  if (status === 429) return { is: "limited", after: seconds(retryAfter) };
  const { code, message, fields, current } = json?.error ?? {};
  // A proxy's own 404 says nothing of the file.
  if (status < 400 || status === 408 || status === 425 || status >= 500 || (status === 404 && code !== "not_found" && code !== "unknown_save")) {
    return { is: "lost", why: status ? "status " + status : "no answer came" };
  }
  if (status === 404 && code === "unknown_save") return { is: "unknown" };
  if (status === 409 && code === "version_conflict" && isVersion(current?.version) && typeof current.rev === "string" && typeof current.saveId === "string") {
    return { is: "conflict", current };
  }
  return { is: meaning[status] ?? (status === 422 && code === "schema_outdated" ? "outdated" : "rejected"), problem: { code: String(code || "status_" + status), message: String(message ?? ""), fields } };
}

const meaning: Record<number, "unauthenticated" | "forbidden" | "gone"> = { 401: "unauthenticated", 403: "forbidden", 404: "gone", 410: "gone" };

// A date, which Retry-After may be too, would need a clock to be trusted.
function seconds(text: string | null | undefined): number {
  const n = Number(text);
  return text && n >= 0 && n <= 3600 ? n : 5;
}

/** Full jitter: some part of a time that doubles with each failure, from a second to 45. In milliseconds. */
export function backoff(failures: number, random: number): number {
  return Math.round(random * Math.min(45_000, 1000 * 2 ** Math.min(failures, 10)));
}
