// Stop, resume, scale and delete a job, each after a question that says what it does and costs.

import { announce, h, replace } from "../dom.js";
import { countOf, foldNames, formatMoney, formatNumber } from "../format.js";
import { askConfirmation } from "./dialog.js";
import { makeErrorNotice, makeNotice } from "./notice.js";

const ACTIONS = {
  stop: { title: "Stop", ask: askStop, fits: (job) => job.goal === "run" || job.goal === "idle" },
  resume: { title: "Resume", ask: askResume, fits: (job) => job.goal === "stopped" || job.goal === "idle" || job.phases["gave up"] > 0 },
  scale: { title: "Scale", ask: askScale, fits: (job) => job.kind === "job" && job.goal === "run" },
  down: { title: "Delete", ask: askDown, fits: (job) => job.goal !== "removed", danger: true },
};

/**
 * @param {any} live
 * @param {() => any} getJob the job's newest row
 * @param {HTMLElement} place where answers are shown
 */
export function makeJobActions(live, getJob, place) {
  const buttons = Object.entries(ACTIONS).map(([name, action]) =>
    h("button", { class: `button${action.danger ? " danger" : ""}`, type: "button", data: { name }, onclick: () => runAction(live, name, getJob(), place) }, action.title),
  );
  return h("div", { class: "toolbar actions" }, buttons);
}

export function updateJobActions(element, job, mayChange) {
  element.hidden = !mayChange;
  for (const button of element.children) button.hidden = !ACTIONS[button.dataset.name].fits(job);
}

async function runAction(live, name, job, place) {
  const body = await ACTIONS[name].ask(job);
  if (!body) return;
  replace(place, makeNotice("info", `${ACTIONS[name].title}: asking herd …`));
  try {
    const { message } = await live.post(`/api/jobs/${encodeURIComponent(job.job)}/${name}`, body);
    replace(place, makeNotice("good", message));
    announce(message);
  } catch (error) {
    replace(place, makeErrorNotice(error));
  }
}

function costText(job) {
  return `So far it has cost ${formatMoney(job.cost, job.price_known)}.`;
}

/** The slots that hold a node, or pay for one that is being created. */
function findHolders(job) {
  return (job.slot_rows ?? []).filter((slot) => slot.node || slot.per_hour > 0);
}

function nodesText(job) {
  const many = findHolders(job).length;
  if (!many) return "It holds no node now.";
  const rate = formatMoney(job.per_hour, job.price_known);
  return `Its ${countOf(many, "node")} (${rate} an hour) ${many === 1 ? "is" : "are"} given back.`;
}

/** What has been computed since the last checkpoint, which a stop may lose. */
function unsavedText(job) {
  const unsaved = (job.slot_rows ?? []).filter((slot) => Number.isFinite(slot.step) && slot.step > (slot.saved ?? 0) && slot.node);
  if (!unsaved.length) return null;
  const most = Math.max(...unsaved.map((slot) => slot.step - (slot.saved ?? 0)));
  return `${foldNames(unsaved.map((slot) => slot.slot))}: up to ${countOf(most, "step")} since the last checkpoint, lost unless the script saves when it is asked to end.`;
}

async function askStop(job) {
  const lines = [
    "Its commands are asked to end and have their grace to save.",
    unsavedText(job),
    `${nodesText(job)} ${costText(job)}`,
    "The job is kept: Resume continues from the last checkpoint, on new nodes, for which it may have to wait.",
  ];
  const agreed = await askConfirmation({ title: `Stop ${job.job}?`, lines: lines.filter(Boolean), confirm: "Stop", danger: true });
  return agreed ? {} : null;
}

async function askResume(job) {
  const lines = [
    `herd requests ${countOf(job.slots || job.slot_rows?.length || 1, "node")} again, and the commands continue from their last checkpoints.`,
    `Nodes cost money as soon as the cloud grants them. ${costText(job)}`,
  ];
  const agreed = await askConfirmation({ title: `Resume ${job.job}?`, lines, confirm: "Resume" });
  return agreed ? {} : null;
}

async function askDown(job) {
  const lines = [
    "Its commands are asked to end and have their grace to save; what they have not saved is lost.",
    unsavedText(job),
    `${nodesText(job)} ${costText(job)}`,
    "The job is forgotten: it can't be resumed. Checkpoints in buckets stay.",
  ];
  const agreed = await askConfirmation({ title: `Delete ${job.job}?`, lines: lines.filter(Boolean), confirm: "Delete", danger: true });
  return agreed ? {} : null;
}

async function askScale(job) {
  const input = h("input", { class: "field", type: "number", min: "1", max: "10000", step: "1", value: String(job.slots), "aria-label": "Number of slots" });
  const effect = h("p", { "aria-live": "polite" });
  const tell = () => replace(effect, scaleText(job, Number(input.value)));
  input.addEventListener("input", tell);
  tell();
  const row = h("p", null, h("label", null, "Slots: ", input));
  const agreed = await askConfirmation({ title: `Scale ${job.job}`, lines: [row, effect], confirm: "Scale" });
  const count = Number(input.value);
  return agreed && Number.isInteger(count) && count >= 1 && count !== job.slots ? { count } : null;
}

function scaleText(job, count) {
  if (!Number.isInteger(count) || count < 1) return "Enter a whole number of at least 1.";
  const more = count - job.slots;
  if (!more) return `It has ${countOf(job.slots, "slot")} now.`;
  const paid = findHolders(job).filter((slot) => slot.per_hour > 0).length;
  const each = paid ? job.per_hour / paid : 0;
  const money = each ? ` (about ${formatMoney(each * Math.abs(more))} an hour ${more > 0 ? "more" : "less"})` : "";
  if (more > 0) return `herd requests ${formatNumber(more)} more ${more === 1 ? "node" : "nodes"}${money}.`;
  return `The last ${countOf(-more, "slot")} end: their commands have their grace to save, and their nodes are given back${money}.`;
}
