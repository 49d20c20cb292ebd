import { Desk } from "../session";
import { hints } from "../session/hints";
import * as weirSiblings from "../session/siblings";
import { kinds, openEditor } from "./editor";
import { listKept } from "./files";

async function start(): Promise<void> {
  const editor = document.getElementById("desk");
  const kept = document.getElementById("kept");
  const root = editor ?? kept;
  if (!root) return;
  const desk = await Desk.start({ user: root.dataset.user!, kinds, hints });
  if (editor) Object.assign(window, { weirSession: await openEditor(desk, editor), weirSiblings }); // for the console, and for tests
  else await listKept(desk, root);
}

void start();
