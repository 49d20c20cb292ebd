import type { Desk, Kind, Session, View } from "../session";
import { describe } from "../session/files";
import { markdown } from "../session/kinds/markdown";
import { record } from "../session/kinds/record";
import { spreadsheet } from "../session/kinds/spreadsheet";
import { h } from "./dom";
import { formEditor } from "./form";
import { conflictPanel, sides, siblingsPanel, stoppedPanel } from "./panels";
import { says } from "./says";
import { sheetEditor } from "./sheet";
import { textEditor } from "./text";

/** Shows a content, and edits it through its session. */
export interface Editor<C> {
  element: HTMLElement;
  show(v: View<C>): void;
}

export const kinds: Kind<any>[] = [spreadsheet, record, markdown];
const editors: Record<string, (s: Session<any>, readOnly: boolean) => Editor<any>> = { spreadsheet: sheetEditor, record: formEditor, markdown: textEditor };

/** The page of one document. */
export async function openEditor(desk: Desk, root: HTMLElement): Promise<Session<any>> {
  const { file, type, viewer } = root.dataset as { file: string; type: string; viewer?: string };
  const kind = kinds.find((k) => k.type === type)!;
  const session: Session<any> = await desk.open(file, kind);
  const editor = editors[type](session, viewer !== undefined);
  const badge = h("span", { class: "badge quiet", id: "tone" });
  const text = h("span", { id: "says" });
  const hint = h("p", { id: "newer", class: "notice", role: "status", hidden: true });
  const above = h("div", { id: "stop" });
  const recovered = h("div", { id: "recovered" });
  const name = document.getElementById("name") as HTMLInputElement | null;
  const status = h("p", { id: "status", class: "status", role: "status" }, badge, " ", text);
  root.replaceChildren(status, hint, recovered, above, editor.element);

  const copied = (id: string) => location.assign("/files/" + encodeURIComponent(id));
  let panel = "";
  function show(v: View<any>): void {
    const { tone, text: said } = says(v, navigator.onLine);
    if (text.textContent !== said) text.textContent = said;
    badge.className = "badge " + tone;
    badge.textContent = { good: "saved", busy: "working", quiet: "unsaved", doubt: "waiting", bad: "attention" }[tone];
    root.dataset.phase = v.phase;
    root.dataset.keeping = v.keeping;
    hint.hidden = v.newer === null || v.phase === "conflict";
    hint.textContent = v.newer === null ? "" : `Version ${v.newer} was saved elsewhere. Yours will meet it at the next save.`;
    editor.element.toggleAttribute("inert", !v.editable);
    editor.show(v);
    if (name && document.activeElement !== name && name.value !== v.name && v.name !== "") name.value = v.name;
    // A panel that a person reads, or has the focus in, is not made anew for every key.
    const now = v.phase === "conflict" ? ["conflict", v.theirs?.version, v.theirs?.rev, v.theirs?.content !== undefined, v.canRebase].join() : v.phase;
    if (now === panel) {
      if (v.phase === "conflict") compare();
      return;
    }
    const before = panel;
    panel = now;
    above.replaceChildren(...[v.phase === "conflict" ? conflictPanel(session, v, copied) : stoppedPanel(session, v, copied)].filter((x) => x !== null));
    if (v.phase === "clean" && before !== "clean") void recover();
  }
  // What is typed in conflict is compared anew, but not for every key.
  let comparing = false;
  function compare(): void {
    if (comparing) return;
    comparing = true;
    setTimeout(() => {
      comparing = false;
      const { phase, content, theirs } = session.state();
      if (phase === "conflict" && theirs?.content !== undefined) above.querySelector(".sides")?.replaceWith(sides(content, theirs.content));
    }, 500);
  }
  async function recover(): Promise<void> {
    const list = viewer === undefined ? await siblingsPanel(session, () => void recover()) : null;
    recovered.replaceChildren(...(list ? [list] : []));
  }
  session.subscribe(show);
  show(session.state());
  void recover();
  window.addEventListener("online", () => show(session.state()));
  window.addEventListener("offline", () => show(session.state()));
  name?.addEventListener("change", () => void describe(session, { name: name.value }));
  return session;
}
