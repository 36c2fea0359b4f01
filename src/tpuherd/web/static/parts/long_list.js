// A long list shows its newest items first, and more on demand.

import { h, setText } from "../dom.js";
import { formatNumber } from "../format.js";

const FIRST = 6;
const STEP = 50;

/**
 * Fill a container with the first items.
 * @template T
 * @param {Element} container
 * @param {T[]} items
 * @param {(item: T) => Node} make
 * @returns {Element} a button that shows more
 */
export function fillInSteps(container, items, make) {
  let shown = 0;
  const note = h("div", { class: "card-note" });
  const button = h("button", { class: "button", type: "button", onclick: () => showMore(STEP) });
  const showMore = (many) => {
    const next = items.slice(shown, shown + many);
    container.append(...next.map(make));
    shown += next.length;
    note.hidden = shown >= items.length;
    setText(button, `Show ${formatNumber(Math.min(STEP, items.length - shown))} more of ${formatNumber(items.length)}`);
  };
  showMore(FIRST);
  note.append(button);
  return note;
}
