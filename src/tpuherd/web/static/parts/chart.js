// A line chart that is live: series with bands, time axis, log scale, cursor, zoom, legend, table.

import { h, svg } from "../dom.js";
import { attachCursor, showReadout, zoomBy } from "./chart_cursor.js";
import { appendPoints, cutPoints, findExtent, findTimes, foldSeries, nearestPoint, parseSeries, usualStep } from "./chart_data.js";
import { buildNote, createLegend, createValueTable } from "./chart_legend.js";
import { layOut, paintCursor, paintFrame, paintPlot, pointLabel, TINTS } from "./chart_paint.js";
import { momentLabel, valueLabel, widenRange } from "./chart_scale.js";

const HEIGHT = 220;
const FOLD_FROM = 9; // series; as many as have a colour of their own are drawn one by one
const GAP_STEPS = 4; // as many usual steps without a point are a gap

/** Returns {element, setSeries, append, setMarks, dispose}. */
export function createChart(options) {
  const state = {
    unit: "number", axis: "time", height: HEIGHT, empty: "No values yet.", log: false, marks: [], fold: true,
    ...options, series: [], hidden: new Set(), view: null, width: 0, cursor: null, plan: null, drawn: [], waiting: 0,
  };
  const parts = buildParts(state);
  const redraw = () => {
    if (!state.waiting) state.waiting = requestAnimationFrame(() => { state.waiting = 0; render(state, parts); });
  };
  connect(state, parts, redraw);
  const setSeries = (series) => {
    state.series = (series || []).map(parseSeries);
    redraw();
  };
  setSeries(options.series);
  const watcher = new ResizeObserver(([entry]) => {
    const width = Math.floor(entry.contentRect.width);
    if (width === state.width) return;
    state.width = width;
    redraw();
  });
  watcher.observe(parts.plot);
  return {
    element: parts.element,
    setSeries,
    append(key, points) {
      const one = state.series.find((other) => other.key === key);
      if (one) appendPoints(one, points);
      else state.series.push(parseSeries({ key, name: key, points }));
      redraw();
    },
    setMarks(marks) {
      state.marks = marks || [];
      redraw();
    },
    dispose() {
      watcher.disconnect();
      cancelAnimationFrame(state.waiting);
    },
  };
}

function buildParts(state) {
  const canvas = svg("svg", { class: "chart-svg", "aria-hidden": "true", focusable: "false" });
  const readout = h("div", { class: "chart-readout", hidden: true, "aria-hidden": "true" });
  const selection = h("div", { class: "chart-selection", hidden: true });
  const plot = h("div", { class: "chart-plot", role: "slider", tabindex: "0", "aria-label": `${state.title}: cursor`,
    "aria-valuenow": "0", "aria-valuetext": state.empty }, canvas, readout, selection);
  const empty = h("p", { class: "chart-empty" }, state.empty);
  const log = h("button", { type: "button", class: "chart-tool", "aria-pressed": String(state.log) }, "log");
  const closer = h("button", { type: "button", class: "chart-tool", "aria-label": `Zoom into ${state.title}` }, "+");
  const farther = h("button", { type: "button", class: "chart-tool", "aria-label": `Zoom out of ${state.title}` }, "\u2212");
  const all = h("button", { type: "button", class: "chart-tool", hidden: true }, "whole range");
  const note = h("p", { class: "chart-note" });
  const legend = createLegend((key) => toggleSeries(state, key));
  const table = createValueTable(state.title, state.axis);
  const element = h("figure", { class: "chart card" },
    h("figcaption", { class: "chart-head" }, h("span", { class: "chart-title" }, state.title),
      h("span", { class: "chart-tools" }, all, log, farther, closer)),
    plot, empty, legend.element, note, table.element);
  return { element, plot, canvas, readout, selection, empty, log, closer, farther, all, note, legend, table };
}

function toggleSeries(state, key) {
  if (!state.hidden.delete(key)) state.hidden.add(key);
}

/** Connect the buttons, the legend, the table and the cursor to the state. */
function connect(state, parts, redraw) {
  parts.log.addEventListener("click", () => {
    state.log = !state.log;
    parts.log.setAttribute("aria-pressed", String(state.log));
    redraw();
  });
  parts.legend.element.addEventListener("click", redraw);
  parts.table.element.addEventListener("toggle", redraw);
  const chart = {
    plan: () => state.plan,
    cursor: () => state.cursor,
    step: () => stepOf(state),
    whole: () => wholeView(state) || [0, 1],
    moveCursor: (at) => { state.cursor = at; drawCursor(state, parts); },
    zoom: (view) => { state.view = view; redraw(); },
  };
  attachCursor(parts.plot, parts.readout, parts.selection, chart);
  parts.closer.addEventListener("click", () => state.plan && zoomBy(chart, 0.5, state.cursor));
  parts.farther.addEventListener("click", () => state.plan && zoomBy(chart, 2, state.cursor));
  parts.all.addEventListener("click", () => { chart.zoom(null); parts.plot.focus(); });
}

