import { markdown } from "../kinds/markdown";
import { is, ok, test } from "./check";
import { World, json, noReply } from "./world";

const world = (): World => new World(markdown, { text: "one" });

test("15 after a failed first load nothing can be edited and no save is possible", () => {
  const w = world();
  w.tab("a").open();
  const t = w.tabs[0];
  w.answer(w.take(), noReply);
  is(t.state.phase, "unavailable");
  t.edit({ text: "x" });
  for (const type of ["flush", "hide", "discard", "restore"] as const) t.dispatch({ type });
  is([t.state.phase, t.state.local, w.sent.length], ["unavailable", undefined, 0]);
  t.fire("retry");
  w.settle();
  is(t.state.phase, "clean");
});

test("15 a first load that is told to wait does so", () => {
  const w = world();
  w.tab("a").open();
  const [t] = w.tabs;
  w.answer(w.take(), { status: 429, retryAfter: "7" });
  is(t.effects.filter((e) => e.do === "set"), [{ do: "set", timer: "retry", failures: 1, after: 7 }]);
  t.fire("retry");
  w.settle();
  is(t.state.phase, "clean");
});

test("15 a document of another type, or of a form that is not understood, is not edited", () => {
  for (const wrong of [{ type: "record" }, { content: { cells: {} } }, { version: undefined }, { id: "fil_000000000000" }, { rev: 7 }]) {
    const w = world();
    w.tab("a").open();
    const reply = JSON.parse(w.server.get().body!);
    Object.assign(reply.data, wrong);
    w.answer(w.take(), json(200, reply));
    is(w.tabs[0].state.phase, "unavailable", JSON.stringify(wrong));
  }
});

test("18 an adopted draft on the stored version is unsaved work; on another it is a conflict from its own base", () => {
  const w = world();
  const s = w.open("sibling");
  s.edit({ text: "work" });
  s.fire("draft");
  s.kill();
  const t = w.open("a");
  t.dispatch({ type: "adopt", draft: s.slot! });
  is([t.state.phase, t.state.local, t.slot?.adoptedFrom, t.slot?.content], ["dirty", { text: "work" }, "sibling", { text: "work" }]);
  t.kill();

  w.server.commit("other", { text: "theirs" });
  const u = w.open("b");
  u.dispatch({ type: "adopt", draft: s.slot! });
  is([u.state.phase, u.state.base?.version, u.state.theirs?.version, u.slot?.base.version], ["conflict", 1, 2, 1]);
});

test("18 an adopted draft whose own save is stored goes on from that one", () => {
  const w = world();
  const s = w.open("sibling");
  s.edit({ text: "work" });
  s.fire("debounce");
  s.edit({ text: "work and more" });
  s.fire("draft");
  s.kill();
  w.settle(); // it arrives
  const t = w.open("a");
  is(t.state.base?.version, 2);
  t.dispatch({ type: "adopt", draft: s.slot! });
  is([t.state.phase, t.state.base?.version, t.state.local], ["dirty", 2, { text: "work and more" }]);
});

test("18 adopting while there is unsaved work is refused", () => {
  const w = world();
  const s = w.open("sibling");
  s.edit({ text: "work" });
  s.fire("draft");
  const t = w.open("a");
  t.edit({ text: "mine" });
  t.dispatch({ type: "adopt", draft: s.slot! });
  is([t.state.phase, t.state.local], ["dirty", { text: "mine" }]);
});

test("DO-09 a draft of version 5 opens beside version 8 as a conflict, from 5", () => {
  const w = world();
  let t = w.open("a");
  t.edit({ text: "mine" });
  t.fire("draft");
  for (const id of ["x", "y", "z"]) w.server.commit(id, { text: id });
  t = t.reload();
  is([t.state.phase, t.state.base?.version, t.state.theirs?.version, w.server.puts.length], ["conflict", 1, 4, 0]);
});

