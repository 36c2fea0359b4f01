// Scales of a chart: where a value is drawn, which round values get a tick, and how both are said.
// Pure: knows nothing of the page.

const MINUTE = 60, HOUR = 3600, DAY = 86400;
const TIME_STEPS = [1, 2, 5, 10, 15, 30, MINUTE, 2 * MINUTE, 5 * MINUTE, 10 * MINUTE, 15 * MINUTE,
  30 * MINUTE, HOUR, 2 * HOUR, 3 * HOUR, 6 * HOUR, 12 * HOUR, DAY, 2 * DAY, 7 * DAY, 14 * DAY];
const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
const WEEKDAYS = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"];
const MINUS = "\u2212"; // as wide as a plus

/** A function from [low, high] to [from, to]; with `log`, only values above 0 have a place. */
export function makeScale(low, high, from, to, log = false) {
  const bend = log ? Math.log10 : (value) => value;
  const first = bend(low), length = bend(high) - first;
  return (value) => {
    if (!length) return (from + to) / 2;
    return from + ((to - from) * (bend(value) - first)) / length;
  };
}

/** Round numbers from low to high, about `count` of them. */
export function linearTicks(low, high, count = 5) {
  if (!(high > low)) return [low];
  const step = roundStep((high - low) / Math.max(1, count));
  const ticks = [];
  const first = Math.ceil(low / step - 1e-9), last = Math.floor(high / step + 1e-9);
  for (let at = first; at <= last; at += 1) ticks.push(Number((at * step).toPrecision(12)));
  return ticks;
}

/** Round values for an axis of this unit; those of a span of time are round on the clock. */
export function valueTicks(low, high, unit = "number", log = false, count = 5) {
  if (log) return logTicks(low, high, count);
  const step = TIME_STEPS.find((one) => one >= (high - low) / count);
  if (unit !== "seconds" || high < 2 * MINUTE || !step) return linearTicks(low, high, count);
  const ticks = [];
  for (let at = Math.ceil(low / step) * step; at <= high; at += step) ticks.push(at);
  return ticks;
}

/** The smallest of 1, 2, 5 and 10 times a power of ten that is not below `raw`. */
export function roundStep(raw) {
  const power = 10 ** Math.floor(Math.log10(raw));
  return power * [1, 2, 5, 10].find((one) => power * one >= raw * (1 - 1e-9));
}

/** Powers of ten from low to high; with 2 and 5 between them if they are few. */
export function logTicks(low, high, count = 5) {
  const first = Math.floor(Math.log10(low) + 1e-9), last = Math.ceil(Math.log10(high) - 1e-9);
  const stride = Math.max(1, Math.ceil((last - first) / (count + 1)));
  const factors = last - first <= 2 ? [1, 2, 5] : [1];
  const ticks = [];
  for (let at = first; at <= last; at += stride) {
    for (const factor of factors) {
      const tick = Number((factor * 10 ** at).toPrecision(12));
      if (tick >= low * (1 - 1e-9) && tick <= high * (1 + 1e-9)) ticks.push(tick);
    }
  }
  return ticks.length > 1 ? ticks : linearTicks(low, high, count).filter((tick) => tick > 0);
}

/** Widen a range to round ends, so that no line lies on the frame. */
export function widenRange(low, high, log = false) {
  if (log) {
    return low === high ? [low / 2, high * 2] : [low * (low / high) ** 0.04, high * (high / low) ** 0.04];
  }
  if (low === high) {
    const room = Math.abs(low) * 0.1 || 1;
    return [low - room, high + room];
  }
  const room = (high - low) * 0.06;
  return [low >= 0 && low < room * 6 ? 0 : low - room, high + room];
}

/** Times on the clock from since to until, in local time: {step, ticks}. */
export function timeTicks(since, until, count = 6) {
  const raw = (until - since) / Math.max(1, count);
  const step = TIME_STEPS.find((one) => one >= raw);
  if (step === undefined) return { step: 30 * DAY, ticks: monthTicks(since, until, count) };
  const ticks = [];
  const start = alignTime(since, step);
  for (let number = 0; ticks.length <= 4 * count; number += 1) {
    const at = nthTick(start, step, number);
    if (at > until) break;
    if (at >= since && at !== ticks[ticks.length - 1]) ticks.push(at);
  }
  return { step, ticks };
}

/** The start of the local day of `since`, or of its hour if the step fits into one. */
function alignTime(since, step) {
  const start = new Date(since * 1000);
  if (step < HOUR) start.setMinutes(0, 0, 0);
  else start.setHours(0, 0, 0, 0);
  return start;
}

/** Steps of an hour and more go by the local calendar: a change to summer time moves no label. */
function nthTick(start, step, number) {
  if (step < HOUR) return start.getTime() / 1000 + step * number;
  const at = new Date(start);
  if (step < DAY) at.setHours(start.getHours() + (step / HOUR) * number);
  else at.setDate(start.getDate() + (step / DAY) * number);
  return at.getTime() / 1000;
}

function monthTicks(since, until, count) {
  const months = Math.max(1, Math.ceil((until - since) / (30 * DAY) / count));
  const at = new Date(since * 1000);
  at.setDate(1);
  at.setHours(0, 0, 0, 0);
  const ticks = [];
  for (; at.getTime() / 1000 <= until && ticks.length < 100; at.setMonth(at.getMonth() + months)) {
    if (at.getTime() / 1000 >= since) ticks.push(at.getTime() / 1000);
  }
  return ticks;
}

