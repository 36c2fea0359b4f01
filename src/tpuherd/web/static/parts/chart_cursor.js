// The cursor of a chart: mouse, touch and keyboard move it, zoom, and read values out.

import { h } from "../dom.js";

const DRAG_MIN = 6; // px before a drag is a zoom
const ROWS_MAX = 12; // of the readout
const ZOOM = 0.5;
const BESIDE = 12; // px from the cursor to its values

/**
 * Let the user move a cursor over the plot and zoom.
 *
 * `chart` offers: plan(), read(at) -> {title, rows: [{tint, name, value}], spoken}, moveCursor(at | null),
 * cursor(), step(), zoom(view | null), whole().
 */
export function attachCursor(plot, readout, selection, chart) {
  let drag = null;
  const timeAt = (event) => {
    const plan = chart.plan();
    const x = event.clientX - plot.getBoundingClientRect().left - plan.left;
    const share = Math.min(1, Math.max(0, x / plan.wide));
    return plan.view[0] + share * (plan.view[1] - plan.view[0]);
  };
  plot.addEventListener("pointermove", (event) => {
    if (!chart.plan()) return;
    chart.moveCursor(timeAt(event));
    if (drag) drawSelection(selection, chart.plan(), drag.at, timeAt(event));
  });
  plot.addEventListener("pointerdown", (event) => {
    if (!chart.plan()) return;
    chart.moveCursor(timeAt(event));
    if (event.pointerType !== "mouse" || event.button !== 0) return;
    drag = { at: timeAt(event), x: event.clientX };
    plot.setPointerCapture(event.pointerId);
  });
  plot.addEventListener("pointerup", (event) => {
    if (drag && Math.abs(event.clientX - drag.x) >= DRAG_MIN) {
      const other = timeAt(event);
      chart.zoom([Math.min(drag.at, other), Math.max(drag.at, other)]);
    }
    drag = null;
    selection.hidden = true;
  });
  plot.addEventListener("pointercancel", () => {
    drag = null;
    selection.hidden = true;
  });
  plot.addEventListener("pointerleave", () => {
    if (!drag && document.activeElement !== plot) chart.moveCursor(null);
  });
  plot.addEventListener("dblclick", () => chart.zoom(null));
  plot.addEventListener("blur", () => chart.moveCursor(null));
  plot.addEventListener("focus", () => chart.plan() && chart.cursor() === null && chart.moveCursor(chart.plan().view[1]));
  plot.addEventListener("keydown", (event) => {
    if (chart.plan() && !event.ctrlKey && !event.metaKey && !event.altKey && pressKey(event.key, chart)) event.preventDefault();
  });
}

/** Do what a key means; false if it means nothing here. */
function pressKey(key, chart) {
  const { view } = chart.plan();
  const at = chart.cursor() === null ? view[1] : chart.cursor();
  const moves = { ArrowLeft: -1, ArrowRight: 1, ArrowDown: -1, ArrowUp: 1, PageDown: -10, PageUp: 10 };
  if (key in moves) chart.moveCursor(clamp(at + moves[key] * chart.step(), view));
  else if (key === "Home") chart.moveCursor(view[0]);
  else if (key === "End") chart.moveCursor(view[1]);
  else if (key === "+" || key === "=") zoomBy(chart, ZOOM, at);
  else if (key === "-") zoomBy(chart, 1 / ZOOM, at);
  else if (key === "Escape" || key === "0") chart.zoom(null);
  else return false;
  return true;
}

/** Show a shorter or longer time, keeping the moment `at` where it is. */
export function zoomBy(chart, factor, at) {
  const { view } = chart.plan(), whole = chart.whole();
  const middle = at === null ? (view[0] + view[1]) / 2 : at;
  const since = middle - (middle - view[0]) * factor, until = middle + (view[1] - middle) * factor;
  if (until - since >= whole[1] - whole[0]) chart.zoom(null);
  else if (until - since > Math.max(1e-6, chart.step() * 2)) chart.zoom([Math.max(whole[0], since), Math.min(whole[1], until)]);
}

function clamp(at, view) {
  return Math.min(view[1], Math.max(view[0], at));
}

function drawSelection(selection, plan, from, to) {
  const left = plan.left + plan.x(Math.min(from, to)), right = plan.left + plan.x(Math.max(from, to));
  selection.hidden = right - left < DRAG_MIN;
  selection.style.left = `${left}px`;
  selection.style.width = `${right - left}px`;
}

/** Show the values under the cursor beside it, where there is room. */
export function showReadout(readout, plan, at, found) {
  readout.hidden = !found;
  if (!found) return;
  const rows = found.rows.slice(0, ROWS_MAX);
  const more = found.rows.length - rows.length;
  readout.replaceChildren(
    h("div", { class: "chart-when" }, found.title),
    ...rows.map(({ tint, name, value }) => h("div", { class: "chart-value" },
      h("span", { class: `chart-swatch ${tint}` }), h("span", { class: "chart-name" }, name), h("b", {}, value))),
    more > 0 ? h("div", { class: "chart-when" }, `and ${more} more`) : "",
  );
  const x = plan.left + plan.x(at), width = readout.offsetWidth;
  const right = x + BESIDE + width <= plan.left + plan.wide;
  readout.style.left = `${Math.max(0, right ? x + BESIDE : x - BESIDE - width)}px`;
}
