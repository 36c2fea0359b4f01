// What stands below a chart: the legend that toggles series, notes on broken values, the table of values.

import { h } from "../dom.js";
import { pointLabel } from "./chart_paint.js";
import { momentLabel, valueLabel } from "./chart_scale.js";
import { cutPoints, nearestPoint } from "./chart_data.js";

const ROWS_MAX = 50;
const NAMES_MAX = 4; // of series in a sentence

/** Buttons, one a series; `toggle(key)` is called before the click bubbles. */
export function createLegend(toggle) {
  const element = h("div", { class: "chart-legend" });
  const buttons = new Map();
  return {
    element,
    update(each, hidden) {
      element.hidden = each.length < 2;
      const order = each.map((one) => {
        if (!buttons.has(one.key)) buttons.set(one.key, createEntry(one, toggle));
        const button = buttons.get(one.key);
        button.setAttribute("aria-pressed", String(!hidden.has(one.key)));
        setText(button.lastChild, one.name);
        button.firstChild.setAttribute("class", `chart-swatch ${one.tint}`);
        return button;
      });
      const same = order.length === element.children.length && order.every((one, at) => element.children[at] === one);
      if (!same) element.replaceChildren(...order);
    },
  };
}

function createEntry(one, toggle) {
  const button = h("button", { type: "button", class: "chart-entry", "aria-pressed": "true" },
    h("span", { class: `chart-swatch ${one.tint}` }), h("span", {}, one.name));
  button.addEventListener("click", () => toggle(one.key));
  return button;
}

function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** Sentences on values that the lines do not show. */
export function buildNote(each, log, axis) {
  const sentences = [];
  const hurt = each.filter(({ broken, band }) => broken.length && !band);
  if (hurt.length) {
    const moments = hurt.flatMap(({ broken }) => broken);
    const newest = moments.reduce((one, other) => Math.max(one, other));
    const last = axis === "time" ? momentLabel(newest) : valueLabel(newest);
    const many = moments.length === 1 ? "1 value is not a finite number" : `${moments.length} values are no finite numbers`;
    sentences.push(`${nameSome(hurt)}: ${many} (\u00d7), the latest at ${last}.`);
  }
  const below = log ? each.filter(({ points }) => points.some((point) => point[2] <= 0)) : [];
  if (below.length) {
    sentences.push(`A log scale cannot show values of 0 and below: ${nameSome(below)}.`);
  }
  return sentences.map((sentence) => h("span", {}, sentence, " "));
}

function nameSome(each) {
  const names = each.slice(0, NAMES_MAX).map(({ name }) => name).join(", ");
  return each.length > NAMES_MAX ? `${names} and ${each.length - NAMES_MAX} more` : names;
}

/** The values as a table, filled when it is opened. */
export function createValueTable(title, axis) {
  const body = h("div", { class: "chart-values", role: "region", tabindex: "0", "aria-label": `${title}: values` });
  const element = h("details", { class: "chart-table" }, h("summary", {}, "Values as a table"), body);
  return {
    element,
    update(each, unit, view) {
      if (element.open) body.replaceChildren(buildValueTable(title, axis, each, unit, view));
    },
  };
}

function buildValueTable(title, axis, each, unit, view) {
  const longest = each.reduce((most, one) => (one.points.length > most.length ? one.points : most), []);
  const moments = cutPoints(longest, view[0], view[1]).map((point) => point[0]);
  const stride = Math.max(1, Math.ceil(moments.length / ROWS_MAX));
  const chosen = moments.filter((_, at) => (moments.length - 1 - at) % stride === 0);
  const reach = moments.length > 1 ? ((view[1] - view[0]) / moments.length) * 2 : Infinity;
  const rows = chosen.map((at) => h("tr", {}, h("th", { scope: "row" }, axis === "time" ? momentLabel(at) : valueLabel(at)),
    each.map((one) => {
      const point = nearestPoint(one.points, at, reach);
      return h("td", { class: "num" }, point ? pointLabel(point, unit) : "\u2013");
    })));
  const head = h("tr", {}, h("th", { scope: "col" }, axis === "time" ? "time" : "x"),
    each.map((one) => h("th", { scope: "col", class: "num" }, one.name)));
  const words = stride > 1 ? `${title}: every ${stride}th of ${moments.length} values` : title;
  return h("table", { class: "table plain-table" }, h("caption", {}, words), h("thead", {}, head), h("tbody", {}, rows));
}
