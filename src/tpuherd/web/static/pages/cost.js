// The page of cost: what is spent now, by day and by job, what is to come, and where a job's time went.

import { cleanText, createScope, h, replace } from "../dom.js";
import { countOf, formatDay, formatGoodput, formatMoney, formatNumber, formatSpan, NOTHING } from "../format.js";
import { createBars, buildShareBar } from "../parts/bars.js";
import { makeEmpty } from "../parts/notice.js";
import { buildTile, keepFresh } from "../parts/refresh.js";
import { createTable } from "../parts/table.js";
import { stateColour } from "../parts/states.js";
import { jobHref } from "../routes.js";

const JOBS_DRAWN = 7; // jobs with a colour of their own in the bars; the others are one

export default {
  title: "Cost",
  show(container, route, live) {
    const scope = createScope();
    const notice = h("div"), tiles = h("dl", { class: "tiles" }), words = h("ul", { class: "sentences" });
    const bars = createBars({ title: "Dollars by day", unit: "dollars", bars: [] });
    const table = createTable(tableOptions());
    const report = createReport(live);
    const empty = h("div");
    const body = h("div", { class: "chart-stack" }, bars.element, h("h2", {}, "By job"), table.element, report.element);
    body.hidden = true;
    replace(container, h("h1", {}, "Cost"),
      h("p", { class: "muted" }, "List prices times the time that nodes were there; Google\u2019s bill decides."), tiles, words, notice, empty, body);
    scope.add(keepFresh(live, "/api/cost", notice, (page) => {
      body.hidden = !page.jobs.length;
      replace(empty, page.jobs.length ? null : makeEmpty("Nothing has cost anything yet.", "Start a job with `herd run`."));
      replace(tiles, buildTiles(page));
      replace(words, (page.sentences || []).map((sentence) => h("li", { dir: "auto" }, cleanText(sentence))));
      bars.update({ bars: barsOf(page) });
      table.setRows(page.jobs);
      report.offerJobs(page.jobs.map(({ job }) => job), route.query?.get("job"));
    }).dispose);
    scope.add(bars.dispose);
    scope.add(report.dispose);
    return scope.dispose;
  },
};

function buildTiles(page) {
  const forecast = page.forecast || {};
  return [
    buildTile("now", page.per_hour ? `${formatMoney(page.per_hour, page.price_known)} /h` : "$0.00 /h"),
    buildTile("today", formatMoney(page.today ?? 0)),
    buildTile("in all", formatMoney(page.total ?? 0), page.price_known ? "" : "some prices are not known"),
    buildTile("today, if it goes on", formatMoney(forecast.day), formatEnd("this month ", forecast.month)),
  ];
}

function formatEnd(words, dollars) {
  return typeof dollars === "number" ? `${words}${formatMoney(dollars)}` : "";
}

/** Jobs with most money first; the rest is one part. */
function barsOf(page) {
  const totals = new Map();
  for (const day of page.days || []) {
    for (const [job, cost] of Object.entries(day.jobs || {})) totals.set(job, (totals.get(job) || 0) + cost);
  }
  const ranked = [...totals].sort((left, right) => right[1] - left[1]).map(([job]) => job);
  const own = ranked.slice(0, JOBS_DRAWN);
  return (page.days || []).map((day) => {
    const parts = own.map((job) => ({ name: job, value: day.jobs?.[job] || 0 }));
    const rest = (day.cost || 0) - parts.reduce((sum, { value }) => sum + value, 0);
    if (ranked.length > own.length) parts.push({ name: `${ranked.length - own.length} others`, value: Math.max(0, rest) });
    return { name: formatDay(day.start), parts };
  });
}

function tableOptions() {
  return {
    caption: "Cost by job", rows: [], rowKey: ({ job }) => job, sort: { key: "total", descending: true },
    columns: [
      { key: "job", title: "job", cell: ({ job, removed }, before) => buildJobLink(job, removed, before) },
      { key: "per_hour", title: "now, an hour", right: true, cell: (row) => (row.per_hour ? formatMoney(row.per_hour, row.price_known) : NOTHING) },
      { key: "today", title: "today", right: true, cell: (row) => formatMoney(row.today) },
      { key: "total", title: "in all", right: true, cell: (row) => formatMoney(row.total, row.price_known) },
      { key: "max_cost", title: "limit", right: true, cell: ({ max_cost }) => formatMoney(max_cost) },
      { key: "forecast_month", title: "month, if it goes on", right: true, cell: ({ forecast_month }) => formatMoney(forecast_month) },
    ],
  };
}

function buildJobLink(job, removed, before) {
  const text = cleanText(removed ? `${job} (removed)` : job);
  if (before && before.textContent === text) return before;
  return removed ? h("span", {}, text) : h("a", { href: jobHref(job) }, text);
}

/** Where the time of a chosen job went. */
function createReport(live) {
  const choice = h("select", { class: "field" });
  const notice = h("div"), body = h("div", { class: "report chart-stack" });
  const element = h("section", { class: "chart-stack" }, h("h2", {}, "Where the time went"), h("label", { class: "choice" }, "Job ", choice), notice, body);
  let fresh = null;
  const follow = () => {
    fresh?.dispose();
    replace(body);
    fresh = choice.value ? keepFresh(live, `/api/cost/${encodeURIComponent(choice.value)}`, notice,
      (page) => replace(body, buildReport(page)), { pauseMs: 10_000 }) : null;
  };
  choice.addEventListener("change", follow);
  return {
    element,
    offerJobs(jobs, wanted) {
      if ([...choice.options].map(({ value }) => value).join("\n") === jobs.join("\n")) return;
      const before = choice.value || wanted || jobs[0];
      replace(choice, jobs.map((job) => h("option", { value: job }, cleanText(job))));
      if (jobs.includes(before)) choice.value = before;
      follow();
    },
    dispose: () => fresh?.dispose(),
  };
}

function buildReport(page) {
  const parts = stateParts(page);
  return [
    h("dl", { class: "tiles" }, buildTile("goodput", formatGoodput(page), page.goodput_why),
      buildTile("lost to incidents", formatSpan(lostSeconds(page)), countOf((page.incidents || []).length, "incident")),
      buildTile("steps lost", formatNumber(page.steps_lost)), buildTile("cost", formatMoney(page.cost, page.price_known !== false))),
    parts.length ? buildShareBar("Time of all slots, by what they did", parts) : makeEmpty("No time has been counted yet."),
  ];
}

function lostSeconds(page) {
  return (page.incidents || []).reduce((sum, { seconds }) => sum + seconds, 0);
}

/** Seconds by state, the largest first; money of the state beside it. */
function stateParts(page) {
  const titles = new Map((page.states || []).map((one) => [one.state, one.title]));
  const parts = Object.entries(page.seconds || {}).filter(([, seconds]) => seconds > 0);
  return parts.sort((left, right) => right[1] - left[1]).map(([state, seconds]) => ({
    name: titles.get(state) ?? state.replaceAll("_", " "), value: seconds,
    text: [formatSpan(seconds), moneyOf(page, state)].filter(Boolean).join(", "),
    colour: stateColour(state) }));
}

function moneyOf(page, state) {
  const dollars = page.money?.[state];
  return dollars ? formatMoney(dollars) : "";
}
