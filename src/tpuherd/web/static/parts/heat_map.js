// A table of coloured cells, such as zone by hour; each cell also says its value.

import { cleanText, h } from "../dom.js";

const LEVELS = 6; // classes heat-0 … heat-5

/** `cell(row, column)` gives {level: 0..1 or null, text, words}; returns {element, update}. */
export function createHeatMap(options) {
  const detail = h("p", { class: "heat-detail", role: "status" });
  const frame = h("div", { class: "heat-frame", role: "region", tabindex: "0", "aria-label": options.caption });
  const element = h("div", { class: "heat-map card" }, frame, detail);
  const update = (fresh) => {
    const hint = "Point at a cell, or move with the arrow keys, to read it in full.";
    detail.textContent = hint;
    frame.replaceChildren(buildTable(fresh));
  };
  frame.addEventListener("pointerover", (event) => sayCell(detail, event.target.closest("td[data-words]")));
  frame.addEventListener("keydown", (event) => moveFocus(frame, detail, event));
  frame.addEventListener("focusin", (event) => sayCell(detail, event.target.closest("td[data-words]")));
  update(options);
  return { element, update };
}

function buildTable({ caption, corner, rows, columns, cell }) {
  const head = h("tr", {}, h("th", { scope: "col" }, corner), columns.map((name) => h("th", { scope: "col" }, name)));
  const body = rows.map((row, down) => h("tr", {}, h("th", { scope: "row", dir: "auto" }, cleanText(row)),
    columns.map((_, across) => buildCell(cell(down, across), !down && !across))));
  return h("table", { class: "heat-table" }, h("caption", { class: "visually-hidden" }, caption),
    h("thead", {}, head), h("tbody", {}, body));
}

function buildCell({ level, text, words }, first) {
  const known = level !== null && level !== undefined;
  const step = known ? Math.min(LEVELS - 1, Math.max(0, Math.round(level * (LEVELS - 1)))) : null;
  return h("td", { class: known ? `heat-${step}` : "heat-none", "data-words": cleanText(words), tabindex: first ? "0" : "-1" },
    h("span", { "aria-hidden": "true" }, text), h("span", { class: "visually-hidden" }, cleanText(words)));
}

function sayCell(detail, cell) {
  if (cell && detail.textContent !== cell.dataset.words) detail.textContent = cell.dataset.words;
}

/** The arrow keys move the focus from cell to cell. */
function moveFocus(frame, detail, event) {
  const moves = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
  const move = moves[event.key], from = event.target.closest("td[data-words]");
  if (!move || !from) return;
  const row = from.parentElement, body = row.parentElement;
  const down = [...body.children].indexOf(row) + move[0], across = [...row.children].indexOf(from) + move[1];
  const to = body.children[down]?.children[across];
  if (!to || !to.matches("td")) return;
  event.preventDefault();
  from.tabIndex = -1;
  to.tabIndex = 0;
  to.focus();
}

/** The colours from least to most, with words at both ends. */
export function buildHeatKey(least, most) {
  const steps = Array.from({ length: LEVELS }, (_, at) => h("span", { class: `heat-step heat-${at}` }));
  return h("p", { class: "heat-key" }, h("span", {}, least), h("span", { class: "heat-steps", "aria-hidden": "true" }, steps), h("span", {}, most));
}
