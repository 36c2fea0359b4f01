// The page of capacity: when which zone gave nodes, after how long, and how long they lived.

import { createScope, h, replace } from "../dom.js";
import { countOf, formatSpan, NOTHING } from "../format.js";
import { buildHeatKey, createHeatMap } from "../parts/heat_map.js";
import { makeEmpty } from "../parts/notice.js";
import { keepFresh } from "../parts/refresh.js";
import { createTable } from "../parts/table.js";

/** What a cell can show: how good its value is from 0 to 1, in few letters, and the words at both ends. */
const MEASURES = {
  grants: {
    title: "share granted", ends: ["none granted", "all granted"],
    read: (sum) => (sum.requested ? sum.granted / sum.requested : null),
    level: (value) => value, text: (value) => `${Math.round(100 * value)}%`,
  },
  wait: {
    title: "time to a ready node", ends: ["a day and longer", "a minute"],
    read: (sum) => middle(sum.waits), level: (value) => 1 - logShare(value, 60, 86_400), text: shortSpan,
  },
  life: {
    title: "life of a node", ends: ["minutes", "days"],
    read: (sum) => middle(sum.lives), level: (value) => logShare(value, 300, 3 * 86_400), text: shortSpan,
  },
};
const HOURS = Array.from({ length: 24 }, (_, hour) => hour);

export default {
  title: "Capacity",
  show(container, route, live) {
    const scope = createScope();
    const notice = h("div"), body = h("div");
    replace(container, h("h1", {}, "Capacity"),
      h("p", { class: "muted" }, "What your own requests met: refusals, grants, waits and lives, by zone and hour of the day."), notice, body);
    let view = null;
    scope.add(keepFresh(live, "/api/capacity", notice, (page) => {
      if (!page.rows.length) {
        view = null;
        replace(body, makeEmpty("No node has been requested yet."));
        return;
      }
      if (!view) {
        view = createView(page);
        replace(body, view.element);
      }
      view.update(page);
    }).dispose);
    return scope.dispose;
  },
};

function createView(page) {
  let now = page;
  const measure = buildChoice("Show", Object.entries(MEASURES).map(([key, { title }]) => [key, title]));
  const type = buildChoice("of", []);
  const key = h("div");
  const map = createHeatMap({ caption: "Capacity by zone and hour", corner: "zone", rows: [], columns: [], cell: () => ({}) });
  const table = createTable(tableOptions());
  const draw = () => {
    const rule = MEASURES[measure.input.value];
    map.update(mapOptions(now, rule, type.input.value));
    replace(key, buildHeatKey(...rule.ends));
  };
  for (const { input } of [measure, type]) input.addEventListener("change", draw);
  const element = h("div", { class: "chart-stack" }, h("div", { class: "choices" }, measure.element, type.element, key), map.element,
    h("h2", {}, "By zone, type and tier"), table.element);
  return {
    element,
    update(fresh) {
      now = fresh;
      const kinds = [...new Set(fresh.rows.map(({ type: one, tier }) => `${one} ${tier}`))].sort();
      fillChoice(type.input, [["", "all types"], ...kinds.map((one) => [one, one])]);
      draw();
      table.setRows(fresh.rows);
    },
  };
}

function buildChoice(name, entries) {
  const input = h("select", { class: "field" });
  fillChoice(input, entries);
  return { input, element: h("label", { class: "choice" }, name, " ", input) };
}

function fillChoice(input, entries) {
  const before = input.value, same = [...input.options].map(({ value }) => value).join("\n") === entries.map(([value]) => value).join("\n");
  if (same) return;
  replace(input, entries.map(([value, title]) => h("option", { value }, title)));
  if (entries.some(([value]) => value === before)) input.value = before;
}

/** The hours of the page are UTC; people read the clock on their wall. */
function mapOptions(page, rule, kind) {
  const shift = Math.round(-new Date().getTimezoneOffset() / 60);
  const mine = page.hours.filter((one) => !kind || `${one.type} ${one.tier}` === kind);
  const zones = [...new Set(mine.map(({ zone }) => zone))].sort();
  const sums = new Map(zones.map((zone) => [zone, HOURS.map(() => ({ requested: 0, granted: 0, refused: 0, waits: [], lives: [] }))]));
  for (const one of mine) {
    const hour = (((one.hour + shift) % 24) + 24) % 24;
    if (Number.isInteger(hour)) addHour(sums.get(one.zone)[hour], one);
  }
  return {
    caption: `Capacity by zone and hour: ${rule.title}`, corner: "zone", rows: zones,
    columns: HOURS.map((hour) => String(hour).padStart(2, "0")),
    cell: (row, hour) => buildHourCell(zones[row], hour, sums.get(zones[row])[hour], rule),
  };
}

function addHour(sum, one) {
  sum.requested += one.requested;
  sum.granted += one.granted;
  sum.refused += one.refused;
  if (typeof one.wait_s === "number") sum.waits.push(one.wait_s);
  if (typeof one.life_s === "number") sum.lives.push(one.life_s);
}

function buildHourCell(zone, hour, sum, rule) {
  const value = rule.read(sum);
  const clock = `${String(hour).padStart(2, "0")}:00`;
  if (!sum.requested && value === null) return { level: null, text: "", words: `${zone}, ${clock}: nothing requested` };
  const words = [`${zone}, ${clock}: ${sum.granted} of ${countOf(sum.requested, "request")} granted`];
  if (sum.refused) words.push(`${sum.refused} refused`);
  if (sum.waits.length) words.push(`ready after ${formatSpan(middle(sum.waits))}`);
  if (sum.lives.length) words.push(`lived ${formatSpan(middle(sum.lives))}`);
  return { level: value === null ? null : rule.level(value), text: value === null ? "\u00b7" : rule.text(value), words: words.join(", ") };
}

function middle(values) {
  return values.length ? [...values].sort((left, right) => left - right)[values.length >> 1] : null;
}

/** Where a time lies between two others, by its logarithm. */
function logShare(value, low, high) {
  const share = Math.log(Math.max(value, 1e-3) / low) / Math.log(high / low);
  return Math.min(1, Math.max(0, share));
}

/** 45s, 12m, 3h, 2d: fits a cell. */
function shortSpan(seconds) {
  const steps = [[86_400, "d"], [3600, "h"], [60, "m"]];
  const [length, word] = steps.find(([one]) => seconds >= one) || [1, "s"];
  return `${Math.round(seconds / length)}${word}`;
}

function tableOptions() {
  const spanCell = (key) => (row) => (row[key] === null ? NOTHING : formatSpan(row[key]));
  return {
    caption: "Capacity by zone, type and tier", rows: [], rowKey: ({ zone, type, tier }) => `${zone} ${type} ${tier}`, sort: null,
    columns: [
      { key: "zone", title: "zone" },
      { key: "type", title: "type" },
      { key: "tier", title: "tier" },
      { key: "requested", title: "requested", right: true },
      { key: "refused", title: "refused", right: true },
      { key: "granted", title: "granted", right: true },
      { key: "wait_s", title: "median wait", right: true, cell: spanCell("wait_s") },
      { key: "life_s", title: "median life", right: true, cell: spanCell("life_s") },
      { key: "refused_s_ago", title: "last refusal", cell: refusalText },
    ],
  };
}

function refusalText(row) {
  if (row.refused_s_ago === null) return NOTHING;
  return `${formatSpan(row.refused_s_ago)} ago: ${row.message || row.refusal}`;
}
