// What the timeline says in words: the cost of losses, the legend, and a table.

import { h, reconcile, setText } from "../dom.js";
import { countOf, formatMoney, formatShare, formatSpan } from "../format.js";
import { STATES, stateColour } from "./states.js";
import { measureLosses, sumStates } from "./timeline_model.js";

const LEAST_SHARE = 0.0005; // would be printed as 0.0 %

function titleOf(titles, state) {
  return titles.get(state)?.title ?? state.replaceAll("_", " ");
}

/** 3 losses cost 2 h 10 m of 40 h (5.4 %), about $12: … */
export function makeLossSentence(lanes, titles) {
  const { seconds, wanted, cost, losses, states } = measureLosses(lanes);
  if (!losses && seconds < 1) return ["Nothing was lost so far."];
  const parts = [...states].sort((one, other) => other[1] - one[1]).slice(0, 4);
  const where = parts.map(([state, time]) => `${formatSpan(time)} ${titleOf(titles, state)}`).join("; ");
  const share = formatShare(wanted ? seconds / wanted : null);
  const who = losses ? `${countOf(losses, "loss").replace("losss", "losses")} cost ` : "Interruptions cost ";
  const money = cost >= 0.005 ? `, about ${formatMoney(cost)}` : "";
  return [h("strong", null, `${who}${formatSpan(seconds)}`), ` of ${formatSpan(wanted)} (${share})${money}: ${where}.`];
}

/** The states within the window, with their shares. */
export function fillLegend(legend, lanes, window, titles) {
  const sums = sumStates(lanes, window);
  const total = [...sums.values()].reduce((sum, one) => sum + one, 0);
  const shown = STATES.filter((state) => sums.get(state) > 0);
  reconcile(legend, shown, (state) => state, makeEntry, (entry, state) => {
    entry.title = titles.get(state)?.meaning ?? "";
    setText(entry.children[1], titleOf(titles, state));
    setText(entry.children[2], tellShare(sums.get(state) / total));
  });
}

function tellShare(share) {
  return share < LEAST_SHARE ? "< 0.1 %" : formatShare(share);
}

function makeEntry(state) {
  const swatch = h("span", { class: "state-swatch", style: { background: stateColour(state) } });
  return h("span", { class: "legend-entry" }, swatch, h("span"), h("b"));
}

/** Each slot's time in each state. */
export function makeTimeTable(lanes, titles) {
  const whole = { from: -Infinity, to: Infinity };
  const sums = lanes.map((lane) => sumStates([lane], whole));
  const states = STATES.filter((state) => sums.some((sum) => sum.has(state)));
  const head = h("tr", null, h("th", { scope: "col" }, "Slot"), states.map((state) => h("th", { scope: "col", class: "num" }, titleOf(titles, state))));
  const rows = lanes.map((lane, at) =>
    h(
      "tr",
      null,
      h("th", { scope: "row", dir: "auto" }, lane.slot),
      states.map((state) => h("td", { class: "num" }, sums[at].has(state) ? formatSpan(sums[at].get(state)) : "")),
    ),
  );
  const table = h("table", { class: "table" }, h("caption", { class: "visually-hidden" }, "Time of each slot by state"), h("thead", null, head), h("tbody", null, rows));
  return h("div", { class: "table-wrap", tabindex: "0", role: "region", "aria-label": "Time of each slot by state" }, table);
}
