// The hosts as a table: what the squares show, for those who read rather than see.

import { h } from "../dom.js";
import { formatBytes, formatPercent, formatNumber } from "../format.js";
import { makeAgo } from "./ago.js";
import { nodeState } from "./states.js";

const MOST = 400;
const HEADS = [["Host", ""], ["State", ""], ["Type", ""], ["Zone", ""], ["Chips", "num"], ["Duty", "num"], ["HBM", "num"], ["CPU", "num"], ["RAM", "num"], ["Last sign", ""]];

export function makeHostTable(nodes, live) {
  const hosts = nodes.flatMap((node) => node.hosts.map((host) => [node, host]));
  const head = h("tr", null, HEADS.map(([title, style]) => h("th", { scope: "col", class: style }, title)));
  const rows = hosts.slice(0, MOST).map(([node, host]) => makeHostRow(node, host, live));
  const left = hosts.length - rows.length;
  return h(
    "div",
    null,
    h("div", { class: "table-wrap", tabindex: "0", role: "region", "aria-label": "Hosts" }, h("table", { class: "table" }, h("thead", null, head), h("tbody", null, rows))),
    left > 0 && h("p", { class: "card-note" }, `${formatNumber(left)} more hosts: the filter narrows them down.`),
  );
}

function makeHostRow(node, host, live) {
  const job = live.state.jobs.get(node.job);
  const slot = job?.slot_rows?.find((one) => one.slot === node.slot) ?? null;
  const used = mean(host.hbm_used);
  const total = mean(host.hbm_total);
  return h(
    "tr",
    null,
    h("th", { scope: "row", dir: "auto" }, `${node.node}/w${host.worker}`),
    h("td", null, nodeState(node, slot).word),
    h("td", null, node.type),
    h("td", null, node.zone),
    h("td", { class: "num" }, formatNumber(node.chips_per_host)),
    h("td", { class: "num" }, formatPercent(mean(host.duty))),
    h("td", { class: "num" }, used === null ? formatBytes(null) : `${formatBytes(used)} of ${formatBytes(total)}`),
    h("td", { class: "num" }, formatPercent(host.cpu)),
    h("td", { class: "num" }, host.ram_used ? `${formatBytes(host.ram_used)} of ${formatBytes(host.ram_total)}` : formatBytes(null)),
    h("td", { dir: "auto" }, host.at ? makeAgo(live, host.at) : "none yet", host.why ? ` ${host.why}` : ""),
  );
}

function mean(values) {
  const known = (values ?? []).filter(Number.isFinite);
  return known.length ? known.reduce((sum, one) => sum + one, 0) / known.length : null;
}
