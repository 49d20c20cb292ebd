import type { Session, View } from "../session";
import type { Markdown } from "../session/kinds/markdown";
import { h } from "./dom";
import type { Editor } from "./editor";

export function textEditor(session: Session<Markdown>, readOnly: boolean): Editor<Markdown> {
  let mine: Markdown | undefined;
  const area = h("textarea", { id: "text", class: "text", rows: 24, spellcheck: "true", readonly: readOnly, oninput: () => session.edit((mine = { text: area.value })) });
  return {
    element: h("div", {}, h("label", { for: "text" }, "Text, in markdown"), area),
    show(v: View<Markdown>) {
      if (v.content === undefined || v.content === mine) return;
      mine = v.content;
      if (area.value === v.content.text) return;
      const { selectionStart, selectionEnd } = area;
      area.value = v.content.text;
      area.setSelectionRange(selectionStart, selectionEnd);
    },
  };
}
