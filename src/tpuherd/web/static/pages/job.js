// One job: what it does and why, where its time and money went, its charts, logs and events.

import { cleanText, createPainter, createScope, h, replace, setProp, setText } from "../dom.js";
import { countOf, foldNames, formatClock, formatMoney, formatShare, formatSpan } from "../format.js";
import { makeAttemptList, hasFailed } from "../parts/attempt_list.js";
import { createEventList } from "../parts/event_list.js";
import { countIncidents, makeIncidentTable } from "../parts/incident_table.js";
import { makeJobActions, updateJobActions } from "../parts/job_actions.js";
import { JobCharts } from "../parts/job_charts.js";
import { measureProgress } from "../parts/job_list.js";
import { LogView } from "../parts/log_view.js";
import { makeErrorNotice } from "../parts/notice.js";
import { makePhaseBar, updatePhaseBar } from "../parts/phase_bar.js";
import { makeSlotTable, updateSlotTable } from "../parts/slot_table.js";
import { groupReasons } from "../parts/reasons.js";
import { phaseTone } from "../parts/states.js";
import { Timeline } from "../parts/timeline.js";
import { sweepHref } from "../routes.js";

export default { title: (params) => params.name, show };

const RENEW_MS = 20_000; // without a change
const MOST_REASONS = 6;
const LEAST_MS = 1_500; // between two requests

function show(container, params, live) {
  const scope = createScope();
  const view = makeView(params.name, live, scope);
  replace(container, view.head, view.problem, view.answer, view.body);
  view.body.hidden = true;
  const load = createLoader(view, live);
  scope.add(load.stop);
  scope.add(
    live.on("changes", (changes) => {
      if (!changes.all && !changes.jobs.has(view.name)) return;
      view.paintHead();
      load.soon();
    }),
  );
  load.soon();
  return scope.dispose;
}

function makeView(name, live, scope) {
  const view = { name, live, page: null, failedOnly: false };
  view.timeline = new Timeline(live);
  scope.add(() => view.timeline.dispose());
  view.answer = h("div", { "aria-live": "polite" });
  view.problem = h("div");
  view.phases = makePhaseBar();
  view.actions = makeJobActions(live, () => newestRow(view), view.answer);
  view.actions.hidden = true;
  view.facts = h("dl", { class: "facts" });
  view.reasons = h("div", { class: "job-why" });
  view.slots = makeSlotTable();
  view.incidents = h("div");
  view.attempts = h("div");
  view.document = h("pre", { class: "job-file", tabindex: "0", "aria-label": "Job file" });
  view.head = h("header", { class: "page-head" }, h("h1", { dir: "auto" }, name), view.phases, view.actions);
  view.paintHead = createPainter(() => view.page && writeHead(view));
  scope.add(view.paintHead.cancel);
  const events = createEventList(live, { job: name });
  scope.add(events.dispose);
  view.cards = makeCards(view, events);
  view.body = h("div", { class: "fleet" }, Object.values(view.cards));
  startWhenSeen(view.cards.charts, scope, () => startCharts(view, scope));
  startWhenSeen(view.cards.logs, scope, () => startLogs(view, scope));
  return view;
}

function makeCards(view, events) {
  const failed = h("button", { class: "button", type: "button", "aria-pressed": "false", onclick: () => toggleFailed(view) }, "Only failures");
  view.failed = failed;
  return {
    now: makeCard("Now", null, h("div", { class: "card-body job-why" }, view.reasons, view.facts)),
    timeline: makeCard("Timeline", view.timeline.tools, view.timeline.element),
    incidents: makeCard("Losses", null, view.incidents),
    charts: makeCard("Charts", null),
    slots: makeCard("Slots", null, view.slots),
    logs: makeCard("Logs", null),
    attempts: makeCard("Attempts", h("div", { class: "toolbar" }, failed), view.attempts),
    events: makeCard("Events", null, events.element),
    document: makeCard("Job file", null, view.document),
  };
}

let cardCount = 0;

