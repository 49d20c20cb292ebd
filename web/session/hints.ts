import type { Environment } from "./environment";

/**
 * Listens to the server for saves of others. It is a hint and nothing else: without it the next save finds out. Only a
 * page that is seen listens, since a browser has few connections for each server; whoever comes back is told at once.
 */
export function hints(env: Environment, base: string, files: () => string[], hear: (m: { file: string; version: number }) => void): (on: boolean) => void {
  let source: EventSource | undefined;
  let watched = "";
  let wanted = true;
  let ticks = 0;
  const look = () => {
    const list = files().sort().join(",");
    if (!wanted || list === "" || !env.events) {
      source?.close();
      source = undefined;
      watched = "";
      return;
    }
    if (source && list === watched && (source.readyState !== 2 || ++ticks % 10 > 0)) return;
    source?.close();
    watched = list;
    source = env.events(base + "events?files=" + encodeURIComponent(list));
    source.onmessage = (e) => {
      try {
        hear(JSON.parse(e.data));
      } catch {
        // no hint
      }
    };
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
}
