import { attempt, type Environment } from "./environment";

/** Calls hear for each save of a file, while it is on. Returns how to switch it. */
export type Hints = (env: Environment, base: string, files: () => string[], hear: (m: unknown) => void) => (on: boolean) => void;

/**
 * Listens to the server for saves of others. It is a hint and nothing else: without it the next save finds out. Only a
 * page that is seen listens, since a browser has few connections for each server; whoever comes back is told at once.
 */
export const hints: Hints = (env, base, files, hear) => {
  let source: EventSource | undefined;
  let watched = "";
  let wanted = true;
  let ticks = 0;
  const look = () => {
    const list = files().sort().join(",");
    if (!wanted || list === "" || typeof EventSource === "undefined") {
      source?.close();
      source = undefined;
      watched = "";
      return;
    }
    if (source && list === watched && (source.readyState !== 2 || ++ticks % 10 > 0)) return;
    source?.close();
    watched = list;
    source = new EventSource(base + "events?files=" + encodeURIComponent(list));
    source.onmessage = (e) => hear(attempt(() => JSON.parse(e.data)));
  };
  const again = () => {
    look();
    env.window.setTimeout(again, 3000);
  };
  env.window.setTimeout(again, 500);
  return (on) => {
    wanted = on;
    look();
  };
};
