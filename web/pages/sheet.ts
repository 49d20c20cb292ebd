import type { Session, View } from "../session";
import { withCell, type Spreadsheet } from "../session/kinds/spreadsheet";
import { h } from "./dom";
import type { Editor } from "./editor";

const columns = Array.from({ length: 26 }, (_, i) => String.fromCharCode(65 + i));
const count = 50;

const shown = (sheet: Spreadsheet, name: string): string => String(sheet.cells[name]?.v ?? "");
// What reads the same as a number is one.
const valueOf = (text: string): string | number => (text !== "" && String(Number(text)) === text && isFinite(Number(text)) ? Number(text) : text);

/** A grid of 50 rows and 26 columns. Arrows, Enter and Tab move; what is typed goes into the cell. */
export function sheetEditor(session: Session<Spreadsheet>, readOnly: boolean): Editor<Spreadsheet> {
  const cells = new Map<string, HTMLTableCellElement>();
  let mine: Spreadsheet | undefined;

  const body = h("tbody");
  for (let r = 1; r <= count; r++) {
    const row = h("tr", {}, h("th", { scope: "row" }, String(r)));
    columns.forEach((c) => {
      const cell = h("td", { role: "gridcell", id: c + r, tabindex: c + r === "A1" ? 0 : -1, spellcheck: "false", contenteditable: readOnly ? false : "plaintext-only" });
      cells.set(c + r, cell);
      row.append(cell);
    });
    body.append(row);
  }
  const table = h("table", { role: "grid", "aria-label": "Spreadsheet", class: "sheet", ...(readOnly && { "aria-readonly": "true" }) },
    h("thead", {}, h("tr", {}, h("td"), ...columns.map((c) => h("th", { scope: "col" }, c)))), body);

  const go = (from: HTMLElement, dc: number, dr: number) => {
    const c = Math.min(25, Math.max(0, from.id.charCodeAt(0) - 65 + dc));
    const r = Math.min(count, Math.max(1, Number(from.id.slice(1)) + dr));
    cells.get(columns[c] + r)!.focus();
  };
  table.addEventListener("focusin", (e) => {
    const cell = e.target as HTMLElement;
    if (!cells.has(cell.id)) return;
    for (const other of table.querySelectorAll('td[tabindex="0"]')) other.setAttribute("tabindex", "-1");
    cell.setAttribute("tabindex", "0");
  });
  table.addEventListener("input", (e) => {
    const cell = e.target as HTMLElement;
    const text = (cell.textContent ?? "").replace(/\n$/, "");
    session.edit((now) => (mine = withCell(now, cell.id, valueOf(text))));
  });
  // A cell is one line: Enter moves, whatever sent it.
  table.addEventListener("beforeinput", (e) => {
    if (e.inputType === "insertParagraph" || e.inputType === "insertLineBreak") e.preventDefault();
  });
  table.addEventListener("keydown", (e) => {
    const cell = e.target as HTMLElement;
    if (!cells.has(cell.id) || e.isComposing || e.ctrlKey || e.metaKey || e.altKey) return;
    const at = getSelection();
    const length = (cell.textContent ?? "").length;
    const start = length === 0 || (at?.isCollapsed && at.anchorOffset === 0);
    const end = length === 0 || (at?.isCollapsed && at.anchorOffset === (at.anchorNode?.textContent ?? "").length);
    const move: Record<string, [number, number] | undefined> = {
      ArrowUp: [0, -1], ArrowDown: [0, 1], Enter: [0, e.shiftKey ? -1 : 1],
      ArrowLeft: start ? [-1, 0] : undefined, ArrowRight: end ? [1, 0] : undefined,
    };
    const by = move[e.key];
    if (!by) return;
    e.preventDefault();
    go(cell, ...by);
  });

  return {
    element: h("div", { class: "scroll" }, table),
    show(v: View<Spreadsheet>) {
      if (v.content === undefined || v.content === mine) return;
      mine = v.content;
      for (const [name, cell] of cells) {
        const text = shown(v.content, name);
        if (cell.textContent !== text) cell.textContent = text;
      }
    },
  };
}
