import type { Clash, Session, View } from "../session";
import { saveAsNew } from "../session/files";
import { record, type RecordContent } from "../session/kinds/record";
import { adopt, discardSibling, siblings, type Sibling } from "../session/siblings";
import { button, download, h, stamp, visible } from "./dom";

/** A content in words, for a person who compares two. */
export function words(content: unknown): string {
  const c = content as { text?: string; attributes?: object; cells?: Record<string, { v: unknown }> } | undefined;
  if (!c) return "";
  if (c.text !== undefined) return c.text;
  const pairs = c.attributes ? Object.entries(c.attributes) : Object.entries(c.cells ?? {}).map(([k, cell]) => [k, cell.v] as [string, unknown]);
  return pairs.map(([k, v]) => k + ": " + (typeof v === "string" ? v : JSON.stringify(v))).sort().join("\n");
}

const shortened = (text: string): string => (text.length > 4000 ? text.slice(0, 4000) + "\n…" : text || "(empty)");

export function sides(mine: unknown, theirs: unknown): HTMLElement {
  const [a, b] = [words(mine).split("\n"), words(theirs).split("\n")];
  // Only what differs is of interest in long documents.
  const only = (x: string[], y: string[]): string => {
    const other = new Set(y);
    return x.filter((line) => !other.has(line)).join("\n");
  };
  const long = a.length + b.length > 60;
  const side = (title: string, text: string) => h("section", {}, h("h3", {}, title), h("pre", { tabindex: 0, role: "group", "aria-label": title }, visible(shortened(text))));
  return h("div", { class: "sides" }, side(long ? "Only in yours" : "Yours", long ? only(a, b) : a.join("\n")), side(long ? "Only in theirs" : "Theirs", long ? only(b, a) : b.join("\n")));
}

/** Asks what becomes of a conflict. It is made anew only when another version is met. */
export function conflictPanel(session: Session<any>, v: View<any>, copied: (id: string) => void): HTMLElement {
  const t = v.theirs!;
  const who = t.writerId ? "by writer " + t.writerId : "when it was created";
  const done = h("p", { role: "alert" });
  const act = async (what: () => boolean | Promise<boolean>) => {
    done.textContent = (await what()) ? "" : "That did not work. Nothing was lost; try again.";
  };
  const copy = async () => {
    const id = await saveAsNew(session, v.name + " (mine)");
    if (id) copied(id);
    return id !== null;
  };
  return h(
    "section", { class: "panel bad", id: "conflict", "aria-labelledby": "conflict-title", tabindex: -1 },
    h("h2", { id: "conflict-title" }, "Two versions"),
    h("p", {}, `Version ${t.version} was saved ${visible(who)} at ${stamp(t.updatedAt)}, while yours is made from version ${v.version}. Nothing is overwritten until you decide.`),
    t.content === undefined ? h("p", {}, "Reading what is stored…") : sides(v.content, t.content),
    h(
      "div", { class: "actions" },
      v.canRebase && button("Merge both", () => void act(() => merge(session)), { id: "merge" }),
      button("Keep mine", () => void act(() => session.keepMine()), { id: "keep-mine" }),
      button("Take theirs", () => void act(() => session.discardAndReload()), { id: "take-theirs" }),
      button("Save mine as a new file", () => void act(copy), { id: "copy-mine" }),
    ),
    done,
  );
}

const canceled = new Error("canceled");

// Where both changed the same attribute, a person chooses; everything else is merged as it is. Who leaves the question has resolved
// nothing.
async function merge(session: Session<any>): Promise<boolean> {
  try {
    return await session.rebase(async (m) => (m.clashes.length === 0 || session.kind !== record ? m.content : choose(m.content as RecordContent, m.clashes)));
  } catch (e) {
    if (e !== canceled) throw e;
    return true;
  }
}

