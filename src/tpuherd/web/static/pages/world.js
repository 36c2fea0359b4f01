// The page of a simulated world: its nodes, its weather, its log, and buttons that disturb it.

import { cleanText, createScope, h, replace } from "../dom.js";
import { countOf, formatClock, formatSpan } from "../format.js";
import { makeErrorNotice, makeNotice } from "../parts/notice.js";
import { buildTile, keepFresh } from "../parts/refresh.js";
import { createTable } from "../parts/table.js";
import { createWeatherForm } from "../parts/weather_form.js";

const ZONE_KINDS = [["drought", "Drought", { for: "10m" }, "Removes all capacity for 10 minutes and preempts the spot nodes"],
  ["unreachable-zone", "Unreachable", { for: "5m" }, "Lists leave the zone out for 5 minutes"]];
const NODE_KINDS = [["preempt", "Preempt", {}, "Preempts the node after a notice of 30 s"],
  ["maintain", "Maintain", {}, "Announces maintenance, then reboots every host"],
  ["crash", "Cut power", { pick: 1 }, "Cuts the power of one host"]];

export default {
  title: "World",
  show(container, route, live) {
    const scope = createScope();
    const notice = h("div"), answer = h("div", { role: "status" }), tiles = h("dl", { class: "tiles" });
    const act = async (kind, body, words) => {
      try {
        const done = await live.post(`/api/world/${encodeURIComponent(kind)}`, body);
        replace(answer, makeNotice("good", words, cleanText(done.message || "")));
        } catch (error) {
        replace(answer, makeErrorNotice(error));
      }
      fresh.refresh();
    };
    const view = createView(act);
    replace(container, h("h1", {}, "World"),
      h("p", { class: "muted" }, "A simulated Cloud TPU on this machine. Disturb it, and watch what the jobs do."),
      tiles, answer, notice, view.element);
    const fresh = keepFresh(live, "/api/world", notice, (world) => {
      replace(tiles, buildTiles(world));
      view.update(world);
    }, { pauseMs: 500, slowMs: 3000 });
    scope.add(fresh.dispose);
    return scope.dispose;
  },
};

function buildTiles(world) {
  const ready = world.nodes.filter(({ state }) => state === "READY").length;
  const scale = world.time_scale === 1 ? "real time" : `\u00d7 ${world.time_scale}`;
  return [
    buildTile("nodes", `${ready} of ${world.nodes.length}`, "ready"),
    buildTile("weather", countOf(world.rules.length, "rule"), `${countOf(world.planned, "step")} planned`),
    buildTile("the cloud\u2019s clock", scale, `seed ${world.seed}`),
  ];
}

function createView(act) {
  const nodes = createTable(nodeOptions(act)), zones = createTable(zoneOptions(act));
  const rules = h("ul", { class: "weather-rules" }), log = h("ol", { class: "world-log", tabindex: "0", "aria-label": "Log of the world" });
  const form = createWeatherForm(act);
  const clear = h("button", { type: "button", class: "button" }, "Clear all weather");
  clear.addEventListener("click", () => act("clear", {}, "All weather is cleared."));
  const element = h("div", { class: "world-columns" },
    h("section", { class: "world-wide" }, h("h2", {}, "Nodes"), nodes.element),
    h("section", {}, h("h2", {}, "Zones"), zones.element),
    h("section", {}, h("h2", {}, "Weather"), rules, h("p", {}, clear), form.element),
    h("section", { class: "world-wide" }, h("h2", {}, "What happened"), log));
  return {
    element,
    update(world) {
      nodes.setRows(world.nodes);
      zones.setRows(zoneRows(world));
      replace(rules, ruleTexts(world, act));
      form.update(world.can);
      drawLog(log, world.log);
    },
  };
}

function zoneRows(world) {
  return world.zones.map((zone) => ({
    zone, nodes: world.nodes.filter((node) => node.zone === zone).length,
    limits: Object.entries(world.capacity).filter(([pool]) => pool.split("/")[0] === zone)
      .map(([pool, many]) => `${pool.split("/")[1] || "*"}: ${many}`).join(", "),
    rules: world.rules.filter(({ match, params }) => [match?.zone, params?.zone].some((one) => one === zone)).map(({ kind }) => kind).join(", ") }));
}

function zoneOptions(act) {
  return {
    caption: "Zones of the world", rows: [], rowKey: ({ zone }) => zone, sort: { key: "nodes", descending: true },
    columns: [
      { key: "zone", title: "zone" },
      { key: "nodes", title: "nodes", right: true },
      { key: "limits", title: "room", cell: ({ limits }) => limits || "unlimited" },
      { key: "act", title: "disturb", sortable: false, value: ({ rules }) => rules, cell: ({ zone }, before) => before || buildButtons(
        ZONE_KINDS, zone, (kind, more, words) => act(kind, { zone, ...more }, `${words}: ${zone}.`)) },
    ],
  };
}

function nodeOptions(act) {
  return {
    caption: "Nodes of the world", rows: [], rowKey: ({ zone, node }) => `${zone}/${node}`, sort: { key: "node", descending: false },
    empty: "There is no node. A job gets one: herd run.",
    columns: [
      { key: "node", title: "node" },
      { key: "state", title: "state" },
      { key: "zone", title: "zone" },
      { key: "type", title: "type" },
      { key: "tier", title: "tier" },
      { key: "hosts", title: "hosts", right: true },
      { key: "act", title: "disturb", sortable: false, value: () => "", cell: ({ zone, node }, before) => before || buildButtons(
        NODE_KINDS, node, (kind, more, words) => act(kind, { target: targetOf(zone, node), ...more }, `${words}: ${node}.`)) },
    ],
  };
}

function targetOf(zone, node) {
  return node.includes("/") ? node : `${zone}/${node}`;
}

function buildButtons(kinds, name, press) {
  return h("span", { class: "button-row" }, kinds.map(([kind, title, more, meaning]) => {
    const button = h("button", { type: "button", class: "button small", title: meaning, "aria-label": `${title} ${cleanText(name)}` }, title);
    button.addEventListener("click", () => press(kind, more, title));
    return button;
  }));
}

function ruleTexts(world, act) {
  const rules = world.rules.map((rule) => {
    const end = h("button", { type: "button", class: "button small", "aria-label": `End ${cleanText(rule.id)}` }, "End");
    end.addEventListener("click", () => act("clear", { rule: rule.id }, `Ended: ${rule.id}.`));
    return h("li", {}, h("b", {}, cleanText(rule.kind)), " ", cleanText(ruleText(rule, world.now)), " ", end);
  });
  return rules.length ? rules : [h("li", { class: "muted" }, "No rule is active: the weather is fine.")];
}

function ruleText({ params, match, share, left, until }, now) {
  const words = Object.entries({ ...params, ...match }).map(([name, value]) => `${name} ${value}`);
  if (share < 1) words.push(`in ${Math.round(100 * share)} % of cases`);
  if (left !== null && left !== undefined) words.push(`${left} more times`);
  if (typeof until === "number") words.push(`for another ${formatSpan(until - now)}`);
  return words.join(", ") || "everywhere";
}

/** The newest line first; the same lines are not drawn again. */
function drawLog(log, entries) {
  const mark = entries.length ? `${entries.length} ${entries[entries.length - 1].at} ${entries[entries.length - 1].sentence}` : "";
  if (log.dataset.mark === mark) return;
  log.dataset.mark = mark;
  replace(log, [...entries].reverse().map(({ at, sentence }) => h("li", {}, h("time", {}, formatClock(at)), " ", cleanText(sentence))));
}
