import { backoff, judge } from "../judge";
import { is, ok, test } from "./check";

const as = (status: number, type: string | null, body: string, retryAfter?: string) => judge({ status, type, body, retryAfter }).is;

test("30 a page, a redirect or half a body is never saved", () => {
  const good = '{"data":{}}';
  is(as(200, "application/json; charset=utf-8", good), "ok");
  is(as(200, "text/html", good), "lost", "HTML");
  is(as(200, null, good), "lost", "no type");
  is(as(200, "application/jsonp", good), "lost", "JSONP");
  is(as(200, "application/json", '{"data":{"file":'), "lost", "truncated");
  is(as(200, "application/json", ""), "lost", "empty");
  is(as(200, "application/json", "null"), "lost");
  is(as(200, "application/json", "[]"), "lost");
  is(as(200, "application/json", '{"ok":true}'), "lost", "another envelope");
  is(as(302, "text/html", ""), "lost", "a redirect");
  is(as(0, null, ""), "lost", "no answer");
  is(as(502, "text/html", "<h1>"), "lost");
  is(as(404, "text/html", "<h1>"), "lost", "a proxy's 404");
  is(as(409, "text/html", "<h1>"), "rejected", "a 409 that says nothing");
  is(as(204, null, ""), "ok");
});

test("429 waits as long as it is told, within reason", () => {
  const after = (text?: string) => (judge({ status: 429, type: "text/plain", body: "", retryAfter: text }) as { after: number }).after;
  is([after("7"), after(undefined), after("Wed, 21 Oct 2026 07:28:00 GMT"), after("-1"), after("1e9")], [7, 5, 5, 5, 5]);
});

test("29 the backoff has full jitter from a second to 45", () => {
  is([backoff(1, 0), backoff(0, 1), backoff(1, 1), backoff(3, 0.5)], [0, 1000, 2000, 4000]);
  ok(backoff(1000, 1) === 45_000, "the cap");
});
