// What waits or fails, and why, in the words of `herd why`.

import { cleanText, h, reconcile, setText } from "../dom.js";
import { countOf, foldNames } from "../format.js";
import { jobHref } from "../routes.js";
import { groupReasons } from "./reasons.js";
import { isUrgent, isWaiting, phaseRank, phaseTone } from "./states.js";

const MOST = 12;

export function makeWaitingList() {
  const list = h("ul", { class: "reasons" });
  const note = h("p", { class: "card-note" });
  const title = h("h2", { id: "waiting-title" }, "What waits or fails, and why");
  return h("section", { class: "card", "aria-labelledby": "waiting-title" }, h("div", { class: "card-head" }, title), list, note);
}

/** @param {HTMLElement} element @param {Iterable<any>} jobs */
export function updateWaitingList(element, jobs) {
  const [, list, note] = element.children;
  const groups = collectReasons(jobs);
  reconcile(list, groups.slice(0, MOST), (group) => group.key, makeReason, updateReason);
  note.hidden = groups.length > 0 && groups.length <= MOST;
  const more = countOf(groups.length - MOST, "more reason");
  setText(note, groups.length ? `${more}: see the jobs.` : "Nothing waits and nothing fails.");
}

function collectReasons(jobs) {
  const all = [...jobs].flatMap((job) => {
    const slots = (job.slot_rows ?? []).filter((slot) => isWaiting(slot) || isUrgent(slot));
    return groupReasons(slots).map((group) => ({ ...group, key: `${job.job}\n${group.key}`, job: job.job }));
  });
  return all.sort((one, other) => phaseRank(one.phase) - phaseRank(other.phase));
}

function makeReason(group) {
  return h(
    "li",
    { class: "reason" },
    h("span", { class: `badge ${phaseTone(group.phase)}` }, group.phase),
    h("a", { href: jobHref(group.job), dir: "auto" }),
    h("p", { dir: "auto" }),
  );
}

function updateReason(element, group) {
  setText(element.children[1], foldNames(group.slots));
  setText(element.children[2], cleanText(group.why || "The engine has not looked at it yet."));
}
