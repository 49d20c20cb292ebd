import type { Session, View } from "../session";
import type { RecordContent } from "../session/kinds/record";
import { button, h, visible } from "./dom";
import type { Editor } from "./editor";

const shown = (value: unknown): string => (typeof value === "string" ? value : JSON.stringify(value));

// A value that was a text stays one; any other stays JSON as long as what is typed is JSON.
function typed(text: string, before: unknown): unknown {
  if (typeof before === "string") return text;
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

/** A record: one field for each attribute. */
export function formEditor(session: Session<RecordContent>, readOnly: boolean): Editor<RecordContent> {
  let mine: RecordContent | undefined;
  const inputs = new Map<string, HTMLInputElement>();
  const list = h("div", { class: "attributes" });
  const name = h("input", { id: "new-attribute", maxlength: 200, autocomplete: "off" });
  const set = (change: (a: Record<string, unknown>) => void) =>
    session.edit((now) => {
      const attributes = { ...now.attributes };
      change(attributes);
      return (mine = { attributes });
    });
  const add = () => {
    const id = name.value.trim();
    if (id === "" || inputs.has(id)) return name.focus();
    set((a) => Object.defineProperty(a, id, { value: "", enumerable: true, configurable: true, writable: true }));
    name.value = "";
    render();
    inputs.get(id)!.focus();
  };
  function render(): void {
    const focused = [...inputs].find(([, input]) => input === document.activeElement)?.[0];
    inputs.clear();
    list.replaceChildren(
      ...Object.entries(mine?.attributes ?? {}).map(([id, value], i) => {
        const input = h("input", { id: "attribute-" + i, "data-attribute": id, value: shown(value), autocomplete: "off", readonly: readOnly, oninput: () => set((a) => (a[id] = typed(input.value, a[id]))) });
        inputs.set(id, input);
        return h("div", { class: "attribute" }, h("label", { for: "attribute-" + i }, visible(id)), input,
          !readOnly && button("Delete", () => { set((a) => delete a[id]); render(); name.focus(); }, { "aria-label": "Delete " + visible(id) }));
      }),
    );
    if (focused !== undefined) inputs.get(focused)?.focus();
  }
  const form = h("form", { class: "new", onsubmit: (e: Event) => { e.preventDefault(); add(); } }, h("label", { for: "new-attribute" }, "New attribute"), name, h("button", { type: "submit" }, "Add"));
  return {
    element: h("div", {}, list, !readOnly && form),
    show(v: View<RecordContent>) {
      if (v.content === undefined || v.content === mine) return;
      mine = v.content;
      render();
    },
  };
}
