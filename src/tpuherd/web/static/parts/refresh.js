// Keeps what a page got from the server fresh: fetches at once, after changes, and after a lost connection.

import { createScope, h, replace } from "../dom.js";
import { makeErrorNotice } from "./notice.js";

const PAUSE_MS = 2000; // between two fetches
const SLOW_MS = 30_000; // a fetch without any change: clocks and costs go on

/**
 * Fetch `path` and hand the content to `show`, again and again, until disposed.
 *
 * An error is shown in `place`, what was there stays.
 * @returns {{dispose: () => void, refresh: () => void}}
 */
export function keepFresh(live, path, place, show, { pauseMs = PAUSE_MS, slowMs = SLOW_MS } = {}) {
  const scope = createScope();
  const control = new AbortController();
  let timer = 0, due = Infinity, last = -Infinity, under = false, wanted = false;
  const fetchNow = async () => {
    clearTimeout(timer);
    due = Infinity;
    if (under) {
      wanted = true;
      return;
    }
    under = true;
    wanted = false;
    last = performance.now();
    try {
      const content = await live.getJson(path, control.signal);
      if (control.signal.aborted) return;
      show(content);
      replace(place);
    } catch (error) {
      if (control.signal.aborted) return;
      replace(place, makeErrorNotice(error, fetchNow));
    } finally {
      under = false;
    }
    plan(wanted ? pauseMs : slowMs);
  };
  const plan = (ms) => {
    const at = performance.now() + ms;
    if (at >= due || control.signal.aborted) return; // an earlier one is planned
    clearTimeout(timer);
    due = at;
    timer = setTimeout(() => {
      due = Infinity;
      if (document.hidden) plan(slowMs);
      else fetchNow();
    }, ms);
  };
  scope.add(live.on("changes", () => plan(Math.max(0, last + pauseMs - performance.now()))));
  scope.add(live.on("status", (status) => status === "live" && fetchNow()));
  scope.add(() => clearTimeout(timer));
  scope.add(() => control.abort());
  fetchNow();
  return { refresh: fetchNow, dispose: scope.dispose };
}

/** A figure with its name, as in the head of a page. */
export function buildTile(name, value, note = "") {
  return h("div", { class: "tile" }, h("dt", {}, name), h("dd", {}, value), note ? h("dd", { class: "tile-more" }, note) : null);
}
