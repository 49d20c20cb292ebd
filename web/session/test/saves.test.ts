import { markdown } from "../kinds/markdown";
import { is, ok, test } from "./check";
import { World, json, noReply } from "./world";

const world = (): World => new World(markdown, { text: "one" });

test("01 a save whose answer was lost after the commit is sent again and answered: no conflict", () => {
  const w = world();
  const t = w.open("a");
  t.edit({ text: "two" });
  t.fire("debounce");
  const first = w.take();
  w.serve(first);
  w.answer(first, noReply);
  is(t.state.phase, "retrying");
  t.fire("retry");
  w.settle();
  is(t.state.phase, "clean");
  is(w.server.version, 2, "the version rises once");
  is(t.slot, null, "nothing is kept");
});

test("02 another writer saved in between: the answer says so, and a clean session reads again", () => {
  const w = world();
  const t = w.open("a");
  t.edit({ text: "two" });
  t.fire("debounce");
  const first = w.take();
  w.serve(first);
  w.server.commit("other", { text: "theirs" });
  w.answer(first, noReply);
  t.fire("retry");
  w.settle();
  is([t.state.phase, t.state.local, t.state.base?.version], ["clean", { text: "theirs" }, 3]);
});

test("02 another writer saved in between, with an edit pending: its save meets the true base", () => {
  const w = world();
  const t = w.open("a");
  t.edit({ text: "two" });
  t.fire("debounce");
  const first = w.take();
  w.serve(first);
  t.edit({ text: "two and more" });
  w.server.commit("other", { text: "theirs" });
  w.answer(first, noReply);
  t.fire("retry");
  w.settle();
  is([t.state.phase, t.state.newer], ["dirty", 3]);
  t.fire("debounce");
  is((w.sent[0].effect as any).body.includes('"expectedVersion":2'), true, "the base is the own save");
  w.settle();
  is([t.state.phase, t.state.theirs?.version, t.state.local], ["conflict", 3, { text: "two and more" }]);
});

test("03 a save id that is reused is refused, and the next save has another", () => {
  const w = world();
  const t = w.open("a");
  t.edit({ text: "two" });
  t.fire("debounce");
  const first = w.take();
  w.answer(first, json(422, { error: { code: "save_id_reused", message: "" } }));
  is(t.state.phase, "rejected");
  t.edit({ text: "three" });
  t.fire("debounce");
  ok((w.sent[0].effect as any).body.includes('"saveId":"n1-2"'), "a new id");
  w.settle();
  is([t.state.phase, w.server.content], ["clean", { text: "three" }]);
});

test("04 two copies of one save at once are one commit", () => {
  const w = world();
  const t = w.open("a");
  t.edit({ text: "two" });
  t.fire("debounce");
  const sent = w.take();
  const replies = [w.serve(sent), w.serve(sent)];
  w.answer(sent, replies[1]);
  w.answer(sent, replies[0]);
  is([t.state.phase, w.server.version, w.server.puts.length], ["clean", 2, 2]);
});

test("05 a retry sends the same bytes; newer edits go into the next save", () => {
  const w = world();
  const t = w.open("a");
  t.edit({ text: "two" });
  t.fire("debounce");
  const first = w.take();
  t.edit({ text: "three" });
  w.answer(first, noReply);
  for (let i = 0; i < 5; i++) {
    t.fire("retry");
    const again = w.take();
    is((again.effect as any).body, (first.effect as any).body, "the bytes of the retry");
    w.answer(again, i % 2 ? noReply : json(503, {}));
  }
  t.fire("retry");
  w.settle();
  is(t.state.phase, "dirty");
  t.fire("debounce");
  w.settle();
  is(w.server.content, { text: "three" });
  is(new Set(w.server.puts.map((p) => p.saveId)).size, 2, "ids");
});

test("06 a success while newer edits exist keeps them, and the draft, on the new base", () => {
  const w = world();
  const t = w.open("a");
  t.edit({ text: "two" });
  t.fire("debounce");
  t.edit({ text: "three" });
  t.fire("draft");
  w.settle();
  is([t.state.phase, t.state.base?.version, t.dirty], ["dirty", 2, true]);
  is([t.slot?.base.version, t.slot?.content, t.slot?.inflight], [2, { text: "three" }, undefined]);
});

