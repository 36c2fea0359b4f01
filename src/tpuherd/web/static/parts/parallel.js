// Parallel coordinates: an axis a parameter, the metric last, and a line a trial.

import { cleanText, h, svg } from "../dom.js";
import { buildAxis, parameterNames, trialKind } from "./trial_axis.js";

const TOP = 34, BOTTOM = 14, HEIGHT = 280, LETTER = 6.7;
const LEAST = 110; // px between two axes: more axes make the picture wider than its frame

/** {element, update({trials, best, metric}), dispose} */
export function createParallel({ title, trials, best, metric }) {
  const canvas = svg("svg", { class: "chart-svg", "aria-hidden": "true", focusable: "false" });
  const plot = h("div", { class: "parallel-frame", role: "region", tabindex: "0", "aria-label": title }, canvas);
  const element = h("figure", { class: "chart card" }, h("figcaption", { class: "chart-head" }, h("span", { class: "chart-title" }, title)), plot);
  let now = { trials, best, metric };
  const redraw = () => drawParallel(now, plot, canvas);
  const watcher = new ResizeObserver(redraw);
  watcher.observe(plot);
  const update = (fresh) => {
    now = { ...now, ...fresh };
    redraw();
  };
  return { element, update, dispose: () => watcher.disconnect() };
}

function drawParallel({ trials, best, metric }, plot, canvas) {
  const seen = trials.filter(({ value }) => typeof value === "number");
  const room = Math.floor(plot.getBoundingClientRect().width);
  if (!room || !seen.length) {
    canvas.replaceChildren();
    return;
  }
  const columns = [
    ...parameterNames(seen).map((name) => ({ name, read: ({ params }) => params[name] })),
    { name: metric || "value", read: ({ value }) => value },
  ];
  const width = Math.max(room, LEAST * columns.length);
  const high = HEIGHT - TOP - BOTTOM;
  const side = 56;
  const axes = columns.map((column, at) => ({ ...column, axis: buildAxis(seen.map(column.read), 4),
    x: Math.round(side + ((width - 2 * side) * at) / Math.max(1, columns.length - 1)) }));
  const order = [...seen].sort((one, other) => rankOf(one, best) - rankOf(other, best));
  const lines = order.map((trial) => svg("path", { class: `trial-line line-${trialKind(trial, best).replace(/\W+/g, "-")}`, d: linePath(trial, axes, high) },
    svg("title", {}, `trial ${trial.trial}`)));
  canvas.setAttribute("width", width);
  canvas.setAttribute("height", HEIGHT);
  canvas.replaceChildren(...lines, ...axes.flatMap((one) => drawAxis(one, high)));
}

function rankOf(trial, best) {
  return ["pruned", "complete", "best"].indexOf(trialKind(trial, best));
}

function linePath(trial, axes, high) {
  const places = axes.filter(({ read }) => read(trial) !== undefined && read(trial) !== null)
    .map(({ read, axis, x }) => `${x} ${Math.round((TOP + high * (1 - axis.place(read(trial)))) * 10) / 10}`);
  return `M${places.join("L")}`;
}

function drawAxis({ name, axis, x }, high) {
  const ticks = axis.ticks.map(({ place, label }) => svg("text", { class: "chart-tick parallel-tick", x: x + 6,
    y: Math.round(TOP + high * (1 - place)) + 4 }, cutText(label, 9)));
  return [
    svg("path", { class: "chart-axis", d: `M${x} ${TOP}v${high}` }),
    svg("text", { class: "chart-name-above", x, y: 18, "text-anchor": "middle" }, cutText(name, Math.floor(LEAST / LETTER))),
    ...ticks,
  ];
}

function cutText(text, room) {
  const clean = cleanText(text);
  return clean.length <= room ? clean : `${clean.slice(0, room - 1)}\u2026`;
}
