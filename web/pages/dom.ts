type Child = Node | string | null | undefined | false;

/** Makes an element. Properties beginning with on are listeners; all others are attributes. */
export function h<K extends keyof HTMLElementTagNameMap>(tag: K, props: Record<string, unknown> = {}, ...children: Child[]): HTMLElementTagNameMap[K] {
  const e = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === false || value === null || value === undefined) continue;
    if (name.startsWith("on")) e.addEventListener(name.slice(2), value as EventListener);
    else e.setAttribute(name, value === true ? "" : String(value));
  }
  e.append(...(children.filter((c) => c !== null && c !== undefined && c !== false) as (Node | string)[]));
  return e;
}

export const button = (text: string, onclick: () => void, more: Record<string, unknown> = {}): HTMLButtonElement => h("button", { type: "button", onclick, ...more }, text);

/** Control characters and marks that turn text around are shown as what they are. */
export const visible = (text: string): string => text.replace(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069]/g, (c) => "\\u" + c.charCodeAt(0).toString(16).padStart(4, "0"));

/** A time as the other pages write it; for display only. */
export function stamp(iso: string | undefined): string {
  const t = iso ? new Date(iso) : null;
  return t && !isNaN(t.getTime()) ? t.toISOString().slice(0, 19).replace("T", " ") + " UTC" : "an unknown time";
}

/** Offers a text as a file. */
export function download(name: string, text: string): void {
  const url = URL.createObjectURL(new Blob([text], { type: "application/json" }));
  h("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
