// The window that lists the keys.

import { h } from "../dom.js";
import { showText } from "./dialog.js";

const KEYS = [
  ["/", "go to the filter of the page"],
  ["Esc", "leave the filter, close a window"],
  ["g", "go to the fleet"],
  ["?", "show these keys"],
  ["Tab", "go to the next link, button, grid or timeline"],
  ["← → ↑ ↓", "in the chips: move from chip to chip; in a timeline: from span to span and slot to slot; in a chart: move the cursor; in a map of capacity: from cell to cell"],
  ["Enter", "in the chips: open the job of the chip; in a timeline: zoom to the span"],
  ["+ − 0", "in a timeline or chart: zoom in, out, show all"],
  ["Shift ← →", "in a timeline: move the window"],
];

export function showKeyHelp() {
  const rows = KEYS.map(([key, text]) => h("tr", null, h("th", { scope: "row" }, h("kbd", null, key)), h("td", null, text)));
  showText("Keys", h("table", { class: "keys" }, h("tbody", null, rows)));
}
