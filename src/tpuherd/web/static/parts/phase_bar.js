// How many slots of a job are in which phase: a bar, and the same in words.

import { h, reconcile, replace, setProp } from "../dom.js";
import { phaseTone, stateColour } from "./states.js";

/** @returns {HTMLElement} */
export function makePhaseBar() {
  return h("div", { class: "phase-bar" }, h("span", { class: "phase-words" }), h("span", { class: "bar", "aria-hidden": "true" }));
}

/** @param {{phases: Record<string, number>, phase?: string, slot_rows?: {phase: string, state: string}[]}} job */
export function updatePhaseBar(element, job) {
  const [words, bar] = element.children;
  const phases = Object.entries(job.phases ?? {});
  const many = phases.reduce((sum, [, count]) => sum + count, 0);
  const signature = JSON.stringify([phases, job.phase]);
  if (element.herdPhases === signature) return;
  element.herdPhases = signature;
  replace(words, phases.length ? makeWords(phases, many) : h("span", { class: "muted" }, job.phase || "no slots"));
  bar.hidden = phases.length < 2;
  const states = new Map((job.slot_rows ?? []).map((slot) => [slot.phase, slot.state]));
  reconcile(bar, phases, ([phase]) => phase, () => h("span"), (part, [phase, count]) => {
    setProp(part, "style", { width: `${(100 * count) / many}%`, background: stateColour(states.get(phase) ?? "stopped") });
  });
}

function makeWords(phases, many) {
  return phases.map(([phase, count]) =>
    h("span", { class: `badge ${phaseTone(phase)}` }, many > 1 ? `${count} ` : "", phase),
  );
}
