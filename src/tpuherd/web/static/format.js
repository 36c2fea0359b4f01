// Writes times, money and sizes the way herd prints them.

export const NOTHING = "–";
const UNITS = [
  [86400, "d", 3600, "h"],
  [3600, "h", 60, "m"],
  [60, "m", 1, "s"],
];
const BYTES = [
  [1e12, "TB"],
  [1e9, "GB"],
  [1e6, "MB"],
  [1e3, "kB"],
];

function isNumber(value) {
  return typeof value === "number" && Number.isFinite(value);
}

/** 42 s, 3 m 20 s, 2 h 05 m, 3 d 04 h */
export function formatSpan(seconds) {
  if (!isNumber(seconds)) return NOTHING;
  const whole = Math.round(Math.max(0, seconds));
  for (const [big, word, small, below] of UNITS) {
    if (whole < big) continue;
    const rest = Math.floor((whole % big) / small);
    return `${formatNumber(Math.floor(whole / big))} ${word} ${String(rest).padStart(2, "0")} ${below}`;
  }
  return seconds > 0 && seconds < 9.95 ? `${seconds.toFixed(1)} s` : `${whole} s`;
}

/** $1,234.50; with a + if some price is not known */
export function formatMoney(dollars, known = true) {
  if (!isNumber(dollars) || (!known && !dollars)) return NOTHING;
  const text = dollars.toLocaleString("en-US", { minimumFractionDigits: 2, maximumFractionDigits: 2 });
  return `$${text}${known ? "" : "+"}`;
}

/** 12 B, 3.4 kB, 5.6 MB */
export function formatBytes(many) {
  if (!isNumber(many)) return NOTHING;
  for (const [length, unit] of BYTES) {
    if (many >= length) return `${cutDigits(many / length)} ${unit}`;
  }
  return `${Math.round(many)} B`;
}

function cutDigits(value) {
  return String(Number(value.toPrecision(value >= 1000 ? 4 : 3)));
}

/** 93.1 %, of a share between 0 and 1 */
export function formatShare(share) {
  return isNumber(share) ? `${(100 * share).toFixed(1)} %` : NOTHING;
}

/** The goodput of a job or slot; "unknown" if it ran and nothing tells what it achieved. */
export const formatGoodput = ({ goodput, goodput_why: why }) => (!isNumber(goodput) && why ? "unknown" : formatShare(goodput));

/** 93 %, of a percentage */
export function formatPercent(percent) {
  return isNumber(percent) ? `${Math.round(percent)} %` : NOTHING;
}

/** 12,345 */
export function formatNumber(value) {
  return isNumber(value) ? value.toLocaleString("en-US") : NOTHING;
}

/** 4 significant digits: 0.01234, 2.345, 12,345 */
export function formatValue(value) {
  if (!isNumber(value)) return NOTHING;
  if (value !== 0 && (Math.abs(value) < 1e-4 || Math.abs(value) >= 1e7)) return value.toExponential(2);
  return value.toLocaleString("en-US", { maximumSignificantDigits: 4 });
}

/** 14:03:20; with the date if it is not today */
export function formatClock(at, { seconds = true } = {}) {
  if (!isNumber(at)) return NOTHING;
  const when = new Date(at * 1000);
  if (Number.isNaN(when.getTime())) return NOTHING;
  const time = when.toTimeString().slice(0, seconds ? 8 : 5);
  return when.toDateString() === new Date().toDateString() ? time : `${formatDay(at)} ${time}`;
}

/** 3 Nov */
export function formatDay(at) {
  const when = new Date(at * 1000);
  const day = when.toLocaleDateString("en-GB", { day: "numeric", month: "short" });
  return when.getFullYear() === new Date().getFullYear() ? day : `${day} ${when.getFullYear()}`;
}

/** 3 m 20 s ago */
export function formatAgo(at, now) {
  if (!isNumber(at)) return "never";
  return now - at < 2 ? "just now" : `${formatSpan(now - at)} ago`;
}

/** 1 node, 2 nodes */
export function countOf(many, word) {
  return `${formatNumber(many)} ${word}${many === 1 ? "" : "s"}`;
}

/** gpt-[0-3,7] of names that end in numbers; others are listed */
export function foldNames(names) {
  const heads = new Map();
  for (const name of names) {
    const [, head, tail] = /^(.*?)(\d+)?$/s.exec(name);
    const numbers = heads.get(head) ?? heads.set(head, []).get(head);
    if (tail !== undefined) numbers.push(Number(tail));
  }
  return [...heads].map(([head, numbers]) => head + foldNumbers(numbers)).join(", ");
}

function foldNumbers(numbers) {
  if (numbers.length < 2) return numbers.join("");
  const ordered = [...new Set(numbers)].sort((one, other) => one - other);
  const runs = [];
  for (const number of ordered) {
    const last = runs.at(-1);
    if (last && last[1] === number - 1) last[1] = number;
    else runs.push([number, number]);
  }
  return `[${runs.map(([from, to]) => (from === to ? `${from}` : `${from}-${to}`)).join(",")}]`;
}
