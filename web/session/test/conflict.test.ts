import { step } from "../core";
import { markdown } from "../kinds/markdown";
import { mergeRecords, record } from "../kinds/record";
import { is, ok, test } from "./check";
import { Tab, World, noReply } from "./world";

const world = (): World => new World(markdown, { text: "one" });

function conflicted(w: World): Tab {
  const t = w.open("a");
  t.edit({ text: "mine" });
  w.server.commit("other", { text: "theirs" });
  t.fire("debounce");
  w.settle();
  is(t.state.phase, "conflict");
  return t;
}

test("10 in conflict edits go into the draft, and no save leaves until the user acts", () => {
  const w = world();
  const t = conflicted(w);
  const before = w.server.puts.length;
  for (let i = 0; i < 20; i++) {
    t.edit({ text: "mine " + i });
    for (const timer of [...t.timers]) t.fire(timer);
    for (const type of ["flush", "hide", "online", "visible", "again", "resume"] as const) t.dispatch({ type });
    w.settle();
  }
  is([t.state.phase, w.server.puts.length], ["conflict", before]);
  is([t.slot?.content, t.slot?.base.version], [{ text: "mine 19" }, 1]);
});

test("11 a resolution is saved against the stored version; a second conflict keeps the work", () => {
  const w = world();
  const t = conflicted(w);
  const met = t.state.theirs!;
  w.server.commit("third", { text: "third" });
  t.dispatch({ type: "resolved", content: { text: "both" }, theirs: met });
  is(t.state.phase, "saving");
  w.settle();
  is([t.state.phase, t.state.local, t.state.theirs?.version, t.slot?.content], ["conflict", { text: "both" }, 3, { text: "both" }]);
  t.dispatch({ type: "resolved", content: { text: "all" }, theirs: met });
  is(t.state.phase, "conflict", "a resolution of what is not stored any more is refused");
  t.dispatch({ type: "resolved", content: { text: "all" }, theirs: t.state.theirs! });
  w.settle();
  is([t.state.phase, w.server.content], ["clean", { text: "all" }]);
});

test("11 the draft of a kind that merges holds the base, so that a merge is possible after a reload", () => {
  const w = new World(record, { attributes: { a: 1 } });
  let t = w.open("a");
  t.edit({ attributes: { a: 1, b: 2 } });
  t.fire("draft");
  w.server.commit("other", { attributes: { a: 5 } });
  t = t.reload();
  is([t.state.phase, t.state.base], ["conflict", { version: 1, rev: "created", content: { attributes: { a: 1 } } }]);
});

test("12 merging by attribute", () => {
  const merge = (b: object, m: object, t: object) => {
    const r = mergeRecords({ attributes: { ...b } }, { attributes: { ...m } }, { attributes: { ...t } });
    return [r.content.attributes, r.clashes.map((c) => c.id)];
  };
  is(merge({ a: 1, b: 1 }, { a: 2, b: 1 }, { a: 1, b: 3 }), [{ a: 2, b: 3 }, []], "each side changed one");
  is(merge({ a: 1 }, { a: 2 }, { a: 2 }), [{ a: 2 }, []], "both the same");
  is(merge({ a: 1 }, { a: 2 }, { a: 3 }), [{ a: 2 }, ["a"]], "both different");
  is(merge({ a: 1 }, {}, { a: 3 }), [{}, ["a"]], "I delete, they edit");
  is(merge({ a: 1 }, { a: 2 }, {}), [{ a: 2 }, ["a"]], "I edit, they delete");
  is(merge({ a: 1 }, {}, {}), [{}, []], "both delete");
  is(merge({ a: 1 }, {}, { a: 1 }), [{}, []], "I delete");
  is(merge({ a: 1 }, { a: 1 }, {}), [{}, []], "they delete");
  is(merge({}, { n: 1 }, { n: 2 }), [{ n: 1 }, ["n"]], "the same id added twice");
  is(merge({}, { n: [1, { x: 1, y: 2 }] }, { n: [1, { y: 2, x: 1 }] }), [{ n: [1, { x: 1, y: 2 }] }, []], "added alike");
  is(JSON.stringify(merge({ a: 1, b: 1 }, { b: 1, m: 1, a: 1 }, { b: 1, t: 1, a: 1 })[0]), '{"b":1,"t":1,"a":1,"m":1}', "theirs, then mine");
  is(merge({ a: null }, { a: null, toString: 1 }, { a: 0 }), [{ a: 0, toString: 1 }, []], "null is a value, and names are only names");
  const odd = JSON.parse('{"__proto__":1}');
  is(JSON.stringify(mergeRecords({ attributes: {} }, { attributes: odd }, { attributes: {} }).content), '{"attributes":{"__proto__":1}}');
});

test("13 a discard whose read fails leaves everything alone", () => {
  const w = world();
  const t = conflicted(w);
  const before = { ...t.state };
  t.dispatch({ type: "discard" });
  w.answer(w.take(), noReply);
  is([t.state.phase, t.state.local, t.state.theirs, t.slot?.content], ["conflict", before.local, before.theirs, { text: "mine" }]);
  t.dispatch({ type: "discard" });
  w.settle();
  is([t.state.phase, t.state.local, t.slot], ["clean", { text: "theirs" }, null]);
});

