// The fleet as a machine room: each job with the chips of its nodes, coloured as chosen.

import { createPainter, h, reconcile, replace, setProp, setText } from "../dom.js";
import { countOf } from "../format.js";
import { jobHref } from "../routes.js";
import { ChipGrid, countChips } from "./chip_grid.js";
import { chooseSize, measureRow } from "./chip_layout.js";
import { HEAT_STEPS, MODES, paintChip, readPalette } from "./chip_paint.js";
import { makeHostTable } from "./host_table.js";
import { makeEmpty } from "./notice.js";
import { makePhaseBar, updatePhaseBar } from "./phase_bar.js";
import { nodeState, stateShape } from "./states.js";

const SHORT_ROW = 460; // pixels: jobs of shorter rows stand side by side
const LEAST_ROW = 200;
const GRID_MARGIN = 8;
const MOST_LABELS = 96; // nodes; more of them are too small for numbers

/** Cards of jobs with their chips; call `update` after changes. */
export class MachineRoom {
  #groups = new Map();
  #mode = "state";
  #asTable = false;
  #palette = null;
  #accept = () => true;

  constructor(live) {
    this.live = live;
    this.body = h("div", { class: "room" });
    this.legend = h("div", { class: "legend" });
    this.count = h("span", { class: "muted" });
    this.element = h(
      "section",
      { class: "card", "aria-labelledby": "room-title" },
      h("div", { class: "card-head" }, h("h2", { id: "room-title" }, "Chips"), this.count, this.#makeTools()),
      this.legend,
      this.body,
    );
    this.drawLegend = createPainter(() => this.#fillLegend());
    this.resizing = new ResizeObserver(() => this.#groups.forEach((group) => group.grid.fit()));
    this.resizing.observe(this.body);
    this.onTheme = () => this.#readTheme();
    document.addEventListener("herd-theme", this.onTheme);
    this.#palette = readPalette();
  }

  #makeTools() {
    const modes = MODES.map(({ key, title }) => this.#makeChoice(title, () => this.#setMode(key), key));
    const table = this.#makeChoice("Table", () => this.#setTable(), "table");
    this.buttons = [...modes, table];
    this.#markChoices();
    return h("div", { class: "toolbar" }, h("div", { class: "segmented", role: "group", "aria-label": "Show chips by" }, this.buttons));
  }

  #makeChoice(title, onclick, key) {
    return h("button", { type: "button", onclick, data: { key } }, title);
  }

  #markChoices() {
    for (const button of this.buttons) {
      const isTable = button.dataset.key === "table";
      const pressed = this.#asTable ? isTable : button.dataset.key === this.#mode;
      button.setAttribute("aria-pressed", String(pressed));
    }
  }

  #setMode(mode) {
    this.#mode = mode;
    this.#asTable = false;
    this.#markChoices();
    this.#groups.forEach(({ grid }) => grid.setLook({ mode }));
    this.update(null);
  }

