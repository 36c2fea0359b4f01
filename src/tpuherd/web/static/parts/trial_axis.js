// The axis of a parameter or metric of trials: numbers, powers of ten, or names side by side. Pure.

import { linearTicks, logTicks, makeScale, tickLabels, valueLabel } from "./chart_scale.js";

const ORDERS = 100; // from this ratio on, values above 0 get a logarithmic axis
const ROOM = 0.05; // at both ends
const FEW = 6; // different values that have a tick each
const SHORT = 5; // letters of such a label, at most
const APART = 0.09; // two such ticks, at least

/** {place(value) -> 0..1, ticks: [{place, label}], log}; values are numbers, names or truth values. */
export function buildAxis(values, count = 5) {
  const known = [...new Set(values.filter((value) => value !== null && value !== undefined))];
  if (!known.length || known.some((value) => typeof value !== "number")) return buildNameAxis(known);
  const low = Math.min(...known), high = Math.max(...known);
  const log = low > 0 && high / low > ORDERS;
  const scale = makeScale(low, high, ROOM, 1 - ROOM, log);
  const whole = known.every(Number.isInteger);
  const few = known.length <= FEW && known.every((value) => paramLabel(value).length <= SHORT);
  const round = () => (log ? logTicks : linearTicks)(low, high, count).filter((tick) => !whole || Number.isInteger(tick));
  const ticks = few ? spreadTicks(known, scale) : round();
  const labels = few ? ticks.map(paramLabel) : tickLabels(ticks, "number", log);
  return { log, place: scale, ticks: ticks.map((tick, at) => ({ place: scale(tick), label: labels[at] })) };
}

/** The values themselves, without those too near to the one before. */
function spreadTicks(values, scale) {
  const ticks = [];
  for (const value of [...values].sort((left, right) => left - right)) {
    if (!ticks.length || scale(value) - scale(ticks[ticks.length - 1]) >= APART) ticks.push(value);
  }
  return ticks;
}

function buildNameAxis(known) {
  const names = known.map(String).sort((left, right) => left.localeCompare(right, "en", { numeric: true }));
  const place = (value) => (names.indexOf(String(value)) + 0.5) / Math.max(1, names.length);
  return { log: false, place, ticks: names.map((name) => ({ place: place(name), label: name })) };
}

/** All parameters of the trials, in order of appearance. */
export function parameterNames(trials) {
  return [...new Set(trials.flatMap(({ params }) => Object.keys(params || {})))];
}

/** complete, pruned, running …, or best: how a trial is drawn. */
export function trialKind(trial, best) {
  return trial.trial === best ? "best" : trial.phase;
}

/** The best value of complete trials so far: [[trial, value], …] at each change, and the last trial. */
export function bestSoFar(trials, goal) {
  const better = goal === "maximize" ? Math.max : Math.min;
  const points = [];
  const ended = trials.filter(({ value, phase }) => typeof value === "number" && phase === "complete");
  for (const { trial, value } of ended) {
    const now = points.length ? better(value, points[points.length - 1][1]) : value;
    if (!points.length || now !== points[points.length - 1][1]) points.push([trial, now]);
  }
  if (points.length) points.push([Math.max(...trials.filter(({ value }) => typeof value === "number").map(({ trial }) => trial)), points[points.length - 1][1]]);
  return points;
}

export function paramLabel(value) {
  return typeof value === "number" ? valueLabel(value, "number", 5) : String(value);
}
