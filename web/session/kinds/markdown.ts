import type { Kind } from "../types";

export interface Markdown {
  text: string;
}

/** Texts. They do not merge: which of two sentences is right is a person's to say. */
export const markdown: Kind<Markdown> = {
  type: "markdown",
  schema: 1,
  read: (content) => (typeof (content as Markdown | null)?.text === "string" ? (content as Markdown) : undefined),
  same: (a, b) => a.text === b.text,
};