  #setTable() {
    this.#asTable = true;
    this.#markChoices();
    this.update(null);
  }

  #readTheme() {
    this.#palette = readPalette();
    this.#groups.forEach(({ grid }) => grid.setLook({ palette: this.#palette }));
    this.drawLegend();
  }

  /** @param {(job: any) => boolean} accept which jobs are shown */
  setFilter(accept) {
    this.#accept = accept;
    this.update(null);
  }

  /** @param {{jobs: Set<string>, nodes: Set<string>, all: boolean} | null} changes null: anything */
  update(changes) {
    const { jobs, nodes } = this.live.state;
    const byJob = groupNodes(nodes.values());
    const names = [...byJob.keys()].filter((name) => this.#accept(jobs.get(name) ?? { job: name, phases: {} })).sort(compareNames);
    const shown = names.map((name) => byJob.get(name));
    const chips = shown.flat().reduce((sum, node) => sum + countChips(node), 0);
    setText(this.count, chips ? `${countOf(chips, "chip")} of ${countOf(shown.flat().length, "node")}` : "");
    this.legend.hidden = this.#asTable || !chips;
    if (!chips) this.#showEmpty();
    else if (this.#asTable) replace(this.body, makeHostTable(shown.flat(), this.live));
    else this.#showGrids(names, byJob, chips, changes);
    this.drawLegend();
  }

  #showEmpty() {
    this.#dropGroups(new Set());
    const text = this.live.state.nodes.size ? "No job matches the filter." : "Nodes appear here as soon as the cloud grants them.";
    replace(this.body, makeEmpty("No chips to show.", text));
  }

  #showGrids(names, byJob, chips, changes) {
    this.#dropGroups(new Set(names));
    const look = { size: chooseSize(chips), mode: this.#mode, palette: this.#palette };
    const makeElement = (name) => (this.#groups.get(name) ?? this.#makeGroup(name)).element;
    reconcile(this.body, names, (name) => name, makeElement, (_, name) => {
      this.#updateGroup(this.#groups.get(name), byJob.get(name), look, changes);
    });
  }

  #dropGroups(kept) {
    for (const [name, group] of this.#groups) {
      if (kept.has(name)) continue;
      group.grid.dispose();
      this.#groups.delete(name);
    }
  }

  #makeGroup(name) {
    const { live } = this;
    const grid = new ChipGrid({
      name: name || "no job",
      now: () => live.now(),
      slotOf: (node) => findSlot(live.state.jobs.get(node.job), node),
      onOpen: (node) => {
        if (node.job) location.hash = jobHref(node.job);
      },
    });
    const title = name ? h("a", { href: jobHref(name), dir: "auto" }, name) : "no job";
    const phases = makePhaseBar();
    const note = h("span", { class: "muted" });
    const element = h("div", { class: "room-job" }, h("div", { class: "room-head" }, h("h3", null, title), phases, note), grid.element);
    const group = { name, grid, element, phases, note, shape: "", mode: null };
    this.#groups.set(name, group);
    return group;
  }

  #updateGroup(group, nodes, look, changes) {
    const shape = nodes.map((node) => `${node.node}:${node.hosts.length}:${node.chips_per_host}`).join();
    const whole = { ...look, labels: nodes.length <= MOST_LABELS && look.size > 8 };
    const signature = `${whole.size} ${whole.labels} ${whole.mode}`;
    if (group.look !== signature || !group.shape) group.grid.setLook(whole);
    if (group.shape !== shape) {
      const wide = measureRow(nodes, whole) + GRID_MARGIN;
      setProp(group.element, "style", { width: wide > SHORT_ROW ? "100%" : `${Math.max(LEAST_ROW, wide)}px` });
      group.grid.setNodes(nodes);
    } else if (changes && (changes.all || changes.jobs.has(group.name))) group.grid.renew(new Map(nodes.map((node) => [node.node, node])));
    else if (changes) group.grid.renew(pickNodes(nodes, changes.nodes));
    group.look = signature;
    group.shape = shape;
    const job = this.live.state.jobs.get(group.name);
    if (job) updatePhaseBar(group.phases, job);
    setText(group.note, `${nodes[0].type} · ${[...new Set(nodes.map((node) => node.zone))].join(", ")}`);
  }

  /** Draw the nodes again whose samples are new. @param {Set<string>} names */
  renewNodes(names) {
    if (this.#asTable) return;
    const { nodes, jobs } = this.live.state;
    const byJob = groupNodes([...names].map((name) => nodes.get(name)).filter(Boolean));
    for (const [job, changed] of byJob) {
      if (jobs.has(job) || !job) this.#groups.get(job)?.grid.renew(pickNodes(changed, names));
    }
  }

  #fillLegend() {
    const entries = this.#mode === "state" ? stateEntries(this.live.state) : heatEntries();
    const signature = JSON.stringify([entries, this.#palette]);
    if (this.legend.herdEntries === signature) return;
    this.legend.herdEntries = signature;
    replace(this.legend, entries.map(([text, colour, shape]) => makeSample(text, colour, shape, this.#palette)));
  }

  dispose() {
    this.#dropGroups(new Set());
    this.resizing.disconnect();
    this.drawLegend.cancel();
    document.removeEventListener("herd-theme", this.onTheme);
  }
}

function groupNodes(nodes) {
  const groups = new Map();
  for (const node of nodes) {
    const job = node.job ?? "";
    const list = groups.get(job) ?? groups.set(job, []).get(job);
    list.push(node);
  }
  for (const list of groups.values()) list.sort((one, other) => compareNames(one.slot || one.node, other.slot || other.node) || compareNames(one.node, other.node));
  return groups;
}

const collator = new Intl.Collator("en", { numeric: true });

function compareNames(one, other) {
  return collator.compare(one, other);
}

/** The slot's row; found by a map that is kept with the job's rows. */
const slotMaps = new WeakMap();

export function findSlot(job, node) {
  if (!job?.slot_rows) return null;
  let map = slotMaps.get(job.slot_rows);
  if (!map) slotMaps.set(job.slot_rows, (map = new Map(job.slot_rows.map((slot) => [slot.slot, slot]))));
  return map.get(node.slot) ?? null;
}

function pickNodes(nodes, names) {
  return new Map(nodes.filter((node) => names.has(node.node)).map((node) => [node.node, node]));
}

function stateEntries({ nodes, jobs }) {
  const entries = new Map();
  for (const node of nodes.values()) {
    const { state, word } = nodeState(node, findSlot(jobs.get(node.job), node));
    const key = `${word} ${state}`;
    const entry = entries.get(key) ?? entries.set(key, [word, state, 0]).get(key);
    entry[2] += countChips(node);
  }
  const rows = [...entries.values()].sort((one, other) => other[2] - one[2]);
  const isShared = (word) => rows.filter((row) => row[0] === word).length > 1;
  return rows.map(([word, state, many]) => {
    const text = isShared(word) ? `${word}: ${state.replaceAll("_", " ")}` : word;
    return [`${text} ${many.toLocaleString("en-US")}`, state, stateShape(state)];
  });
}

function heatEntries() {
  const steps = Array.from({ length: HEAT_STEPS }, (_, step) => [
    `${Math.round((100 * step) / HEAT_STEPS)}–${Math.round((100 * (step + 1)) / HEAT_STEPS)} %`,
    `heat-${step}`,
    "full",
  ]);
  return [...steps, ["not known", "line", "hollow"]];
}

function makeSample(text, colour, shape, palette) {
  const canvas = h("canvas", { width: "24", height: "24", "aria-hidden": "true" });
  const context = canvas.getContext("2d");
  context.scale(2, 2);
  paintChip(context, 0, 0, 12, palette[colour] ?? palette.line, shape, palette);
  return h("span", { class: "legend-entry" }, canvas, text);
}