test("DO-08 a draft that equals what is stored is dropped silently", () => {
  const w = world();
  let t = w.open("a");
  t.edit({ text: "two" });
  t.fire("draft");
  w.server.commit("other", { text: "two" });
  t = t.reload();
  is([t.state.phase, t.slot], ["clean", null]);
});

test("19 a draft of the same version number from another save opens as a conflict", () => {
  const w = world();
  let t = w.open("a");
  t.edit({ text: "mine" });
  t.fire("draft");
  Object.assign(w.server, { rev: "restored", content: { text: "another one" } });
  t = t.reload();
  is([t.state.phase, t.state.base?.rev, t.state.theirs?.rev], ["conflict", "created", "restored"]);
});

test("20 a slot that somebody else changed or cleared is written again from memory", () => {
  const w = world();
  const t = w.open("a");
  t.edit({ text: "mine" });
  t.fire("draft");
  w.storage.delete("a");
  t.dispatch({ type: "slotLost" });
  is(t.slot?.content, { text: "mine" });
  t.fire("debounce");
  w.settle();
  t.dispatch({ type: "slotLost" });
  is(t.slot, null, "a clean session has no slot");
});

test("21 the draft of a deleted file is kept until it is restored, saved elsewhere or discarded", () => {
  const w = world();
  let t = w.open("a");
  t.edit({ text: "mine" });
  t.fire("draft");
  w.server.deleted = true;
  t = t.reload();
  is([t.state.phase, t.state.local, t.slot?.content], ["orphaned", { text: "mine" }, { text: "mine" }]);
  for (const type of ["flush", "hide", "online", "visible", "resume"] as const) t.dispatch({ type });
  is([t.state.phase, t.slot?.content], ["orphaned", { text: "mine" }]);
  t.dispatch({ type: "restore" });
  w.settle();
  is([t.state.phase, w.server.content, t.slot], ["clean", { text: "mine" }, null]);
});

test("21 discarding the work of a deleted file ends its session", () => {
  const w = world();
  const t = w.open("a");
  t.edit({ text: "mine" });
  w.server.deleted = true;
  t.fire("debounce");
  w.settle();
  is([t.state.phase, t.slot?.content], ["orphaned", { text: "mine" }]);
  t.dispatch({ type: "forget" });
  is([t.state.phase, t.slot], ["closed", null]);
  t.edit({ text: "late" });
  is(t.slot, null);
});

test("23 a draft is deleted only for the edit that was acknowledged", () => {
  const w = world();
  const t = w.open("a");
  t.edit({ text: "two" });
  t.fire("debounce");
  const save = w.take();
  const reply = w.serve(save);
  t.edit({ text: "three" });
  t.dispatch({ type: "hide" });
  w.answer(save, reply);
  is(t.slot?.content, { text: "three" }, "DO-07: the newer text outlives the acknowledgement of the older");
  t.fire("debounce");
  w.settle();
  is(t.slot, null);
  ok(!t.timers.has("draft") || (t.fire("draft"), t.slot === null), "a late timer does not bring it back");
});

test("24 when the storage is full the session says so, saves at once and goes on", () => {
  const w = world();
  const t = w.open("a");
  w.full = true;
  t.edit({ text: "two" });
  t.fire("draft");
  is([t.state.keeping, t.state.phase, w.sent.length], ["behind", "saving", 1]);
  t.edit({ text: "three" });
  t.fire("draft");
  is(w.sent.length, 1, "one request");
  w.settle();
  is([t.state.phase, t.state.keeping], ["dirty", "behind"]);
  t.fire("debounce");
  w.settle();
  is([t.state.phase, w.server.content, t.state.keeping], ["clean", { text: "three" }, "kept"]);
});

