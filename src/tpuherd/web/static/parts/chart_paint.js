// Draws a chart's frame, series and marks as SVG. What to draw comes in as values.

import { svg } from "../dom.js";
import { cutPoints, splitAtGaps } from "./chart_data.js";
import { dateLabel, makeScale, momentLabel, tickLabels, timeLabel, timeTicks, valueLabel, valueTicks,
  linearTicks } from "./chart_scale.js";

const LETTER = 6.7; // width of a letter of an axis, px
const TOP = 10, RIGHT = 14, BOTTOM = 40, LEFT_MIN = 34;
const TICK_ROOM = 84; // px for each label of the time axis
const ROW_ROOM = 38; // px for each label of the value axis
export const TINTS = 8; // classes series-1 … series-8

/** The layout of a chart: plot area, scales, ticks with labels. */
export function layOut({ width, height, view, extent, unit, log, axis }) {
  const high = height - TOP - BOTTOM;
  const ticks = valueTicks(extent[0], extent[1], unit, log, Math.max(2, Math.floor(high / ROW_ROOM)));
  const labels = tickLabels(ticks, unit, log);
  const widest = Math.max(0, ...labels.map((label) => label.length));
  const left = Math.max(LEFT_MIN, Math.ceil(widest * LETTER) + 10);
  const wide = Math.max(20, width - left - RIGHT);
  const x = makeScale(view[0], view[1], 0, wide);
  const y = makeScale(extent[0], extent[1], high, 0, log);
  const moments = layOutMoments(view, Math.max(2, Math.floor(wide / TICK_ROOM)), axis);
  return { left, top: TOP, wide, high, x, y, view, rows: ticks.map((tick, at) => ({ tick, label: labels[at] })), moments };
}

function layOutMoments(view, count, axis) {
  if (axis === "number") {
    const ticks = linearTicks(view[0], view[1], count);
    const labels = tickLabels(ticks);
    return ticks.map((at, place) => ({ at, label: labels[place], date: "" }));
  }
  const { step, ticks } = timeTicks(view[0], view[1], count);
  let before = "";
  return ticks.map((at) => {
    const date = dateLabel(at, step);
    const fresh = date !== before;
    before = date;
    return { at, label: timeLabel(at, step), date: fresh ? date : "" };
  });
}

/** The grid, the ticks and their labels. */
export function paintFrame(plan) {
  const parts = [];
  for (const { tick, label } of plan.rows) {
    const y = round(plan.top + plan.y(tick));
    parts.push(svg("path", { class: "chart-grid", d: `M${plan.left} ${y}h${round(plan.wide)}` }));
    parts.push(svg("text", { class: "chart-tick", x: plan.left - 6, y: y + 4, "text-anchor": "end" }, label));
  }
  const floor = plan.top + plan.high;
  for (const { at, label, date } of plan.moments) {
    const x = round(plan.left + plan.x(at));
    parts.push(svg("path", { class: "chart-axis", d: `M${x} ${floor}v4` }));
    const anchor = anchorOf(plan, plan.x(at), Math.max(label.length, date.length));
    parts.push(svg("text", { class: "chart-tick", x, y: floor + 19, "text-anchor": anchor }, label));
    if (date) parts.push(svg("text", { class: "chart-date", x, y: floor + 33, "text-anchor": anchor }, date));
  }
  parts.push(svg("path", { class: "chart-axis", d: `M${plan.left} ${floor}h${round(plan.wide)}` }));
  return parts;
}

/** Labels at the ends stay within the chart. */
function anchorOf(plan, x, letters) {
  const half = (letters * LETTER) / 2;
  if (x + half > plan.wide + RIGHT) return "end";
  return x - half < -plan.left ? "start" : "middle";
}

/** Everything within the frame: marks, bands, lines and broken values. */
export function paintPlot(plan, each, marks, { gap, log }) {
  const inner = svg("svg", { class: "chart-inner", x: plan.left, y: plan.top, width: plan.wide, height: plan.high });
  for (const mark of marks) inner.append(...paintMark(plan, mark));
  for (const one of each) inner.append(...paintSeries(plan, one, gap, log));
  return inner;
}

function paintMark(plan, { at, until, label }) {
  const from = plan.x(at), to = plan.x(until === null || until === undefined ? at : until);
  const width = round(Math.max(1.5, to - from));
  return [
    svg("rect", { class: "chart-mark", x: round(from), y: 0, width, height: plan.high },
      svg("title", {}, `${label} (${momentLabel(at)})`)),
    svg("rect", { class: "chart-mark-top", x: round(from), y: 0, width, height: 3 }),
  ];
}

function paintSeries(plan, one, gap, log) {
  const seen = (point) => (!log || point[2] > 0);
  const points = cutPoints(one.points, plan.view[0], plan.view[1]).filter(seen);
  const runs = splitAtGaps(points, one.broken, gap);
  const bands = runs.map((run) => bandPath(plan, run, log)).filter(Boolean).join("");
  const lines = runs.map((run) => linePath(plan, run)).join("");
  const parts = [];
  if (bands) parts.push(svg("path", { class: `chart-band ${one.tint}`, d: bands }));
  if (lines) parts.push(svg("path", { class: `chart-line ${one.tint}`, d: lines }));
  const crosses = one.broken.map((at) => crossPath(round(plan.x(at)), plan.high - 5)).join("");
  if (crosses) parts.push(svg("path", { class: `chart-broken ${one.tint}`, d: crosses }));
  return parts;
}

function linePath(plan, run) {
  const places = run.map((point) => `${round(plan.x(point[0]))} ${round(plan.y(point[2]))}`);
  return places.length > 1 ? `M${places.join("L")}` : `M${places[0]}h0.01`;
}

/** The area from low to high; empty if they are less than a pixel apart everywhere. */
function bandPath(plan, run, log) {
  const floor = (value, mean) => plan.y(log && value <= 0 ? mean : value);
  const tops = run.map((point) => [round(plan.x(point[0])), round(plan.y(point[3])), round(floor(point[1], point[2]))]);
  if (run.length < 2 || !tops.some(([, top, bottom]) => bottom - top > 1)) return "";
  const upper = tops.map(([x, top]) => `${x} ${top}`).join("L");
  const lower = tops.reverse().map(([x, , bottom]) => `${x} ${bottom}`).join("L");
  return `M${upper}L${lower}Z`;
}

function crossPath(x, y) {
  return `M${x - 3} ${y - 3}l6 6m0 -6l-6 6`;
}

/** The line and dots of the cursor. */
export function paintCursor(plan, at, hits) {
  const x = round(plan.left + plan.x(at));
  const dots = hits.map(({ point, tint }) => svg("circle", {
    class: `chart-dot ${tint}`, cx: round(plan.left + plan.x(point[0])), cy: round(plan.top + plan.y(point[2])), r: 3.5 }));
  return [svg("path", { class: "chart-cursor", d: `M${x} ${plan.top}v${round(plan.high)}` }), ...dots];
}

/** A value as text, with the range it stands for if there is one. */
export function pointLabel(point, unit) {
  const [, low, mean, high] = point;
  const value = valueLabel(mean, unit);
  if (low === high) return value;
  return `${value} (${valueLabel(low, unit)} to ${valueLabel(high, unit)})`;
}

function round(value) {
  return Math.round(value * 10) / 10;
}
