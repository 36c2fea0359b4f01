// The attempts of each slot: how each ended, why, and how to fix it.

import { cleanText, h } from "../dom.js";
import { formatClock, formatNumber, formatSpan } from "../format.js";
import { startText } from "./incident_table.js";
import { fillInSteps } from "./long_list.js";
import { makeEmpty, markCode } from "./notice.js";

const QUIET = ["success", "stopped"];

/** @param {any[]} details the slots' pages @param {boolean} failedOnly */
export function makeAttemptList(details, failedOnly) {
  const all = details.flatMap((slot) => slot.attempts.map((attempt) => ({ ...attempt, slot: slot.slot })));
  const found = failedOnly ? all.filter(hasFailed) : all;
  found.sort((one, other) => other.launched_at - one.launched_at);
  if (!all.length) return makeEmpty("No attempts yet.", "An attempt starts as soon as a node is there and set up.");
  if (!found.length) return makeEmpty("No attempt failed.");
  const list = h("div");
  return h("div", null, list, fillInSteps(list, found, makeAttempt));
}

export function hasFailed(attempt) {
  return attempt.verdict !== null && !QUIET.includes(attempt.verdict) && attempt.verdict !== "preempted";
}

function makeAttempt(attempt) {
  const verdict = attempt.verdict ?? "running";
  const tone = hasFailed(attempt) ? "bad" : verdict === "preempted" ? "warn" : "good";
  const steps = [
    Number.isFinite(attempt.resumed) && `from step ${formatNumber(attempt.resumed)}`,
    Number.isFinite(attempt.step) && `to step ${formatNumber(attempt.step)}`,
  ].filter(Boolean).join(" ");
  const facts = [attempt.zone, attempt.type, `launched ${formatClock(attempt.launched_at)}`, `${attempt.verdict === null ? "for" : "after"} ${formatSpan(attempt.duration_s)}`, steps].filter(Boolean);
  const started = startText(attempt.startup).replace(/^ \(|\)$/g, "");
  return h(
    "article",
    { class: "attempt" },
    h("div", { class: "attempt-head" }, h("h3", null, h("bdi", null, attempt.slot), ` · attempt ${attempt.number}`), h("span", { class: `badge ${tone}` }, verdict), h("span", { class: "muted" }, facts.join(" · "))),
    attempt.why && h("p", { dir: "auto" }, cleanText(attempt.why)),
    started && h("p", { class: "muted" }, `Startup: ${started}`),
    attempt.finding && makeFinding(attempt.finding),
    makeExcerpt(attempt),
  );
}

function makeFinding({ cause, fix, id }) {
  return h(
    "div",
    { class: "finding" },
    h("p", { dir: "auto" }, h("strong", null, "Cause: "), markCode(cleanText(cause)), " ", h("span", { class: "muted" }, `(${id})`)),
    h("p", { dir: "auto" }, h("strong", null, "How to fix it: "), markCode(cleanText(fix))),
  );
}

function makeExcerpt(attempt) {
  if (!attempt.first_failing && !attempt.lines?.length) return null;
  const code = attempt.exit === null ? "" : `, exit ${attempt.exit}`;
  return [
    attempt.first_failing && h("p", null, "First failing host: ", h("bdi", null, attempt.first_failing), code),
    attempt.lines?.length ? h("pre", { class: "log-excerpt", tabindex: "0", "aria-label": "Last lines" }, attempt.lines.map(cleanText).join("\n")) : null,
  ];
}
