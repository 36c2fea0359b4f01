// The one small window beside the pointer, or beside what has the focus.

import { h, replace } from "../dom.js";

let element = null;

/** @param {number} x @param {number} y of the viewport @param {import("../dom.js").Child[]} content */
export function showTooltip(x, y, content) {
  element ??= document.body.appendChild(h("div", { class: "tooltip", "aria-hidden": "true" }));
  replace(element, content);
  element.hidden = false;
  const { offsetWidth: width, offsetHeight: height } = element;
  const left = x + 14 + width > innerWidth - 8 ? x - 14 - width : x + 14;
  const top = y + 14 + height > innerHeight - 8 ? y - 14 - height : y + 14;
  element.style.left = `${Math.max(8, left)}px`;
  element.style.top = `${Math.max(8, top)}px`;
}

export function hideTooltip() {
  if (element) element.hidden = true;
}

/** Rows of a name and a value. */
export function makePairs(pairs) {
  return h(
    "dl",
    { class: "pairs" },
    pairs.filter(([, value]) => value !== null && value !== "").map(([name, value]) => [h("dt", null, name), h("dd", { dir: "auto" }, value)]),
  );
}
