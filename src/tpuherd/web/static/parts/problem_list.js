// What is wrong now, on top of all else.

import { h, reconcile, setText } from "../dom.js";
import { formatSpan } from "../format.js";
import { makeNotice } from "./notice.js";

/** The titles of problems' sources, as `herd ls` prints them. */
const SOURCES = { cloud: "the cloud", store: "the job store", engine: "the engine", login: "your login" };

export function makeProblemList() {
  return h("div", { class: "problems", "aria-label": "Problems", role: "region" });
}

/** @param {HTMLElement} element @param {any} state @param {number} now */
export function updateProblemList(element, state, now) {
  const rows = [...collectProblems(state, now)];
  element.hidden = !rows.length;
  reconcile(element, rows, (row) => row.key, makeRow, (notice, row) => {
    setText(notice.querySelector(".problem-when"), row.when);
  });
}

function makeRow(row) {
  return makeNotice(row.kind, row.title, row.text, h("span", { class: "problem-when muted" }, row.when));
}

function* collectProblems(state, now) {
  for (const one of state.problems ?? []) {
    const title = `Problem with ${SOURCES[one.source] ?? one.source}: ${one.message}`;
    const times = one.count > 1 ? `, seen ${one.count} times` : "";
    yield { key: `${title} ${one.hint}`, kind: "bad", title, text: one.hint, when: `for ${formatSpan(now - one.since)}${times}` };
  }
  for (const text of state.notices ?? []) yield { key: text, kind: "warn", title: text, text: "", when: "" };
  if (state.loaded && state.engine && !state.engine.running && needsEngine(state)) {
    const title = "No engine is running, so nothing goes on and this may be out of date.";
    yield { key: title, kind: "warn", title, text: "Start one with `herd engine start`.", when: "" };
  }
}

function needsEngine(state) {
  return [...state.jobs.values()].some((job) => job.goal === "run" || Object.keys(job.phases).length) || state.nodes.size > 0;
}