/** 13:05, 13:05:30 below a minute, 23 Nov from a day on. */
export function timeLabel(at, step) {
  const date = new Date(at * 1000);
  if (step >= DAY) return dayLabel(date);
  const minutes = `${pad(date.getHours())}:${pad(date.getMinutes())}`;
  return step < MINUTE ? `${minutes}:${pad(date.getSeconds())}` : minutes;
}

/** 23 Nov */
function dayLabel(date) {
  return `${date.getDate()} ${MONTHS[date.getMonth()]}`;
}

/** Mon 23 Nov: what stands below the first tick of a day; "" where ticks are days. */
export function dateLabel(at, step) {
  if (step >= DAY) return "";
  const date = new Date(at * 1000);
  return `${WEEKDAYS[date.getDay()]} ${dayLabel(date)}`;
}

/** Mon 23 Nov 13:05:30: a moment in full. */
export function momentLabel(at) {
  return `${dateLabel(at, 1)} ${timeLabel(at, 1)}`;
}

function pad(number) {
  return String(number).padStart(2, "0");
}

/** The labels of ticks, all in one unit and with equally many decimals. */
export function tickLabels(ticks, unit = "number", log = false) {
  if (log || ticks.length < 2) return ticks.map((tick) => valueLabel(tick, unit, 4));
  const largest = Math.max(...ticks.map(Math.abs));
  const step = Math.abs(ticks[1] - ticks[0]);
  const { factor, before, after } = chooseUnit(largest, unit);
  if (!after && (largest / factor >= 1e6 || largest / factor < 1e-3)) {
    return ticks.map((tick) => valueLabel(tick, unit, 4));
  }
  const decimals = Math.min(8, Math.max(0, -Math.floor(Math.log10(step / factor) + 1e-9)));
  const most = needsDecimals(ticks, factor, decimals) ? decimals : Math.max(0, decimals - 1);
  return ticks.map((tick) => before + signed((tick / factor).toFixed(most)) + after);
}

function needsDecimals(ticks, factor, decimals) {
  if (!decimals) return true;
  const shorter = 10 ** (decimals - 1);
  return ticks.some((tick) => Math.abs(Math.round((tick / factor) * shorter) - (tick / factor) * shorter) > 1e-6);
}

/** A value with its unit: 1.25 GB, 93 %, $1,204.50, 3 m 20 s, 1.2e-5. */
export function valueLabel(value, unit = "number", digits = 4) {
  if (typeof value !== "number" || Number.isNaN(value)) return "NaN";
  if (!Number.isFinite(value)) return value > 0 ? "inf" : `${MINUS}inf`;
  if (unit === "dollars") return moneyLabel(value);
  if (unit === "seconds") return spanLabel(value);
  const { factor, before, after } = chooseUnit(Math.abs(value), unit);
  return before + signed(plainNumber(value / factor, digits)) + after;
}

/** The power of a unit that fits a value. */
function chooseUnit(size, unit) {
  if (unit === "bytes") {
    const steps = [[1e15, " PB"], [1e12, " TB"], [1e9, " GB"], [1e6, " MB"], [1e3, " kB"]];
    const [factor, after] = steps.find(([one]) => size >= one) || [1, " B"];
    return { factor, before: "", after };
  }
  if (unit === "percent") return { factor: 1, before: "", after: " %" };
  if (unit === "rate") return { factor: 1, before: "", after: " /s" };
  if (unit === "dollars") return { factor: 1, before: "$", after: "" };
  if (unit === "seconds") {
    const steps = [[2 * DAY, DAY, " d"], [2 * HOUR, HOUR, " h"], [2 * MINUTE, MINUTE, " m"]];
    const [, factor, after] = steps.find(([least]) => size >= least) || [0, 1, " s"];
    return { factor, before: "", after };
  }
  return { factor: 1, before: "", after: "" };
}

/** At most so many digits that count, without trailing zeros. */
function plainNumber(value, digits) {
  const size = Math.abs(value);
  if (size && (size >= 1e9 || size < 1e-4)) {
    const [head, power] = value.toExponential(Math.max(0, digits - 2)).split("e");
    return `${Number(head)}e${Number(power)}`;
  }
  if (size >= 10 ** digits) return String(Math.round(value));
  return String(Number(value.toPrecision(digits)));
}

function moneyLabel(value) {
  const [whole, cents] = Math.abs(value).toFixed(2).split(".");
  const grouped = whole.replace(/\B(?=(\d{3})+$)/g, ",");
  return `${value < 0 ? MINUS : ""}$${grouped}.${cents}`;
}

/** 42 s, 3 m 20 s, 2 h 05 m, 3 d 04 h: as the command line says it. */
export function spanLabel(seconds) {
  const whole = Math.round(seconds);
  for (const [big, word, small, below] of [[DAY, "d", HOUR, "h"], [HOUR, "h", MINUTE, "m"], [MINUTE, "m", 1, "s"]]) {
    if (whole >= big) {
      return `${Math.floor(whole / big)} ${word} ${pad(Math.floor((whole % big) / small))} ${below}`;
    }
  }
  return seconds > 0 && seconds < 10 ? `${seconds.toFixed(1)} s` : signed(`${whole} s`);
}

function signed(text) {
  return text.replace(/-(?=\d)/, MINUS).replace("e-", `e${MINUS}`);
}