function choose(content: RecordContent, clashes: Clash[]): Promise<RecordContent> {
  return new Promise((done, fail) => {
    const say = (x: unknown) => (x === undefined ? "(deleted)" : visible(typeof x === "string" ? x : JSON.stringify(x)));
    const rows = clashes.map((c, i) => {
      const option = (side: string, value: unknown, checked: boolean) =>
        h("label", {}, h("input", { type: "radio", name: "clash-" + i, value: side, checked }), ` ${side === "mine" ? "Yours" : "Theirs"}: ${say(value)}`);
      return h("fieldset", {}, h("legend", {}, visible(c.id)), option("mine", c.mine, true), option("theirs", c.theirs, false));
    });
    const dialog = h("dialog", { id: "choose", "aria-labelledby": "choose-title" });
    const form = h("form", { method: "dialog" }, h("h2", { id: "choose-title" }, "Both changed these"), ...rows, 
      h("div", { class: "actions" }, h("button", { type: "submit", value: "merge" }, "Merge"), button("Cancel", () => dialog.close())));
    dialog.append(form);
    dialog.addEventListener("close", () => {
      dialog.remove();
      if (dialog.returnValue !== "merge") return fail(canceled);
      const attributes = { ...content.attributes };
      const data = new FormData(form);
      clashes.forEach((c, i) => {
        if (data.get("clash-" + i) !== "theirs") return;
        if (c.theirs === undefined) delete attributes[c.id];
        else attributes[c.id] = c.theirs;
      });
      done({ attributes });
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}

/** Lists unsaved work of other tabs: to adopt, to discard, or to save as it is. Nothing of it is applied by itself. */
export async function siblingsPanel(session: Session<any>, again: () => void): Promise<HTMLElement | null> {
  const list = await siblings(session);
  if (list.length === 0) return null;
  const said = h("p", { role: "alert" });
  const act = async (what: Promise<void>) => {
    try {
      await what;
      again();
    } catch (e) {
      said.textContent = "Not possible: " + (e as Error).message + ".";
    }
  };
  const row = (s: Sibling<any>) =>
    h(
      "li", {},
      h("p", {}, s.open ? "Open in another tab." : s.draft ? `Unsaved, from ${stamp(s.draft.savedAt)} by this device's clock, made from version ${s.draft.base.version}.` : "Cannot be read by this page."),
      s.draft && h("pre", { tabindex: 0, role: "group", "aria-label": "Unsaved content" }, visible(shortened(words(s.draft.content)).slice(0, 300))),
      h(
        "div", { class: "actions" },
        s.draft && !s.open && button("Adopt", () => void act(adopt(session, s)), { class: "adopt" }),
        s.draft && s.open === false && button("Discard", () => void act(discardSibling(session, s)), { class: "danger discard" }),
        button("Download", () => download(session.id + ".json", s.text)),
      ),
    );
  return h("section", { class: "panel doubt", id: "siblings", "aria-labelledby": "siblings-title" }, h("h2", { id: "siblings-title" }, "Unsaved work of other tabs"), h("ul", {}, ...list.map(row)), said);
}

/** What to do where saving stopped for another reason. */
export function stoppedPanel(session: Session<any>, v: View<any>, copied: (id: string) => void): HTMLElement | null {
  const copy = button("Save as a new file", () => void saveAsNew(session).then((id) => id && copied(id)), { id: "copy" });
  switch (v.phase) {
    case "auth_required":
    case "retrying":
    case "unavailable":
      return h("div", { class: "actions", id: "stopped" }, button("Try again", () => session.retry(), { id: "retry" }));
    case "rejected":
    case "blocked":
      return h("div", { class: "actions", id: "stopped" }, button("Try again", () => session.retry(), { id: "retry" }), copy);
    case "reload_required":
      return h("div", { class: "actions", id: "stopped" }, button("Load the page again", () => location.reload()));
    case "orphaned":
      return h("div", { class: "actions", id: "stopped" }, button("Restore it with my work", () => session.restore(), { id: "restore" }), copy, button("Discard my work", () => session.forget(), { class: "danger", id: "forget" }));
  }
  return null;
}