function makeCard(title, tools, ...content) {
  cardCount += 1;
  const heading = h("h2", { id: `card-${cardCount}` }, title);
  return h("section", { class: "card", "aria-labelledby": heading.id }, h("div", { class: "card-head" }, heading, h("span", { class: "muted" }), tools), content);
}

function setNote(card, text) {
  setText(card.firstElementChild.children[1], text);
}

/** What costs requests starts when it is scrolled into view. */
function startWhenSeen(card, scope, start) {
  const seeing = new IntersectionObserver(([entry]) => {
    if (!entry.isIntersecting) return;
    seeing.disconnect();
    start();
  }, { rootMargin: "200px" });
  seeing.observe(card);
  scope.add(() => seeing.disconnect());
}

function startCharts(view, scope) {
  view.charts = new JobCharts(view.live, view.name);
  view.cards.charts.firstElementChild.append(view.charts.tools);
  view.cards.charts.append(view.charts.element);
  view.charts.setMarks(makeMarks(view.page));
  scope.add(() => view.charts.dispose());
}

function startLogs(view, scope) {
  const slots = view.page.slot_details.map((one) => one.slot);
  const nodes = [...view.live.state.nodes.values()].filter((node) => node.job === view.name);
  const workers = Math.max(1, ...nodes.map((node) => node.hosts.length));
  const logs = new LogView(view.live, view.name, { slots, workers });
  view.cards.logs.append(logs.element);
  scope.add(() => logs.dispose());
}

function makeMarks(page) {
  return (page?.incidents ?? []).map((one) => ({ at: one.at, until: one.at + one.seconds, label: `${one.slot} ${one.verdict}` }));
}

/** Asks for the page at once, after changes, and now and then; never twice at a time. */
function createLoader(view, live) {
  let timer = 0;
  let last = 0;
  let stopped = false;
  let load = null;
  const plan = (wait) => {
    clearTimeout(timer);
    if (!stopped) timer = setTimeout(run, wait);
  };
  const run = async () => {
    if (load) return plan(LEAST_MS);
    load = new AbortController();
    last = Date.now();
    try {
      showPage(view, await live.getJson(`/api/jobs/${encodeURIComponent(view.name)}`, load.signal));
    } catch (error) {
      if (!stopped) showProblem(view, error);
    } finally {
      load = null;
      plan(RENEW_MS);
    }
  };
  return {
    soon: () => plan(Math.max(0, last + LEAST_MS - Date.now())),
    stop: () => {
      stopped = true;
      clearTimeout(timer);
      load?.abort();
    },
  };
}

function showProblem(view, error) {
  replace(view.problem, makeErrorNotice(error));
  if (error.status === 404) view.body.hidden = true;
}

/** The row of the live state, which is newer than the page's, if there is one. */
function newestRow(view) {
  return { ...view.page, ...view.live.state.jobs.get(view.name) };
}

function showPage(view, page) {
  const isFirst = !view.page;
  view.page = page;
  replace(view.problem);
  view.body.hidden = false;
  writeHead(view);
  view.timeline.setPage(page);
  updateSlotTable(view.slots, mergeSlots(page, newestRow(view)));
  setNote(view.cards.slots, countOf(page.slot_details.length, "slot"));
  writeIfNew(view.incidents, page.incidents, () => makeIncidentTable(page.incidents));
  setNote(view.cards.incidents, page.incidents.length ? countIncidents(page.incidents) : "");
  writeAttempts(view);
  view.charts?.setMarks(makeMarks(page));
  if (isFirst) setText(view.document, cleanText(writeDocument(page.document)));
}

function mergeSlots(page, row) {
  const rows = new Map((row.slot_rows ?? []).map((slot) => [slot.slot, slot]));
  return page.slot_details.map((slot) => ({ ...slot, ...rows.get(slot.slot), why: rows.get(slot.slot)?.why || slot.why }));
}

/** Build a part again only if its data differ. */
function writeIfNew(place, data, make) {
  const signature = JSON.stringify(data);
  if (place.herdData === signature) return;
  place.herdData = signature;
  replace(place, make());
}

