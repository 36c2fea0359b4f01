// The slots of a job: what each does, how far it is, and what it costs.

import { cleanText, h, reconcile, replace, setProp, setText } from "../dom.js";
import { formatGoodput, formatMoney, formatNumber, NOTHING } from "../format.js";
import { phaseTone } from "./states.js";

const COLUMNS = [
  ["Slot", ""], ["Phase", ""], ["What it does", ""], ["Step", "num"], ["Saved", "num"], ["Goodput", "num"], ["Cost", "num"], ["Attempt", "num"],
];
const MOST = 300;

export function makeSlotTable() {
  const head = h("tr", null, COLUMNS.map(([title, style]) => h("th", { scope: "col", class: style }, title)));
  const caption = h("caption", { class: "visually-hidden" }, "Slots");
  const table = h("table", { class: "table details-table" }, caption, h("thead", null, head), h("tbody"));
  return h("div", null, h("div", { class: "table-wrap" }, table), h("p", { class: "card-note" }));
}

/** @param {HTMLElement} element @param {any[]} slots rows of the job, as in `herd status` */
export function updateSlotTable(element, slots) {
  const [wrap, note] = element.children;
  reconcile(wrap.firstElementChild.tBodies[0], slots.slice(0, MOST), (slot) => slot.slot, makeRow, updateRow);
  note.hidden = slots.length <= MOST;
  setText(note, `${formatNumber(slots.length - MOST)} more slots: \`herd status\` lists them.`);
}

function makeRow(slot) {
  const cells = COLUMNS.slice(1).map(([title, style]) => h("td", { class: style, data: { title } }));
  cells[0].append(h("span", { class: "badge" }));
  return h("tr", null, h("th", { scope: "row", class: "nowrap", dir: "auto" }, slot.slot), cells);
}

function updateRow(row, slot) {
  const [, phase, why, step, saved, goodput, cost, attempt] = row.cells;
  setText(phase.firstElementChild, slot.phase);
  setProp(phase.firstElementChild, "class", `badge ${phaseTone(slot.phase)}`);
  const place = [slot.zone, slot.type, slot.tier].filter(Boolean).join(" · ");
  const text = cleanText(slot.why ?? "");
  if (why.herdText !== text + place) {
    why.herdText = text + place;
    replace(why, h("span", { dir: "auto" }, text), place && h("div", { class: "muted" }, place));
  }
  setText(step, stepText(slot));
  setText(saved, formatNumber(slot.saved));
  setText(goodput, formatGoodput(slot));
  setProp(goodput, "title", slot.goodput_why);
  setText(cost, formatMoney(slot.cost, slot.price_known));
  setText(attempt, slot.attempt ? String(slot.attempt) : NOTHING);
}

function stepText(slot) {
  if (!Number.isFinite(slot.step)) return NOTHING;
  return slot.total > 0 ? `${formatNumber(slot.step)} of ${formatNumber(slot.total)}` : formatNumber(slot.step);
}