test("07 what is in flight is in the draft before it is sent", () => {
  const w = world();
  const t = w.open("a");
  t.edit({ text: "two" });
  t.fire("debounce");
  is(t.effects.filter((e) => e.do === "write" || e.do === "put").map((e) => e.do), ["write", "put"]);
  is([t.slot?.inflight?.saveId, t.slot?.inflight?.expectedVersion], ["n1-1", 1]);
});

test("07 after a killed tab: committed and equal is cleared silently", () => {
  const w = world();
  let t = w.open("a");
  t.edit({ text: "two" });
  t.fire("debounce");
  w.serve(w.take());
  t = t.reload();
  is([t.state.phase, t.state.local, t.slot], ["clean", { text: "two" }, null]);
});

test("07 after a killed tab: committed, equal, and others saved since is asked for and cleared", () => {
  const w = world();
  let t = w.open("a");
  t.edit({ text: "two" });
  t.fire("debounce");
  w.serve(w.take());
  w.server.commit("other", { text: "theirs" });
  t = t.reload();
  is([t.state.phase, t.state.local, t.slot], ["clean", { text: "theirs" }, null]);
});

test("07 after a killed tab: committed and the draft newer goes on from that version", () => {
  const w = world();
  let t = w.open("a");
  t.edit({ text: "two" });
  t.fire("debounce");
  w.serve(w.take());
  t.edit({ text: "three" });
  t.fire("draft");
  t = t.reload();
  is([t.state.phase, t.state.base?.version, t.state.local], ["dirty", 2, { text: "three" }]);
  t.fire("debounce");
  w.settle();
  is([t.state.phase, w.server.content, w.server.version], ["clean", { text: "three" }, 3]);
});

test("07 after a killed tab: committed, the draft newer and others saved since is a conflict from that version", () => {
  const w = world();
  let t = w.open("a");
  t.edit({ text: "two" });
  t.fire("debounce");
  w.serve(w.take());
  t.edit({ text: "three" });
  t.fire("draft");
  w.server.commit("other", { text: "theirs" });
  t = t.reload();
  is([t.state.phase, t.state.base?.version, t.state.theirs?.version], ["conflict", 2, 3]);
});

test("07 after a killed tab: unknown is sent again under the same id, and both copies are one commit", () => {
  const w = world();
  let t = w.open("a");
  t.edit({ text: "two" });
  t.fire("debounce");
  const late = w.take();
  t = t.reload();
  is(t.state.phase, "dirty");
  t.fire("debounce");
  is((w.sent[0].effect as any).body, (late.effect as any).body, "the bytes");
  w.serve(late);
  w.settle();
  is([t.state.phase, w.server.version], ["clean", 2]);
});

test("08 a conflict with an own save in flight is none", () => {
  const w = world();
  let t = w.open("a");
  t.edit({ text: "two" });
  t.fire("debounce");
  const late = w.take();
  t.edit({ text: "three" });
  t.fire("draft");
  t = t.reload();
  w.serve(late); // arrives after the page has read the old version
  t.fire("debounce");
  const met = w.take();
  w.answer(met, w.serve(met));
  is([t.state.phase, w.sent[0].effect.do], ["saving", "put"], "it is not even asked what is stored");
  w.settle();
  is([t.state.phase, w.server.content, w.server.version], ["clean", { text: "three" }, 3]);
});

test("09 a conflict with the same content is no question", () => {
  const w = world();
  const t = w.open("a");
  t.edit({ text: "two" });
  w.server.commit("other", { text: "two" });
  t.fire("debounce");
  w.settle();
  is([t.state.phase, t.state.base?.version, t.slot], ["clean", 2, null]);
});

test("29 the backoff grows with each failure and begins again with success, online and the user", () => {
  const w = world();
  const t = w.open("a");
  const failures = () => t.effects.flatMap((e) => (e.do === "set" && e.timer === "retry" ? [e.failures] : []))[0];
  t.edit({ text: "two" });
  t.fire("debounce");
  for (let i = 1; i <= 4; i++) {
    w.answer(w.take(), noReply);
    is(failures(), i);
    t.fire("retry");
  }
  w.answer(w.take(), noReply);
  t.dispatch({ type: "online" });
  w.answer(w.take(), noReply);
  is(failures(), 1, "online begins again");
  t.fire("retry");
  w.answer(w.take(), noReply);
  t.dispatch({ type: "flush" });
  w.answer(w.take(), noReply);
  is(failures(), 1, "the user begins again");
  t.fire("retry");
  w.answer(w.take(), noReply);
  is(failures(), 2);
  t.dispatch({ type: "again" });
  w.answer(w.take(), noReply);
  is(failures(), 1, "retry is the user too");
  t.fire("retry");
  w.settle();
  t.edit({ text: "three" });
  t.fire("debounce");
  w.answer(w.take(), noReply);
  is(failures(), 1, "a success begins again");
});

