// Which colour and shape each state has, and which slots and nodes need attention.

/** The states of a slot's seconds, as herd's accounting names them, in the order of legends. */
export const STATES = [
  "productive", "unreported", "saving", "wasted", "stopping", "detect", "process_down", "hung", "unknown", "capacity_wait",
  "queue_first", "controller_gap", "provision", "host_setup", "starting", "restore", "compile", "idle", "stopped", "done", "gave_up",
];

/** How a chip is drawn, so that colour is never alone. */
const SHAPES = {
  productive: "full", unreported: "full", idle: "dot", done: "dot", stopped: "hollow",
  wasted: "stripe", saving: "stripe", stopping: "stripe",
  provision: "half", host_setup: "half", starting: "half", restore: "half", compile: "half",
  queue_first: "hollow", capacity_wait: "hollow", controller_gap: "hollow",
  detect: "cross", process_down: "cross", hung: "cross", unknown: "cross", gave_up: "cross",
};

/** Phases, the most urgent first; others stand between. */
const URGENT = ["failing", "gave up", "unhealthy", "silent", "recovering"];
const WAITING = ["queued", "waiting"];
const CALM = ["stopped", "done", "leaving", "idle"];

export function stateVariable(state) {
  return STATES.includes(state) ? `--state-${state.replaceAll("_", "-")}` : "--state-controller-gap";
}

export function stateColour(state) {
  return `var(${stateVariable(state)})`;
}

export function stateShape(state) {
  return SHAPES[state] ?? "hollow";
}

/** @returns {"good" | "warn" | "bad" | ""} */
export function phaseTone(phase) {
  if (["failing", "gave up", "unhealthy", "silent"].includes(phase)) return "bad";
  if (["recovering", "queued", "waiting", "booting"].includes(phase)) return "warn";
  if (["running", "done", "idle"].includes(phase)) return "good";
  return "";
}

/** 0 for what needs a look at once; more for what can wait. */
export function phaseRank(phase) {
  if (URGENT.includes(phase)) return URGENT.indexOf(phase);
  if (WAITING.includes(phase)) return 5;
  if (CALM.includes(phase)) return 8 + CALM.indexOf(phase);
  return 6;
}

/** The most urgent phase of a job decides its place. */
export function jobRank(job) {
  const ranks = Object.keys(job.phases ?? {}).map(phaseRank);
  return ranks.length ? Math.min(...ranks) : 12;
}

export function isWaiting(slot) {
  return WAITING.includes(slot.phase);
}

export function isUrgent(slot) {
  return URGENT.includes(slot.phase);
}

/** What a node does: its slot's state if it fills the slot, else what its stage says. */
export function nodeState(node, slot) {
  const stage = node.stage ?? "";
  if (/^unhealthy/.test(stage)) return { state: "hung", word: stage };
  if (slot && slot.node === node.node) return { state: slot.state, word: slot.phase };
  if (/delet/.test(stage)) return { state: "stopped", word: stage };
  if (/creat|request/.test(stage)) return { state: "provision", word: stage };
  if (stage === "silent") return { state: "unknown", word: stage };
  if (stage === "ready") return { state: "idle", word: "ready" };
  return { state: "detect", word: stage || "unknown" };
}
