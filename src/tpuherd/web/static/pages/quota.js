// The page of quota: what the project may have, what is used, and which job uses it.

import { cleanText, createScope, h, replace, svg } from "../dom.js";
import { makeEmpty, makeNotice } from "../parts/notice.js";
import { keepFresh } from "../parts/refresh.js";
import { createTable } from "../parts/table.js";

const METER = 96; // px
const EMPTY = "No quota allows a TPU, and no grants are declared: add them with `herd context grant`.";

export default {
  title: "Quota",
  show(container, route, live) {
    const scope = createScope();
    const notice = h("div"), trouble = h("div"), body = h("div");
    const table = createTable(tableOptions());
    replace(container, h("h1", {}, "Quota"),
      h("p", { class: "muted" }, "Google\u2019s quotas and the grants that you declared. Requests that wait for capacity count as used."),
      notice, trouble, body);
    scope.add(keepFresh(live, "/api/quota", notice, (page) => {
      replace(trouble, page.trouble ? makeNotice("warn", "Google\u2019s quotas are not shown.", cleanText(page.trouble)) : null);
      replace(body, page.limits.length ? table.element : makeEmpty(EMPTY));
      table.setRows(page.limits);
    }, { slowMs: 120_000, pauseMs: 15_000 }).dispose);
    return scope.dispose;
  },
};

function leftOf({ allowed, used }) {
  return allowed === null ? null : Math.max(0, allowed - used);
}

function tableOptions() {
  return {
    caption: "Quota", rows: [], sort: null,
    rowKey: ({ place, type, tier, source, unit }) => [place, type, tier, source, unit].join(" "),
    columns: [
      { key: "place", title: "place" },
      { key: "type", title: "type" },
      { key: "tier", title: "tier" },
      { key: "share", title: "in use", value: shareOf, cell: buildMeter },
      { key: "used", title: "used", right: true },
      { key: "allowed", title: "allowed", right: true, cell: ({ allowed }) => (allowed === null ? "any" : String(allowed)) },
      { key: "left", title: "left", right: true, value: leftOf, cell: (row) => (row.allowed === null ? "any" : String(leftOf(row))) },
      { key: "unit", title: "unit" },
      { key: "source", title: "source" },
      { key: "jobs", title: "jobs", value: jobsText },
    ],
  };
}

function shareOf({ allowed, used }) {
  if (!allowed) return used ? 1 : 0;
  return Math.min(1, used / allowed);
}

/** A bar with its share in words; one that is full is marked. */
function buildMeter(row) {
  if (row.allowed === null) return h("span", { class: "meter-text" }, "no limit");
  const share = shareOf(row);
  return h("span", { class: "meter" },
    svg("svg", { class: "meter-bar", width: METER, height: 10, "aria-hidden": "true" },
      svg("rect", { class: "meter-room", x: 0, y: 0, width: METER, height: 10, rx: 2 }),
      svg("rect", { class: share >= 1 ? "meter-used full" : "meter-used", x: 0, y: 0, width: (METER * share).toFixed(1), height: 10, rx: 2 })),
    h("span", { class: "meter-text" }, share >= 1 ? "full" : `${Math.round(100 * share)} %`));
}

function jobsText({ jobs }) {
  return Object.entries(jobs || {}).map(([job, many]) => `${job || "not herd"} ${many}`).join(", ");
}
