// Bars of parts: money a day, or where the time of a job went. Each has a table with the same figures.

import { cleanText, h, svg } from "../dom.js";
import { tickLabels, valueLabel, valueTicks } from "./chart_scale.js";

const TOP = 10, RIGHT = 10, BOTTOM = 26, HEIGHT = 200, LETTER = 6.7;
const TINTS = 8;
const WIDEST = 48; // px of a bar

/** `bars: [{name, parts: [{name, value}]}]`, upright, side by side: {element, update, dispose}. */
export function createBars(options) {
  const canvas = svg("svg", { class: "chart-svg", "aria-hidden": "true", focusable: "false" });
  const plot = h("div", { class: "bars-plot" }, canvas);
  const legend = h("div", { class: "chart-legend" });
  const table = h("div", { class: "chart-values", role: "region", tabindex: "0", "aria-label": `${options.title}: values` });
  const element = h("figure", { class: "chart card" },
    h("figcaption", { class: "chart-head" }, h("span", { class: "chart-title" }, options.title)), plot, legend,
    h("details", { class: "chart-table" }, h("summary", {}, "Values as a table"), table));
  let now = options;
  const redraw = () => drawBars(now, plot, canvas);
  const update = (fresh) => {
    now = { ...now, ...fresh };
    const names = partNames(now.bars);
    legend.hidden = names.length < 2;
    legend.replaceChildren(...names.map((name, at) => h("span", { class: "chart-entry" },
      h("span", { class: `chart-swatch filled ${tintOf(at)}` }), h("span", {}, cleanText(name)))));
    table.replaceChildren(buildFigures(now, names));
    redraw();
  };
  const watcher = new ResizeObserver(redraw);
  watcher.observe(plot);
  update(options);
  return { element, update, dispose: () => watcher.disconnect() };
}

function partNames(bars) {
  return [...new Set(bars.flatMap(({ parts }) => parts.map(({ name }) => name)))];
}

function tintOf(at) {
  return `series-${(at % TINTS) + 1}`;
}

function drawBars({ bars, unit }, plot, canvas) {
  const width = Math.floor(plot.getBoundingClientRect().width);
  if (!width || !bars.length) return;
  const names = partNames(bars);
  const most = Math.max(...bars.map(totalOf), 0) || 1;
  const high = HEIGHT - TOP - BOTTOM;
  const ticks = valueTicks(0, most * 1.05, unit, false, 4), labels = tickLabels(ticks, unit);
  const left = Math.max(...labels.map((label) => label.length)) * LETTER + 12;
  const room = (width - left - RIGHT) / bars.length;
  const y = (value) => Math.round((TOP + high - (high * value) / (most * 1.05)) * 10) / 10;
  const grid = ticks.flatMap((tick, at) => [
    svg("path", { class: tick ? "chart-grid" : "chart-axis", d: `M${left} ${y(tick)}H${width - RIGHT}` }),
    svg("text", { class: "chart-tick", x: left - 6, y: y(tick) + 4, "text-anchor": "end" }, labels[at]),
  ]);
  const wide = Math.max(1, Math.min(WIDEST, room * 0.72));
  const longest = Math.max(...bars.map(({ name }) => name.length));
  const stride = Math.max(1, Math.ceil(((longest + 2) * LETTER) / room));
  const drawn = bars.flatMap((bar, at) => drawBar(bar, names, {
    x: left + room * (at + 0.5), wide, y, unit, labelled: (bars.length - 1 - at) % stride === 0 }));
  canvas.setAttribute("width", width);
  canvas.setAttribute("height", HEIGHT);
  canvas.replaceChildren(...grid, ...drawn);
}

function drawBar(bar, names, { x, wide, y, unit, labelled }) {
  const shapes = [];
  let sum = 0;
  for (const part of bar.parts) {
    const top = y(sum + part.value), floor = y(sum);
    shapes.push(svg("rect", { class: `chart-bar ${tintOf(names.indexOf(part.name))}`, x: x - wide / 2, y: top, width: wide, height: Math.max(0, floor - top) },
      svg("title", {}, `${cleanText(bar.name)}: ${cleanText(part.name)} ${valueLabel(part.value, unit)}`)));
    sum += part.value;
  }
  if (labelled) shapes.push(svg("text", { class: "chart-tick", x, y: HEIGHT - 9, "text-anchor": "middle" }, cleanText(bar.name)));
  return shapes;
}

function totalOf({ parts }) {
  return parts.reduce((sum, { value }) => sum + (Number.isFinite(value) ? value : 0), 0);
}

function buildFigures({ title, bars, unit }, names) {
  const head = h("tr", {}, h("th", { scope: "col" }, ""), names.map((name) => h("th", { scope: "col", class: "num" }, cleanText(name))),
    names.length > 1 ? h("th", { scope: "col", class: "num" }, "all") : null);
  const rows = bars.map((bar) => h("tr", {}, h("th", { scope: "row" }, cleanText(bar.name)), names.map((name) => {
    const part = bar.parts.find((one) => one.name === name);
    return h("td", { class: "num" }, part ? valueLabel(part.value, unit) : "\u2013");
  }), names.length > 1 ? h("td", { class: "num" }, valueLabel(totalOf(bar), unit)) : null));
  return h("table", { class: "table plain-table" }, h("caption", {}, title), h("thead", {}, head), h("tbody", {}, rows));
}

/** One lying bar of shares, with a list that says each: `parts: [{name, value, text, note, colour}]`. */
export function buildShareBar(title, parts) {
  const sum = parts.reduce((total, { value }) => total + value, 0) || 1;
  let from = 0;
  const shapes = parts.map(({ value, name, colour }, at) => {
    const x = (1000 * from) / sum, width = (1000 * value) / sum;
    from += value;
    return svg("rect", { class: `chart-bar ${tintOf(at)}`, style: { "--state-tint": colour ?? null }, x: x.toFixed(1), y: 0, width: Math.max(0, width).toFixed(1), height: 20 }, svg("title", {}, cleanText(name)));
  });
  const list = parts.map(({ name, value, text, note, colour }, at) => h("li", {},
    h("span", { class: `chart-swatch filled ${tintOf(at)}`, style: { "--state-tint": colour ?? null } }),
    h("span", { class: "share-name" }, cleanText(name), note ? h("small", {}, cleanText(note)) : null), h("b", {}, text),
    h("span", { class: "share-part" }, `${((100 * value) / sum).toFixed(1)} %`)));
  return h("figure", { class: "chart card share-bar" }, h("figcaption", { class: "chart-head" }, h("span", { class: "chart-title" }, title)),
    svg("svg", { class: "share-svg", viewBox: "0 0 1000 20", preserveAspectRatio: "none", "aria-hidden": "true" }, shapes), h("ul", { class: "share-list" }, list));
}
