// Trials as dots: a parameter, or the trial's number, against the metric; a shape a kind.

import { cleanText, h, svg } from "../dom.js";
import { buildAxis, paramLabel, trialKind } from "./trial_axis.js";

const LETTER = 6.7, TOP = 10, RIGHT = 14, BOTTOM = 30, HEIGHT = 230;
const ORDER = ["failed", "stopped", "waiting", "running", "pruned", "complete", "best"]; // later cover earlier

/** {element, update({trials, best, stair}), dispose}; `xOf(trial)` gives what stands across. */
export function createScatter({ title, xOf, trials, best, stair, choose }) {
  const canvas = svg("svg", { class: "chart-svg", "aria-hidden": "true", focusable: "false" });
  const plot = h("div", { class: "bars-plot" }, canvas);
  const element = h("figure", { class: "chart card" },
    h("figcaption", { class: "chart-head" }, h("span", { class: "chart-title" }, cleanText(title))), plot);
  let now = { trials, best, stair };
  const redraw = () => drawScatter(now, xOf, plot, canvas, choose);
  const watcher = new ResizeObserver(redraw);
  watcher.observe(plot);
  const update = (fresh) => {
    now = { ...now, ...fresh };
    redraw();
  };
  return { element, update, dispose: () => watcher.disconnect() };
}

function drawScatter({ trials, best, stair }, xOf, plot, canvas, choose) {
  const width = Math.floor(plot.getBoundingClientRect().width);
  const seen = trials.filter((trial) => typeof trial.value === "number" && xOf(trial) !== undefined && xOf(trial) !== null);
  if (!width || !seen.length) {
    canvas.replaceChildren();
    return;
  }
  const high = HEIGHT - TOP - BOTTOM;
  const y = buildAxis(seen.map(({ value }) => value), 5);
  const left = Math.max(28, Math.max(...y.ticks.map(({ label }) => label.length)) * LETTER + 12);
  const wide = Math.max(20, width - left - RIGHT);
  const x = buildAxis(seen.map(xOf), Math.max(2, Math.floor(wide / 90)));
  const across = (value) => round(left + wide * x.place(value)), down = (value) => round(TOP + high * (1 - y.place(value)));
  const parts = [...drawRows(y, left, wide, high), ...drawColumns(x, left, wide, high)];
  if (stair && stair.length) parts.push(svg("path", { class: "best-stair", d: stairPath(stair, across, down) }));
  const ordered = [...seen].sort((one, other) => ORDER.indexOf(trialKind(one, best)) - ORDER.indexOf(trialKind(other, best)));
  parts.push(...ordered.map((trial) => drawTrial(trial, trialKind(trial, best), across(xOf(trial)), down(trial.value), choose)));
  canvas.setAttribute("width", width);
  canvas.setAttribute("height", HEIGHT);
  canvas.replaceChildren(...parts);
}

function drawRows(axis, left, wide, high) {
  return axis.ticks.flatMap(({ place, label }) => {
    const y = round(TOP + high * (1 - place));
    return [
      svg("path", { class: "chart-grid", d: `M${left} ${y}h${round(wide)}` }),
      svg("text", { class: "chart-tick", x: left - 6, y: y + 4, "text-anchor": "end" }, cutLabel(label, 12)),
    ];
  });
}

function drawColumns(axis, left, wide, high) {
  const room = Math.floor(wide / Math.max(1, axis.ticks.length) / LETTER);
  const floor = TOP + high;
  const ticks = axis.ticks.flatMap(({ place, label }) => {
    const x = round(left + wide * place);
    return [
      svg("path", { class: "chart-axis", d: `M${x} ${floor}v4` }),
      svg("text", { class: "chart-tick", x, y: floor + 17, "text-anchor": "middle" }, cutLabel(label, Math.max(2, room))),
    ];
  });
  return [svg("path", { class: "chart-axis", d: `M${left} ${floor}h${round(wide)}` }), ...ticks];
}

function cutLabel(label, room) {
  const clean = cleanText(label);
  return clean.length <= room ? clean : `${clean.slice(0, Math.max(1, room - 1))}\u2026`;
}

/** A line that changes only where the best does. */
function stairPath(stair, across, down) {
  const [first, ...others] = stair;
  return `M${across(first[0])} ${down(first[1])}${others.map(([x, y]) => `H${across(x)}V${down(y)}`).join("")}`;
}

function drawTrial(trial, kind, x, y, choose) {
  const words = `trial ${trial.trial}, ${kind}: ${paramLabel(trial.value)}`;
  const mark = svg("path", { class: `trial trial-${kind.replace(/\W+/g, "-")}`, d: shapeOf(kind, x, y) }, svg("title", {}, cleanText(words)));
  if (choose) mark.addEventListener("click", () => choose(trial));
  return mark;
}

/** A star for the best, a disc for complete, a cross for pruned, a triangle for failed, else a ring. */
export function shapeOf(kind, x, y) {
  if (kind === "best") return starPath(x, y, 8);
  if (kind === "pruned") return `M${x - 3} ${y - 3}l6 6m0 -6l-6 6`;
  if (kind === "failed") return `M${x} ${y - 4}l4 7h-8z`;
  const r = kind === "complete" ? 4 : 3.5;
  return `M${x - r} ${y}a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0z`;
}

function starPath(x, y, size) {
  const corners = Array.from({ length: 10 }, (_, at) => {
    const r = at % 2 ? size * 0.45 : size, turn = (Math.PI * at) / 5;
    return `${round(x + r * Math.sin(turn))} ${round(y - r * Math.cos(turn))}`;
  });
  return `M${corners.join("L")}Z`;
}

/** What the shapes mean, for the kinds that are there. */
export function buildShapeKey(kinds) {
  return h("p", { class: "chart-legend" }, ORDER.filter((kind) => kinds.has(kind)).reverse().map((kind) => h("span", { class: "chart-entry" },
    svg("svg", { class: "shape-key", width: 18, height: 18, "aria-hidden": "true" }, svg("path", { class: `trial trial-${kind}`, d: shapeOf(kind, 9, 9) })), kind)));
}

function round(value) {
  return Math.round(value * 10) / 10;
}
