// What a page may do with a file beside editing it.
import type { Session } from "./session";
import type { Answer } from "./types";

/** Saves the work as a new file, and gives it up in its session. Returns the new file's id, or null when that failed: then nothing changed. */
export async function saveAsNew<C>(session: Session<C>, name = session.state().name): Promise<string | null> {
  const { content } = session.state();
  const { type, schema } = session.kind;
  const body = JSON.stringify({ type, name, schemaVersion: schema, content });
  const { id } = data(await session.desk.http.send("POST", "files", body));
  if (typeof id !== "string") return null;
  if (session.state().content === content) session.forget(); // what was edited meanwhile is not in the new file
  return id;
}

/** Renames, moves or flags the file. The last writer wins, and no version is needed or made. */
export async function describe<C>(session: Session<C>, meta: { name?: string; folderId?: string | null; aiContext?: boolean }): Promise<Answer> {
  const answer = await session.desk.http.send("PUT", session.path(), JSON.stringify(meta));
  const { name } = data(answer).file ?? {};
  if (name !== undefined) session.dispatch({ type: "named", name });
  return answer;
}

const data = (a: Answer): { id?: unknown; file?: { name?: string } } => (a.is === "ok" && a.data) || {};