test("31 an answer with another version, another file or another save is no answer", () => {
  for (const wrong of [{ version: 9 }, { id: "fil_ffffffffffff" }, { rev: "x" }, { version: "2" }]) {
    const w = world();
    const t = w.open("a");
    t.edit({ text: "two" });
    t.fire("debounce");
    const sent = w.take();
    const reply = JSON.parse(w.serve(sent).body!);
    Object.assign(reply.data.file, wrong);
    w.answer(sent, json(200, reply));
    is(t.state.phase, "retrying", JSON.stringify(wrong));
    t.fire("retry");
    w.settle();
    is([t.state.phase, w.server.version], ["clean", 2]);
  }
});

test("32 saved is said of the newest content only", () => {
  const w = world();
  const t = w.open("a");
  t.edit({ text: "two" });
  t.fire("debounce");
  t.edit({ text: "three" });
  w.settle();
  ok(t.state.phase !== "clean", "an older save succeeded");
  t.fire("debounce");
  w.settle();
  is(t.state.phase, "clean");
});

test("DO-02 the version is read when the save is sent, not when its timer was set", () => {
  const w = world();
  const t = w.open("a");
  for (let i = 0; i < 40; i++) {
    t.edit({ text: "a" + i });
    if (i % 3 === 0 && t.timers.has("debounce")) t.fire("debounce");
    if (i % 4 === 0 && w.sent.length > 0) w.settle();
  }
  w.settle();
  if (t.timers.has("debounce")) t.fire("debounce");
  w.settle();
  is([t.state.phase, w.server.content], ["clean", { text: "a39" }]);
  is(w.server.version, w.server.puts.length + 1, "none of the saves was refused");
});

test("a burst of edits makes one request in flight and one pending", () => {
  const w = world();
  const t = w.open("a");
  let most = 0;
  for (let i = 0; i < 10_000; i++) {
    t.edit({ text: "a" + i });
    if (i % 50 === 0 && t.timers.has("debounce") && t.state.phase === "dirty") t.fire("debounce");
    most = Math.max(most, w.sent.length);
  }
  is(most, 1);
  w.settle();
  t.fire("debounce");
  w.settle();
  is([t.state.phase, w.server.puts.length], ["clean", 2]);
});

test("30 an answer without data is an unknown outcome, and stops nothing", () => {
  for (const data of [null, [], "saved", 7]) {
    const w = new World(markdown, { text: "one" });
    const t = w.open("w");
    t.edit({ text: "two" });
    t.dispatch({ type: "flush" });
    w.answer(w.take(), json(200, { data }));
    is([t.state.phase, t.dirty], ["retrying", true], JSON.stringify(data));
    t.fire("retry");
    w.settle();
    is([t.state.phase, w.server.content, w.server.version], ["clean", { text: "two" }, 2]);
  }
});

test("15 a kind that throws has not understood the content: nothing is edited", () => {
  const kind = { ...markdown, read: () => JSON.parse("{") };
  const t = new World(kind, { text: "one" }).open("w");
  is([t.state.phase, t.state.request], ["unavailable", null]);
});

test("07 a probe that tells of a version that the save cannot have made is no answer", () => {
  const w = world();
  let t = w.open("a");
  t.edit({ text: "two" });
  t.fire("debounce");
  w.serve(w.take());
  t.kill();
  w.server.commit("other", { text: "theirs" });
  t = w.tab("a");
  t.open();
  const read = w.take();
  w.answer(read, w.serve(read));
  w.answer(w.take(), json(200, { data: { version: 1, currentVersion: 3 } }));
  is([t.state.phase, t.slot?.content], ["unavailable", { text: "two" }]);
  t.dispatch({ type: "again" });
  w.settle();
  is([t.state.phase, t.state.local, t.slot], ["clean", { text: "theirs" }, null]);
});
