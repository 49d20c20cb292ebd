import type { Kind } from "../types";

export interface Cell {
  v: string | number | null;
  f?: string;
  t?: string;
}
export interface Column {
  label?: string;
  width?: number;
}
export interface Spreadsheet {
  cells: Record<string, Cell>;
  columnMeta?: Record<string, Column> | null;
}

/** Spreadsheets, from A1 to Z50. They do not merge: a formula may mean cells that the other side changed. */
export const spreadsheet: Kind<Spreadsheet> = {
  type: "spreadsheet",
  schema: 1,
  read(content) {
    const c = content as Partial<Spreadsheet> | null;
    return c && typeof c.cells === "object" && c.cells !== null && !Array.isArray(c.cells) ? (c as Spreadsheet) : undefined;
  },
};

/** A sheet with one cell changed; undefined or an empty text clears it. The sheet that is given stays as it is. */
export function withCell(sheet: Spreadsheet, name: string, value: string | number | undefined): Spreadsheet {
  const cells = { ...sheet.cells };
  if (value === undefined || value === "") delete cells[name];
  else cells[name] = { ...cells[name], v: value };
  return { ...sheet, cells };
}
