// The figures of the whole fleet, in a row.

import { h, setProp, setText } from "../dom.js";
import { countOf, formatMoney, formatNumber, formatPercent, formatShare } from "../format.js";
import { countChips } from "./chip_grid.js";
import { findSlot } from "./machine_room.js";
import { isUrgent, isWaiting } from "./states.js";

const TILES = [
  ["chips", "Chips at work"],
  ["slots", "Slots running"],
  ["waiting", "Waiting"],
  ["urgent", "In trouble"],
  ["duty", "Mean duty"],
  ["goodput", "Goodput"],
  ["rate", "Cost now"],
  ["cost", "Cost today"],
];

export function makeFleetTiles() {
  const tiles = TILES.map(([key, title]) =>
    h("div", { class: "tile", data: { key } }, h("dt", null, title), h("dd"), h("dd", { class: "tile-more" })),
  );
  return h("dl", { class: "tiles" }, tiles);
}

export function updateFleetTiles(element, state) {
  const figures = countFleet(state);
  for (const tile of element.children) {
    const [value, more, tone = ""] = figures[tile.dataset.key];
    setText(tile.children[1], value);
    setProp(tile.children[1], "class", tone || null);
    setText(tile.children[2], more);
  }
}

function countFleet(state) {
  const slots = [...state.jobs.values()].flatMap((job) => job.slot_rows ?? []);
  const { chips, working, duty } = countNodes(state);
  const running = slots.filter((slot) => slot.phase === "running").length;
  const waiting = slots.filter(isWaiting).length;
  const urgent = slots.filter(isUrgent).length;
  const cost = state.cost ?? {};
  const known = cost.price_known !== false;
  return {
    chips: [formatNumber(working), `of ${formatNumber(chips)} · ${countOf(state.nodes.size, "node")}`],
    slots: [formatNumber(running), `of ${formatNumber(slots.length)} · ${countOf(state.jobs.size, "job")}`],
    waiting: [formatNumber(waiting), waiting ? "for capacity or a turn" : "nothing waits", waiting ? "warn-text" : ""],
    urgent: [formatNumber(urgent), urgent ? "failing, recovering, given up" : "nothing fails", urgent ? "bad-text" : ""],
    duty: [formatPercent(duty), "where it is known"],
    goodput: goodputFigure(slots),
    rate: [formatMoney(cost.per_hour, known), "an hour"],
    cost: [formatMoney(cost.today, known), `${formatMoney(cost.total, known)} in all`],
  };
}

function countNodes(state) {
  let chips = 0;
  let working = 0;
  let duty = 0;
  let reporting = 0;
  for (const node of state.nodes.values()) {
    const many = countChips(node);
    chips += many;
    const slot = findSlot(state.jobs.get(node.job), node);
    if (slot && slot.node === node.node && slot.phase === "running") working += many;
    for (const host of node.hosts) {
      for (const value of host.duty ?? []) {
        if (!Number.isFinite(value)) continue;
        duty += Math.min(100, Math.max(0, value));
        reporting += 1;
      }
    }
  }
  return { chips, working, duty: reporting ? duty / reporting : null };
}

function goodputFigure(slots) {
  const known = slots.map((slot) => slot.goodput).filter(Number.isFinite);
  const unknown = slots.filter((slot) => !Number.isFinite(slot.goodput) && slot.goodput_why).length;
  return [formatShare(known.reduce((sum, one) => sum + one, 0) / known.length), `mean of the slots${unknown ? `, ${formatNumber(unknown)} unknown` : ""}`];
}
