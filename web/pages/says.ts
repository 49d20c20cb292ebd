import type { View } from "../session";

export type Tone = "good" | "bad" | "doubt" | "busy" | "quiet";

/** What the status line says. It is true at any time: "Saved" is said of the newest content only. */
export function says(v: View<unknown>, online: boolean): { tone: Tone; text: string } {
  const kept = v.keeping === "kept" ? "" : v.keeping === "behind" ? " This device's storage is full: it is not kept here." : " It is not kept on this device.";
  switch (v.phase) {
    case "loading":
      return { tone: "busy", text: "Loading…" };
    case "unavailable":
      return { tone: "bad", text: "This document could not be read: " + (v.problem?.message || v.problem?.code || "no answer") + "." };
    case "clean":
      return { tone: "good", text: "Saved, version " + v.version + "." + (v.keeping === "unavailable" ? " Work is not kept on this device." : "") };
    case "dirty":
      return { tone: v.keeping === "kept" ? "quiet" : "bad", text: "Not saved yet." + kept };
    case "saving":
      return { tone: v.keeping === "kept" ? "busy" : "bad", text: "Saving…" + kept };
    case "retrying":
      return { tone: "doubt", text: (online ? "The server does not answer: trying again." : "Offline: it is saved when you are back.") + (kept || " Your work is kept on this device.") };
    case "conflict":
      return { tone: "bad", text: "Another version was saved. Yours is not saved until you decide." + kept };
    case "auth_required":
      return { tone: "bad", text: (v.problem?.code === "user_mismatch" ? "Somebody else has signed in here." : "You are signed out.") + " Sign in as before, then try again." + kept };
    case "blocked":
      return { tone: "bad", text: "You may not save this document." + kept };
    case "orphaned":
      return { tone: "bad", text: "This document was deleted. Your work is not saved." + kept };
    case "rejected":
      return { tone: "bad", text: "The server did not take this: " + (v.problem?.message || v.problem?.code || "") + " " + Object.entries(v.problem?.fields ?? {}).slice(0, 3).map((f) => f.join(" ")).join("; ") + kept };
    case "reload_required":
      return { tone: "bad", text: "This page is older than the server. Load it again: your work is kept on this device." };
    case "closed":
      return { tone: "quiet", text: "Closed." };
  }
}