test("27 when the page goes the draft is written first, then the save is tried", () => {
  const w = world();
  const t = w.open("a");
  t.edit({ text: "two" });
  t.dispatch({ type: "hide" });
  is(t.effects.filter((e) => e.do === "write" || e.do === "put").map((e) => e.do), ["write", "put"]);
  is((t.effects.find((e) => e.do === "put") as any).leaving, true);
  t.edit({ text: "three" });
  t.dispatch({ type: "hide" });
  is([w.sent.length, t.slot?.content], [1, { text: "three" }], "with a save in flight only the draft is written");
});

test("28 a page from the back/forward cache asks again for its save and reads again", () => {
  const w = world();
  const t = w.open("a");
  t.edit({ text: "two" });
  t.fire("debounce");
  const sent = w.take();
  w.serve(sent);
  w.server.commit("other", { text: "theirs" });
  t.dispatch({ type: "resume" });
  w.answer(sent, json(200, {})); // of the life before
  w.settle();
  is([t.state.phase, t.state.local, w.server.version], ["clean", { text: "theirs" }, 3]);
});

test("DO-17 a page from the back/forward cache that is typed into meets the newer version", () => {
  const w = world();
  const t = w.open("a");
  w.server.commit("other", { text: "theirs" });
  t.dispatch({ type: "resume" });
  w.settle();
  is([t.state.phase, t.state.local], ["clean", { text: "theirs" }]);
  t.edit({ text: "mine" });
  w.server.commit("third", { text: "third" });
  t.dispatch({ type: "resume" });
  w.settle();
  is([t.state.phase, t.state.newer], ["dirty", 3]);
  t.fire("debounce");
  w.settle();
  is(t.state.phase, "conflict");
});

test("DO-19 states that stop saving persist until they are solved", () => {
  const cases: [number, object, string][] = [
    [401, { code: "unauthenticated" }, "auth_required"],
    [401, { code: "user_mismatch" }, "auth_required"],
    [403, { code: "forbidden" }, "blocked"],
    [404, { code: "not_found" }, "orphaned"],
    [410, { code: "file_deleted" }, "orphaned"],
    [413, { code: "too_large" }, "rejected"],
    [400, { code: "invalid" }, "rejected"],
    [415, { code: "unsupported_media_type" }, "rejected"],
    [428, { code: "version_required" }, "rejected"],
    [409, { code: "folder_not_found" }, "rejected"],
    [422, { code: "save_id_reused" }, "rejected"],
    [422, { code: "schema_outdated" }, "reload_required"],
    [408, {}, "retrying"],
    [425, {}, "retrying"],
    [500, {}, "retrying"],
    [503, {}, "retrying"],
    [429, {}, "retrying"],
  ];
  for (const [status, error, phase] of cases) {
    const w = world();
    const t = w.open("a");
    t.edit({ text: "two" });
    t.fire("debounce");
    w.answer(w.take(), json(status, { error: { message: "m", ...error } }));
    is(t.state.phase, phase, String(status));
    is([t.dirty, t.slot?.content], [true, { text: "two" }], "the work is kept");
    if (phase === "retrying") continue;
    for (const type of ["hide", "flush"] as const) t.dispatch({ type });
    is([t.state.phase, w.sent.length], [phase, 0], status + " stays");
    if (phase === "orphaned") continue;
    t.dispatch({ type: "again" });
    w.settle();
    is([t.state.phase, w.server.content], ["clean", { text: "two" }], status + " is solved by the user");
  }
});

test("DO-19 ten minutes offline with 200 edits: what was under way, and one save for all the others", () => {
  const w = world();
  const t = w.open("a");
  t.edit({ text: "0" });
  t.fire("debounce");
  w.answer(w.take(), noReply);
  for (let i = 1; i <= 200; i++) {
    t.edit({ text: String(i) });
    if (i % 20 === 0) {
      t.fire("retry");
      w.answer(w.take(), noReply);
    }
  }
  t.dispatch({ type: "online" });
  w.settle();
  t.fire("debounce");
  w.settle();
  is([t.state.phase, w.server.content, w.server.puts.length], ["clean", { text: "200" }, 2]);
});
