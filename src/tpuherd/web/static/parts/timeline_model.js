// Arithmetic of the timeline: windows, ticks, sums. Draws nothing.

/** States in which a node is held and paid for. */
const BILLED = new Set(["host_setup", "starting", "restore", "compile", "productive", "unreported", "saving", "wasted", "stopping", "detect", "process_down", "hung", "unknown", "idle"]);
/** States that are not meant to be work. */
const REST = new Set(["idle", "stopped", "done", "gave_up"]);
/** Saving is part of the work, not of a loss; so may be what ran without reports of steps. */
const WORK = new Set(["productive", "unreported", "saving"]);
const LEAST_WINDOW_S = 5;
const STEPS = [1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800, 1209600, 2592000];

/**
 * @typedef {{start: number, end: number, state: string, slot: string}} Span
 * @typedef {{slot: string, spans: Span[], rate: number, losses: any[]}} Lane
 */

/** The lanes of a job's page. @returns {Lane[]} */
export function makeLanes(page) {
  const details = new Map((page.slot_details ?? []).map((one) => [one.slot, one]));
  return Object.entries(page.timeline?.slots ?? {}).map(([slot, rows]) => {
    const spans = rows.filter(([start, end]) => end > start).map(([start, end, state]) => ({ start, end, state, slot }));
    const losses = (page.incidents ?? []).filter((one) => one.slot === slot);
    return { slot, spans, losses, rate: findRate(details.get(slot), spans) };
  });
}

/** Dollars a second while a node is held: what the slot has cost over the time that it held one. */
function findRate(detail, spans) {
  const billed = spans.reduce((sum, span) => sum + (BILLED.has(span.state) ? span.end - span.start : 0), 0);
  return detail?.cost > 0 && billed > 0 ? detail.cost / billed : 0;
}

export function spanCost(span, rate) {
  return BILLED.has(span.state) ? (span.end - span.start) * rate : 0;
}

/** Keep a window within the whole. @param {{from: number, to: number}} window */
export function clampWindow(window, whole) {
  const most = Math.max(whole.to - whole.from, LEAST_WINDOW_S);
  const length = Math.min(most, Math.max(LEAST_WINDOW_S, window.to - window.from));
  const from = Math.min(Math.max(window.from, whole.from), whole.from + most - length);
  return { from, to: from + length };
}

/** Zoom around a place: factors below 1 come closer. */
export function zoomWindow(window, whole, factor, around = (window.from + window.to) / 2) {
  const from = around - (around - window.from) * factor;
  return clampWindow({ from, to: from + (window.to - window.from) * factor }, whole);
}

/** The span at a time, or null. @param {Lane} lane */
export function findSpan(lane, at) {
  let low = 0;
  let high = lane.spans.length - 1;
  while (low <= high) {
    const middle = (low + high) >> 1;
    const span = lane.spans[middle];
    if (at < span.start) high = middle - 1;
    else if (at >= span.end) low = middle + 1;
    else return span;
  }
  return null;
}

/** Seconds in each state within a window. @param {Lane[]} lanes */
export function sumStates(lanes, { from, to }) {
  const sums = new Map();
  for (const lane of lanes) {
    for (const span of lane.spans) {
      const time = Math.min(span.end, to) - Math.max(span.start, from);
      if (time > 0) sums.set(span.state, (sums.get(span.state) ?? 0) + time);
    }
  }
  return sums;
}

/** What losses have cost: all time after the first work that was meant to be work and was not. */
export function measureLosses(lanes) {
  const total = { seconds: 0, wanted: 0, cost: 0, losses: 0, states: new Map() };
  for (const lane of lanes) {
    let worked = false;
    total.losses += lane.losses.length;
    for (const span of lane.spans) {
      const time = span.end - span.start;
      worked ||= ["productive", "unreported", "wasted"].includes(span.state);
      if (REST.has(span.state)) continue;
      total.wanted += time;
      if (!worked || WORK.has(span.state)) continue;
      total.seconds += time;
      total.cost += spanCost(span, lane.rate);
      total.states.set(span.state, (total.states.get(span.state) ?? 0) + time);
    }
  }
  return total;
}

/** Times for the axis: whole minutes, hours, days of this place. */
export function makeTicks({ from, to }, width) {
  const room = Math.max(2, Math.floor(width / 90));
  const step = STEPS.find((one) => (to - from) / one <= room) ?? STEPS.at(-1);
  const zone = -new Date(from * 1000).getTimezoneOffset() * 60;
  const ticks = [];
  for (let at = Math.ceil((from + zone) / step) * step - zone; at < to; at += step) ticks.push({ at, text: tickText(at, step) });
  return ticks;
}

function tickText(at, step) {
  const when = new Date(at * 1000);
  const time = when.toTimeString();
  if (step < 60) return time.slice(0, 8);
  if (step >= 86400 || time.startsWith("00:00")) return when.toLocaleDateString("en-GB", { day: "numeric", month: "short" });
  return time.slice(0, 5);
}
