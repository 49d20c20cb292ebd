import type { Desk, Kept } from "../session";
import { button, download, h, stamp, visible } from "./dom";

/** What is kept on this device, of files that are deleted too; and a way to leave none of it here. */
export async function listKept(desk: Desk, root: HTMLElement): Promise<void> {
  const again = () => void listKept(desk, root);
  const kept = await desk.kept();
  root.hidden = kept.length === 0;
  const row = (s: Kept) =>
    h(
      "li", {},
      h("a", { href: "/files/" + encodeURIComponent(s.file) }, visible(s.draft?.name || s.file)),
      s.open ? " is open in another tab." : s.draft ? ` has unsaved work from ${stamp(s.draft.savedAt)}, made from version ${s.draft.base.version}.` : " has work that this page cannot read.",
      h("div", { class: "actions" }, button("Download", () => download(s.file + ".json", s.text)),
        !s.open && button("Discard", () => void desk.forget(s).then(again), { class: "danger" })),
    );
  root.replaceChildren(
    h("h2", { id: "kept-title" }, "Unsaved work on this device"),
    h("ul", {}, ...kept.map(row)),
    h("div", { class: "actions" }, button("Leave this device…", () => void leave(desk).then(again), { id: "leave" })),
  );
}

// Before somebody signs out: what is left here would stay for them only, but it would stay.
function leave(desk: Desk): Promise<boolean> {
  return desk.leave(
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
