// A table that people sort, filter and read on a phone; rows keep their place while values change.

import { cleanText, h, reconcile, setText } from "../dom.js";

// Rows that are drawn at first, and each time more are asked for; on a phone each is a card.
const PAGE = 200, PAGE_OF_CARDS = 20;
const FILTER_MIN = 8; // rows from which a filter is worth its place

/** Returns {element, setRows, dispose}. */
export function createTable(options) {
  const state = {
    rows: [], filter: true, sort: null, empty: "Nothing yet.", rowKey: (row) => rowName(options.columns, row),
    ...options, words: "", limit: pageLength(),
  };
  const parts = buildParts(state);
  const redraw = () => drawRows(state, parts);
  parts.input.addEventListener("input", () => {
    state.words = parts.input.value.trim().toLowerCase();
    state.limit = pageLength();
    redraw();
  });
  parts.more.addEventListener("click", () => {
    state.limit += pageLength();
    redraw();
  });
  for (const [at, button] of parts.sorters.entries()) {
    if (state.columns[at].sortable === false) continue;
    button.addEventListener("click", () => {
      state.sort = nextSort(state.sort, state.columns[at]);
      redraw();
    });
  }
  const setRows = (rows) => {
    state.rows = rows || [];
    redraw();
  };
  setRows(state.rows);
  return { element: parts.element, setRows, dispose() {} };
}

function pageLength() {
  return matchMedia("(max-width: 700px)").matches ? PAGE_OF_CARDS : PAGE;
}

function rowName(columns, row) {
  return String(readValue(columns[0], row));
}

/** The first press sorts upwards, or downwards what is read from its largest value. */
function nextSort(sort, column) {
  if (sort && sort.key === column.key) return { key: column.key, descending: !sort.descending };
  return { key: column.key, descending: Boolean(column.right) };
}

function buildParts(state) {
  const sorters = state.columns.map(({ title, sortable }) => h(sortable === false ? "span" : "button", {
    type: sortable === false ? null : "button", class: sortable === false ? null : "table-sort" },
  title, h("span", { class: "table-arrow", "aria-hidden": "true" })));
  const heads = state.columns.map((column, at) => h("th", { scope: "col", role: "columnheader", class: cellClass(column) }, sorters[at]));
  const body = h("tbody", { role: "rowgroup" });
  const caption = h("caption", { class: "visually-hidden" }, state.caption);
  const table = h("table", { class: "table data-table", role: "table" }, caption,
    h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, heads)), body);
  const input = h("input", { type: "search", class: "field table-filter", placeholder: "Filter", "data-filter": true,
    "aria-label": `Filter: ${state.caption}`, autocomplete: "off", spellcheck: "false" });
  const count = h("span", { class: "table-count", role: "status" });
  const tools = h("div", { class: "table-tools" }, input, count);
  const frame = h("div", { class: "table-frame", role: "region", tabindex: "0", "aria-label": state.caption }, table);
  const empty = h("p", { class: "empty" });
  const more = h("button", { type: "button", class: "button table-more" });
  const element = h("div", { class: "table-part card" }, tools, frame, empty, more);
  return { element, sorters, heads, body, input, count, tools, frame, empty, more };
}

function cellClass(column) {
  return column.right ? "num" : null;
}

function drawRows(state, parts) {
  const found = sortRows(state, state.rows.filter((row) => matchesWords(state, row)));
  const drawn = found.slice(0, state.limit);
  parts.tools.hidden = !state.filter || state.rows.length < FILTER_MIN;
  parts.frame.hidden = !found.length;
  parts.empty.hidden = Boolean(found.length);
  setText(parts.empty, state.rows.length ? `No row contains \u201c${state.words}\u201d.` : state.empty);
  setText(parts.count, state.words ? `${found.length} of ${state.rows.length}` : `${state.rows.length}`);
  parts.more.hidden = drawn.length === found.length;
  setText(parts.more, `Show ${Math.min(pageLength(), found.length - drawn.length)} more of ${found.length}`);
  for (const [at, column] of state.columns.entries()) markSort(state.sort, column, parts.heads[at], parts.sorters[at]);
  reconcile(parts.body, drawn, state.rowKey, (row) => buildRow(state.columns, row), (element, row) => updateRow(state.columns, element, row));
}

function markSort(sort, column, head, button) {
  const mine = Boolean(sort && sort.key === column.key);
  const order = sort && sort.descending ? "descending" : "ascending";
  if (mine) head.setAttribute("aria-sort", order);
  else head.removeAttribute("aria-sort");
  setText(button.lastChild, mine ? (sort.descending ? "\u25be" : "\u25b4") : "");
}

function matchesWords(state, row) {
  if (!state.words) return true;
  const text = state.columns.map((column) => readValue(column, row)).join(" ").toLowerCase();
  return state.words.split(/\s+/).every((word) => text.includes(word));
}

function sortRows(state, rows) {
  const column = state.sort && state.columns.find(({ key }) => key === state.sort.key);
  if (!column) return rows;
  const turn = state.sort.descending ? -1 : 1;
  return rows
    .map((row) => [readValue(column, row), row])
    .sort(([left], [right]) => compareValues(left, right, turn))
    .map(([, row]) => row);
}

/** Numbers by size, texts as people order them (gpt-2 before gpt-10); what is unknown comes last. */
function compareValues(left, right, turn) {
  const missing = isMissing(left) - isMissing(right);
  if (missing) return missing;
  if (typeof left === "number" && typeof right === "number") return turn * (left - right);
  return turn * String(left).localeCompare(String(right), "en", { numeric: true });
}

function isMissing(value) {
  return Number(value === null || value === undefined || value === "" || Number.isNaN(value));
}

function readValue(column, row) {
  return column.value ? column.value(row) : row[column.key];
}

function buildRow(columns, row) {
  const cells = columns.map((column, at) => h(at ? "td" : "th", { role: at ? "cell" : "rowheader", scope: at ? null : "row",
    class: cellClass(column), "data-title": column.title, dir: "auto" }));
  return h("tr", { role: "row" }, cells);
}

function updateRow(columns, element, row) {
  for (const [at, column] of columns.entries()) {
    const cell = element.children[at];
    const content = column.cell ? column.cell(row, cell.firstElementChild) : readValue(column, row);
    if (!(content instanceof Node)) setText(cell, isMissing(content) ? "\u2013" : cleanText(content));
    else if (cell.firstChild !== content) cell.replaceChildren(content);
  }
}