test("13 an edit during the read cancels a discard", () => {
  const w = world();
  const t = w.open("a");
  t.edit({ text: "mine" });
  t.dispatch({ type: "discard" });
  const read = w.take();
  t.edit({ text: "mine after all" });
  w.answer(read, w.serve(read));
  is([t.state.phase, t.state.local, t.dirty], ["dirty", { text: "mine after all" }, true]);
  t.fire("debounce");
  w.settle();
  is(w.server.content, { text: "mine after all" });
});

test("13 a discard waits for the save that is under way, and an edit cancels that too", () => {
  const w = world();
  const t = w.open("a");
  t.edit({ text: "mine" });
  t.fire("debounce");
  t.dispatch({ type: "discard" });
  is(w.sent.length, 1, "one request");
  w.settle();
  is([t.state.phase, t.state.local], ["clean", { text: "mine" }]);
  t.edit({ text: "more" });
  t.fire("debounce");
  t.dispatch({ type: "discard" });
  t.edit({ text: "more and more" });
  w.settle();
  is([t.state.phase, t.state.local], ["dirty", { text: "more and more" }]);
});

// DO-18
test("14 a read that was sent before a save and answered after it is dropped", () => {
  const w = world();
  const t = w.open("a");
  t.dispatch({ type: "changed", version: 2 });
  const read = w.take();
  const old = w.serve(read);
  t.edit({ text: "two" });
  w.answer(read, old);
  is([t.state.phase, t.state.local], ["dirty", { text: "two" }]);
  t.fire("debounce");
  w.settle();
  w.answer(read, old);
  is([t.state.phase, t.state.local, t.state.base?.version], ["clean", { text: "two" }, 2]);
});

test("14 a read of an older version never lowers what is known", () => {
  const w = world();
  const t = w.open("a");
  const old = w.server.get();
  t.edit({ text: "two" });
  t.fire("debounce");
  w.settle();
  t.dispatch({ type: "resume" });
  w.answer(w.take(), old);
  is([t.state.local, t.state.base?.version], [{ text: "two" }, 2]);
  t.dispatch({ type: "discard" });
  w.answer(w.take(), old);
  is([t.state.local, t.state.base?.version], [{ text: "two" }, 2]);
});

test("14 a refresh never replaces a dirty document, and says that there is something newer", () => {
  const w = world();
  const t = w.open("a");
  w.server.commit("other", { text: "theirs" });
  t.edit({ text: "mine" });
  t.dispatch({ type: "resume" });
  w.settle();
  is([t.state.phase, t.state.local, t.state.newer], ["dirty", { text: "mine" }, 2]);
});

test("19 the same version number from another save is a conflict", () => {
  const w = world();
  const t = w.open("a");
  w.server.rev = "restored";
  w.server.content = { text: "another one" };
  t.edit({ text: "mine" });
  t.fire("debounce");
  w.settle();
  is([t.state.phase, t.state.theirs?.version, t.state.theirs?.rev], ["conflict", 1, "restored"]);
});

test("19 a restored backup is a conflict also when it is older, and the user can resolve it", () => {
  const w = world();
  const t = w.open("a");
  t.edit({ text: "two" });
  t.fire("debounce");
  w.settle();
  Object.assign(w.server, { version: 1, rev: "created", content: { text: "one" } });
  t.edit({ text: "mine" });
  t.fire("debounce");
  w.settle();
  is([t.state.phase, t.state.theirs?.version], ["conflict", 1]);
  t.dispatch({ type: "discard" });
  w.settle();
  is([t.state.phase, t.state.local], ["clean", { text: "one" }]);
});

test("the core leaves the state that it is given as it was", () => {
  const w = world();
  const t = conflicted(w);
  const text = JSON.stringify(t.state);
  for (const type of ["flush", "again", "discard", "restore", "forget", "hide", "resume", "slotLost"] as const) step(t.state, { type }, t.cx);
  step(t.state, { type: "edit", content: { text: "x" } }, t.cx);
  step(t.state, { type: "resolved", content: { text: "x" }, theirs: t.state.theirs! }, t.cx);
  ok(JSON.stringify(t.state) === text, "it changed");
});

test("what changes nothing gives back the same state", () => {
  const w = world();
  const t = w.open("a");
  for (const type of ["flush", "again", "online", "visible", "hide", "restore"] as const) is(step(t.state, { type }, t.cx)[0] === t.state, true, type);
  is(step(t.state, { type: "answer", id: 99, answer: { is: "ok" } }, t.cx)[0] === t.state, true);
  is(step(t.state, { type: "changed", version: 1 }, t.cx)[0] === t.state, true);
  t.edit({ text: "mine" });
  t.dispatch({ type: "discard" });
  is(step(t.state, { type: "flush" }, t.cx)[0] === t.state, true, "while a discard is read");
});
