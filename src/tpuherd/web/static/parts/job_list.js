// The jobs, one row each; only what changed is written again.

import { h, reconcile, setProp, setText } from "../dom.js";
import { formatGoodput, formatMoney, formatNumber, formatSpan, NOTHING } from "../format.js";
import { jobHref, sweepHref } from "../routes.js";
import { makeAgo, setAgo } from "./ago.js";
import { makePhaseBar, updatePhaseBar } from "./phase_bar.js";
import { jobRank } from "./states.js";

const collator = new Intl.Collator("en", { numeric: true });
const COLUMNS = [
  ["Job", ""], ["Phases", ""], ["Progress", ""], ["Nodes", ""], ["Goodput", "num"], ["Cost", "num"], ["Age", "num"],
];
export const ORDERS = {
  urgency: { title: "most urgent first", compare: (one, other) => jobRank(one) - jobRank(other) },
  name: { title: "by name", compare: () => 0 },
  newest: { title: "newest first", compare: (one, other) => one.age_s - other.age_s },
  cost: { title: "most expensive first", compare: (one, other) => other.cost - one.cost },
  goodput: { title: "lowest goodput first", compare: (one, other) => (one.goodput ?? 2) - (other.goodput ?? 2) },
};

export function makeJobList() {
  const head = h("tr", null, COLUMNS.map(([title, style]) => h("th", { scope: "col", class: style }, title)));
  return h("table", { class: "table job-table" }, h("caption", { class: "visually-hidden" }, "Jobs"), h("thead", null, head), h("tbody"));
}

/** @param {HTMLElement} table @param {any[]} jobs @param {string} order @param {any} live */
export function updateJobList(table, jobs, order, live) {
  const { compare } = ORDERS[order] ?? ORDERS.urgency;
  const rows = [...jobs].sort((one, other) => compare(one, other) || collator.compare(one.job, other.job));
  const shared = new Set(jobs.map((job) => job.user).filter(Boolean)).size > 1;
  reconcile(table.tBodies[0], rows, (job) => job.job, (job) => makeRow(job, live), (row, job) => {
    if (row.herdJob === job && row.herdShared === shared) return;
    row.herdJob = job;
    row.herdShared = shared;
    updateRow(row, job, live);
  });
}

function makeRow(job, live) {
  const cells = COLUMNS.slice(1).map(([title, style]) => h("td", { class: style, data: { title } }));
  const [phases, progress, nodes, , cost, age] = cells;
  phases.append(makePhaseBar());
  progress.append(h("span"), h("span", { class: "bar", "aria-hidden": "true" }, h("span")));
  for (const cell of [nodes, cost]) cell.append(h("span"), h("div", { class: "muted" }));
  age.append(h("span"), h("div", { class: "muted" }, makeAgo(live)));
  const kind = h("div", { class: "muted job-kind" });
  return h("tr", null, h("th", { scope: "row" }, h("a", { href: jobHref(job.job), dir: "auto" }, job.job), kind), cells);
}

function updateRow(row, job, live) {
  const [name, phases, progress, nodes, goodput, cost, age] = row.cells;
  setProp(name.firstElementChild, "href", job.kind === "sweep" ? sweepHref(job.job) : jobHref(job.job));
  const notes = [job.kind === "job" ? "" : job.kind, row.herdShared ? job.user : ""];
  setText(name.lastElementChild, notes.filter(Boolean).join(", "));
  updatePhaseBar(phases.firstElementChild, job);
  updateProgress(progress, job);
  setText(nodes.firstElementChild, `${formatNumber(job.ready)} of ${formatNumber(job.slots)}`);
  setText(nodes.lastElementChild, placeText(job));
  setText(goodput, formatGoodput(job));
  setProp(goodput, "title", job.goodput_why);
  setText(cost.firstElementChild, formatMoney(job.cost, job.price_known));
  setText(cost.lastElementChild, job.per_hour ? `${formatMoney(job.per_hour, job.price_known)} an hour` : "");
  setText(age.firstElementChild, formatSpan(job.age_s));
  updateSign(age.lastElementChild, lastSign(job, live.state.nodes), live);
}

/** The last sign of any host; a job without hosts has none. */
function updateSign(place, at, live) {
  place.hidden = at === null;
  place.title = "last sign of a host";
  setAgo(place.firstElementChild, live, at);
}

function updateProgress(cell, job) {
  const { text, share } = measureProgress(job.slot_rows ?? []);
  const [words, bar] = cell.children;
  setText(words, text);
  bar.hidden = share === null;
  setProp(bar.firstElementChild, "style", { width: `${100 * (share ?? 0)}%`, background: "var(--state-productive)" });
}

/** How far a job's slots are; the slowest and the fastest step if they differ. */
export function measureProgress(slots) {
  const steps = slots.map((slot) => slot.step).filter(Number.isFinite);
  if (!steps.length) return { text: NOTHING, share: null };
  const [least, most] = [Math.min(...steps), Math.max(...steps)];
  const range = least === most ? formatNumber(least) : `${formatNumber(least)}–${formatNumber(most)}`;
  const timed = slots.filter((slot) => slot.total > 0);
  if (!timed.length) return { text: `step ${range}`, share: null };
  const shares = timed.map((slot) => Math.min(1, (slot.step ?? 0) / slot.total));
  const total = formatNumber(Math.max(...timed.map((slot) => slot.total)));
  return { text: `${range} of ${total}`, share: shares.reduce((sum, one) => sum + one, 0) / shares.length };
}

/** 2 slices of v4-32 · us-central2-b */
function placeText(job) {
  const slices = job.slices > 1 ? `${job.slices} slices of ` : "";
  return [slices + (job.type ?? []).join(", "), (job.zones ?? []).join(", ")].filter(Boolean).join(" · ");
}

function lastSign(job, nodes) {
  let newest = null;
  for (const slot of job.slot_rows ?? []) {
    for (const host of nodes.get(slot.node)?.hosts ?? []) if (host.at > (newest ?? 0)) newest = host.at;
  }
  return newest;
}

/** Whether a job has all these words somewhere. @param {any} job @param {string[]} words */
export function matchesWords(job, words) {
  if (!words.length) return true;
  const slots = (job.slot_rows ?? []).map((slot) => `${slot.slot} ${slot.phase} ${slot.zone} ${slot.type} ${slot.tier} ${slot.why}`);
  const parts = [job.job, job.kind, job.phase, job.goal, ...(job.type ?? []), ...(job.zones ?? []), ...slots];
  const text = parts.join(" ").toLowerCase();
  return words.every((word) => text.includes(word));
}