function writeAttempts(view) {
  const { slot_details: details } = view.page;
  writeIfNew(view.attempts, [view.failedOnly, details.map((slot) => slot.attempts.map((one) => ({ ...one, duration_s: one.verdict === null ? 0 : one.duration_s })))], () => makeAttemptList(details, view.failedOnly));
  const all = details.flatMap((slot) => slot.attempts);
  const failed = all.filter(hasFailed).length;
  setNote(view.cards.attempts, `${countOf(all.length, "attempt")}${failed ? `, ${failed} failed` : ""}`);
  view.failed.hidden = !failed;
}

function toggleFailed(view) {
  view.failedOnly = !view.failedOnly;
  view.failed.setAttribute("aria-pressed", String(view.failedOnly));
  writeAttempts(view);
}

function writeHead(view) {
  const job = newestRow(view);
  updatePhaseBar(view.phases, job);
  updateJobActions(view.actions, job, Boolean(view.live.state.may_change));
  writeIfNew(view.facts, factsOf(job, view.page), () => factsOf(job, view.page).map(([name, value]) => h("div", null, h("dt", null, name), h("dd", { dir: "auto" }, value))));
  const reasons = groupReasons(mergeSlots(view.page, job)).slice(0, MOST_REASONS);
  writeIfNew(view.reasons, reasons, () => reasons.map(makeReason));
  if (job.kind === "sweep" && !view.sweepLink) {
    view.sweepLink = h("a", { class: "button", href: sweepHref(view.name) }, "Trials and plots");
    view.actions.before(view.sweepLink);
  }
  setProp(view.head, "data", { phase: job.phase });
}

function factsOf(job, page) {
  const progress = measureProgress(job.slot_rows ?? page.slot_details);
  const facts = [
    ["Nodes", `${job.ready} of ${job.slots}${job.slices > 1 ? ` of ${job.slices} slices each` : ""}`],
    ["Type", (job.type ?? []).join(", ")],
    ["Zone", (job.zones ?? []).join(", ")],
    ["Step", progress.share === null ? progress.text.replace("step ", "") : `${progress.text} (${formatShare(progress.share)})`],
    ["Goodput", [Number.isFinite(job.goodput) ? formatShare(job.goodput) : "", job.goodput_why].filter(Boolean).join(", ")],
    ["Cost", formatMoney(job.cost, job.price_known)],
    ["Rate", job.per_hour ? `${formatMoney(job.per_hour, job.price_known)} an hour` : ""],
    ["Submitted", page.submitted_at ? `${formatClock(page.submitted_at, { seconds: false })}${page.who ? ` by ${page.who}` : ""}` : ""],
    ["Age", formatSpan(job.age_s)],
  ];
  return facts.filter(([, value]) => value && value !== "–");
}

function makeReason({ phase, why, slots }) {
  return h(
    "p",
    null,
    h("span", { class: `badge ${phaseTone(phase)}` }, phase),
    " ",
    h("strong", { dir: "auto" }, foldNames(slots)),
    " ",
    h("bdi", null, cleanText(why || "")),
  );
}

/** The job's fields as YAML-like text. */
function writeDocument(document) {
  return Object.entries(document ?? {}).map(([key, value]) => writeField(key, value, "")).join("\n");
}

function writeField(key, value, indent) {
  if (Array.isArray(value) && value.every((one) => typeof one !== "object")) return `${indent}${key}: [${value.join(", ")}]`;
  if (value && typeof value === "object") {
    const rows = Object.entries(value).map(([name, one]) => writeField(Array.isArray(value) ? "-" : name, one, `${indent}  `));
    return [`${indent}${key}:`, ...rows].join("\n");
  }
  if (typeof value === "string" && value.includes("\n")) {
    return [`${indent}${key}: |`, ...value.trimEnd().split("\n").map((line) => `${indent}  ${line}`)].join("\n");
  }
  return `${indent}${key}: ${value}`;
}
