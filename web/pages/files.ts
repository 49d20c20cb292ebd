import type { Desk } from "../session";
import { forget, kept, leave, type Kept } from "../session/kept";
import { button, download, h, stamp, visible } from "./dom";

/** What is kept on this device, of files that are deleted too; and a way to leave none of it here. */
export async function listKept(desk: Desk, root: HTMLElement): Promise<void> {
  const again = () => void listKept(desk, root);
  const list = await kept(desk);
  root.hidden = list.length === 0;
  const row = (s: Kept) =>
    h(
      "li", {},
      h("a", { href: "/files/" + encodeURIComponent(s.file) }, visible(s.draft?.name || s.file)),
      s.open ? " is open in another tab." : s.draft ? ` has unsaved work from ${stamp(s.draft.savedAt)} by this device's clock, made from version ${s.draft.base.version}.` : " has work that this page cannot read.",
      h("div", { class: "actions" }, button("Download", () => download(s.file + ".json", s.text)),
        !s.open && button("Discard", () => void forget(desk, s).then(again), { class: "danger" })),
    );
  root.replaceChildren(
    h("h2", { id: "kept-title" }, "Unsaved work on this device"),
    h("ul", {}, ...list.map(row)),
    h("div", { class: "actions" }, button("Leave this device…", () => void ask(desk).then(again), { id: "leave" })),
  );
}

// Before somebody signs out: what is left here would stay for them only, but it would stay.
function ask(desk: Desk): Promise<boolean> {
  return leave(
    desk,
    (left) =>
      new Promise((done) => {
        const dialog = h("dialog", { id: "leaving", "aria-labelledby": "leaving-title" });
        const answer = (said: "keep" | "delete" | null) => () => {
          dialog.remove();
          done(said);
        };
        dialog.append(
          h("h2", { id: "leaving-title" }, "Unsaved work on this device"),
          h("p", {}, `There ${left.length === 1 ? "is one document" : "are " + left.length + " documents"} with work that is not saved. Nobody else who signs in here sees it.`),
          h("div", { class: "actions" }, button("Keep it here", answer("keep"), { id: "leave-keep" }), button("Delete it", answer("delete"), { class: "danger", id: "leave-delete" }), button("Cancel", answer(null))),
        );
        dialog.addEventListener("cancel", answer(null));
        document.body.append(dialog);
        dialog.showModal();
      }),
  );
}