function stepOf(state) {
  const step = usualStep(state.drawn);
  if (!state.plan) return step;
  return Math.max(step, (state.plan.view[1] - state.plan.view[0]) / 400);
}

/** The time of all series; one moment is widened. */
function wholeView(state) {
  const times = findTimes(state.series);
  if (!times) return null;
  return times[0] === times[1] ? [times[0] - 30, times[1] + 30] : times;
}

/** Choose what is drawn: all series, or the fold of many; hidden ones keep their colour. */
function chooseSeries(state) {
  const many = state.fold && state.series.length >= FOLD_FROM;
  const each = many ? foldSeries(state.series, usualStep(state.series)) : state.series;
  return each.map((one, at) => ({ ...one, tint: `series-${(at % TINTS) + 1}` }));
}

function render(state, parts) {
  const each = chooseSeries(state);
  const whole = wholeView(state);
  state.drawn = each.filter((one) => !state.hidden.has(one.key));
  parts.legend.update(each, state.hidden);
  parts.empty.hidden = Boolean(whole);
  parts.plot.hidden = !whole;
  if (whole && !state.width) state.width = Math.floor(parts.plot.getBoundingClientRect().width);
  for (const tool of [parts.log, parts.closer, parts.farther]) tool.hidden = !whole;
  parts.all.hidden = !(whole && state.view);
  parts.note.replaceChildren(...buildNote(each, state.log, state.axis));
  if (!whole || !state.width) return;
  state.plan = planChart(state, state.view || whole);
  parts.canvas.setAttribute("width", state.width);
  parts.canvas.setAttribute("height", state.height);
  const gap = GAP_STEPS * usualStep(state.drawn) || Infinity;
  const marks = state.marks.filter(({ at, until }) => at <= state.plan.view[1] && (until ?? at) >= state.plan.view[0]);
  parts.canvas.replaceChildren(...paintFrame(state.plan),
    paintPlot(state.plan, state.drawn, marks, { gap, log: state.log }), svg("g", { class: "chart-cursors" }));
  parts.table.update(state.drawn, state.unit, state.plan.view);
  drawCursor(state, parts);
}

function planChart(state, view) {
  const seen = state.drawn.map((one) => ({ ...one, points: cutPoints(one.points, view[0], view[1]) }));
  const found = findExtent(seen, state.log) || (state.log ? [1, 10] : [0, 1]);
  let extent = widenRange(found[0], found[1], state.log);
  if (state.unit === "percent" && !state.log && found[0] >= 0 && found[1] <= 100) extent = [0, 100];
  return layOut({ ...state, view, extent });
}

/** Draw the cursor and say its values; null hides it. */
function drawCursor(state, parts) {
  const group = parts.canvas.querySelector(".chart-cursors");
  if (!group || !state.plan) return;
  const { plan, cursor } = state;
  const shown = cursor !== null && cursor >= plan.view[0] && cursor <= plan.view[1];
  const found = shown ? readValues(state, cursor) : null;
  group.replaceChildren(...(found ? paintCursor(plan, cursor, found.hits) : []));
  showReadout(parts.readout, plan, cursor, found);
  describePlot(parts.plot, plan, cursor, found);
}

function readValues(state, at) {
  const reach = Math.max(stepOf(state) * GAP_STEPS, (state.plan.view[1] - state.plan.view[0]) / 100);
  const hits = [], rows = [];
  for (const one of state.drawn) {
    const point = nearestPoint(one.points, at, reach);
    if (point && (!state.log || point[2] > 0)) hits.push({ point, tint: one.tint });
    rows.push({ tint: one.tint, name: one.name, value: point ? pointLabel(point, state.unit) : "no value" });
  }
  for (const mark of state.marks) {
    if (mark.at <= at && at <= (mark.until ?? mark.at)) rows.push({ tint: "mark", name: mark.label, value: "" });
  }
  const title = state.axis === "time" ? momentLabel(at) : valueLabel(at);
  return { hits, rows, title };
}

/** What a screen reader says of the cursor. */
function describePlot(plot, plan, at, found) {
  plot.setAttribute("aria-valuemin", String(Math.round(plan.view[0])));
  plot.setAttribute("aria-valuemax", String(Math.round(plan.view[1])));
  plot.setAttribute("aria-valuenow", String(Math.round(at === null ? plan.view[1] : at)));
  const words = found ? `${found.title}: ${found.rows.map(({ name, value }) => `${name} ${value}`.trim()).join("; ")}` : "";
  plot.setAttribute("aria-valuetext", words || "Use the arrow keys to read values, plus and minus to zoom.");
}
