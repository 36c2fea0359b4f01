// Every loss with the parts of its recovery.

import { cleanText, h } from "../dom.js";
import { countOf, formatClock, formatNumber, formatSpan, NOTHING } from "../format.js";
import { fillInSteps } from "./long_list.js";
import { makeEmpty } from "./notice.js";
import { stateColour } from "./states.js";

/** The parts of a recovery in order, and the state whose colour each has. */
const PARTS = { detect: "detect", stop: "stopping", pause: "process_down", queue: "capacity_wait", provision: "provision", setup: "host_setup", start: "starting", restore: "restore", compile: "compile", gap: "controller_gap" };
const STARTS = { python_s: "Python", import_s: "imports", meet_s: "meeting the other processes", restore_s: "reading the checkpoint", compile_s: "compiling", first_step_s: "the first step" };
const LEAST_S = 0.5;
const COLUMNS = [["When", ""], ["Slot", ""], ["What", ""], ["Recovery", ""], ["Took", "num"], ["Steps lost", "num"]];

/** @param {any[]} incidents */
export function makeIncidentTable(incidents) {
  if (!incidents.length) return makeEmpty("No losses.", "Preemptions and failures appear here, with what each cost.");
  const rows = [...incidents].sort((one, other) => other.at - one.at);
  const head = h("tr", null, COLUMNS.map(([title, style]) => h("th", { scope: "col", class: style }, title)));
  const body = h("tbody");
  const caption = h("caption", { class: "visually-hidden" }, "Losses");
  const table = h("table", { class: "table details-table" }, caption, h("thead", null, head), body);
  return h("div", null, h("div", { class: "table-wrap" }, table), fillInSteps(body, rows, makeRow));
}

function makeRow(incident) {
  const took = `${incident.finished ? "" : "so far "}${formatSpan(incident.seconds)}`;
  const lost = incident.steps_lost === null ? NOTHING : formatNumber(incident.steps_lost);
  const cells = [
    h("span", { class: "nowrap" }, formatClock(incident.at)),
    h("bdi", { class: "slot-name" }, incident.slot),
    makeCause(incident),
    makeRecovery(incident),
    took,
    lost,
  ];
  return h("tr", null, cells.map((cell, at) => h("td", { class: COLUMNS[at][1], data: { title: COLUMNS[at][0] } }, cell)));
}

function makeCause(incident) {
  const zones = [...new Set([incident.from_zone, incident.to_zone].filter(Boolean))].join(" → ");
  return [
    h("span", { class: `badge ${incident.verdict === "preempted" ? "warn" : "bad"}` }, incident.verdict),
    h("span", { class: "nowrap" }, ` attempt ${incident.attempt}`),
    zones && h("div", { class: "muted" }, zones),
    incident.why && h("div", { class: "muted", dir: "auto" }, cleanText(incident.why)),
  ];
}

function makeRecovery(incident) {
  const parts = Object.entries(PARTS).map(([part, state]) => [part, state, incident.parts?.[part] ?? 0]).filter(([, , time]) => time > LEAST_S);
  const total = parts.reduce((sum, [, , time]) => sum + time, 0);
  if (!total) return "at once";
  const bar = parts.map(([, state, time]) => h("span", { style: { width: `${(100 * time) / total}%`, background: stateColour(state) } }));
  const words = parts.map(([part, , time]) => `${part} ${formatSpan(time)}${part === "start" ? startText(incident.startup) : ""}`);
  return [h("span", { class: "bar parts-bar", "aria-hidden": "true" }, bar), words.join(", ")];
}

/** (imports 6.1 s, compiling 22 s) */
export function startText(startup) {
  const parts = Object.entries(STARTS).filter(([key]) => startup?.[key] > 0).map(([key, name]) => `${name} ${formatSpan(startup[key])}`);
  return parts.length ? ` (${parts.join(", ")})` : "";
}

/** 3 losses, 1 still under way */
export function countIncidents(incidents) {
  const open = incidents.filter((one) => !one.finished).length;
  const many = countOf(incidents.length, "loss").replace("losss", "losses");
  return open ? `${many}, ${formatNumber(open)} under way` : many;
}
