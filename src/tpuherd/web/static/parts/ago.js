// Times that say how long ago something was, and stay current.

import { h, setProp, setText } from "../dom.js";
import { formatAgo, formatClock } from "../format.js";

export function makeAgo(live, at = null) {
  const element = h("time", { class: "ago nowrap" });
  setAgo(element, live, at);
  return element;
}

export function setAgo(element, live, at) {
  setProp(element, "data", { ago: at });
  setProp(element, "title", at ? formatClock(at) : null);
  setText(element, formatAgo(at, live.now()));
}

/** Renew all of them every few seconds. */
export function startAgos(live) {
  setInterval(() => {
    if (document.hidden) return;
    const now = live.now();
    for (const element of document.querySelectorAll("time[data-ago]")) {
      setText(element, formatAgo(Number(element.dataset.ago), now));
    }
  }, 5000);
}
