// What a chart draws, computed from series of points [at, low, mean, high]. Pure.

export const LARGEST = 1e300; // a value beyond it counts as broken: sums and differences stay finite
const BUCKETS_MAX = 2000; // of a fold
export const POINTS_MAX = 1500; // of a series: older neighbours are joined when live points exceed it

/** Parse a series: points sorted by time, numbers only; broken values are kept apart as moments. */
export function parseSeries(one) {
  const points = [], broken = [];
  for (const point of one.points || []) {
    const at = Number(point[0]);
    if (!Number.isFinite(at)) continue;
    const parsed = parsePoint(at, point);
    if (parsed) points.push(parsed);
    else broken.push(at);
  }
  points.sort((left, right) => left[0] - right[0]);
  return { key: String(one.key), name: String(one.name), points: thinPoints(points), broken };
}

function parsePoint(at, point) {
  const mean = readNumber(point[2]);
  if (mean === null) return null;
  const low = readNumber(point[1]), high = readNumber(point[3]);
  return [at, low === null ? mean : Math.min(low, mean), mean, high === null ? mean : Math.max(high, mean)];
}

/** A finite number or null; JSON has no NaN, so that null, "NaN" and "inf" stand for it. */
function readNumber(value) {
  return typeof value === "number" && Math.abs(value) <= LARGEST ? value : null;
}

/** Add live points in place; a point of a known time replaces it. */
export function appendPoints(series, points) {
  const fresh = parseSeries({ key: series.key, name: series.name, points });
  const since = fresh.points.length ? fresh.points[0][0] : Infinity;
  while (series.points.length && series.points[series.points.length - 1][0] >= since) {
    const last = series.points.pop();
    if (!fresh.points.some((point) => point[0] === last[0])) fresh.points.push(last);
  }
  fresh.points.sort((left, right) => left[0] - right[0]);
  series.points.push(...fresh.points);
  series.broken.push(...fresh.broken);
  series.points = thinPoints(series.points);
}

/** At most POINTS_MAX points: more than a screen has columns only cost time. */
function thinPoints(points) {
  let thin = points;
  while (thin.length > POINTS_MAX) thin = joinNeighbours(thin);
  return thin;
}

/** Half as many points: each pair becomes one with the lowest, the mean and the highest value. */
export function joinNeighbours(points) {
  const joined = [];
  for (let at = 0; at < points.length; at += 2) {
    const one = points[at], two = points[at + 1];
    joined.push(two ? [one[0], Math.min(one[1], two[1]), (one[2] + two[2]) / 2, Math.max(one[3], two[3])] : one);
  }
  return joined;
}

/** The points within a time range, and one neighbour on each side, so that lines reach the frame. */
export function cutPoints(points, since, until) {
  const first = Math.max(0, findPlace(points, since) - 1);
  const end = Math.min(points.length, findPlace(points, until) + 1);
  return points.slice(first, end);
}

/** The index of the first point at or after a time. */
export function findPlace(points, at) {
  let low = 0, high = points.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (points[middle][0] < at) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** The point nearest to a time; null if it is farther away than `reach`. */
export function nearestPoint(points, at, reach = Infinity) {
  const place = findPlace(points, at);
  let best = null;
  for (const point of [points[place - 1], points[place]]) {
    if (point && (!best || Math.abs(point[0] - at) < Math.abs(best[0] - at))) best = point;
  }
  return best && Math.abs(best[0] - at) <= reach ? best : null;
}

/** The usual distance between points. */
export function usualStep(each) {
  const steps = [];
  for (const { points } of each) {
    const stride = Math.max(1, Math.floor(points.length / 60));
    for (let at = 1; at < points.length; at += stride) steps.push(points[at][0] - points[at - 1][0]);
  }
  steps.sort((left, right) => left - right);
  return steps.length ? steps[steps.length >> 1] : 0;
}

/** Split points where nothing was measured for long, and at broken values. */
export function splitAtGaps(points, broken, gap) {
  const runs = [];
  const stops = [...broken].sort((left, right) => left - right);
  let run = [], stop = 0;
  for (const point of points) {
    const last = run[run.length - 1];
    while (stop < stops.length && last && stops[stop] <= last[0]) stop += 1;
    const crossed = last && stop < stops.length && stops[stop] < point[0];
    if (last && (crossed || point[0] - last[0] > gap)) {
      runs.push(run);
      run = [];
    }
    run.push(point);
  }
  if (run.length) runs.push(run);
  return runs;
}

/** The lowest and highest value; null if there is none. With `log`, values above 0 only. */
export function findExtent(each, log = false) {
  let low = Infinity, high = -Infinity;
  for (const { points } of each) {
    for (const point of points) {
      if (point[3] > high) high = point[3];
      const bottom = log && point[1] <= 0 ? point[2] : point[1];
      if (bottom < low && (!log || bottom > 0)) low = bottom;
    }
  }
  return low <= high ? [low, high] : null;
}

/** The first and last time of all series; null if there is none. */
export function findTimes(each) {
  let since = Infinity, until = -Infinity;
  for (const { points, broken } of each) {
    if (points.length) {
      since = Math.min(since, points[0][0]);
      until = Math.max(until, points[points.length - 1][0]);
    }
    for (const at of broken) {
      since = Math.min(since, at);
      until = Math.max(until, at);
    }
  }
  return since <= until ? [since, until] : null;
}

/** Many series as three: the range and mean of all, the one that is lowest and the one that is highest. */
export function foldSeries(each, step) {
  const points = sumBuckets(each, step);
  const ranked = each.filter((one) => one.points.length);
  ranked.sort((left, right) => averageOf(left.points) - averageOf(right.points));
  const ends = ranked.length > 1 ? [["lowest", ranked[0]], ["highest", ranked[ranked.length - 1]]] : [];
  return [
    { key: "fold", name: `range and mean of ${each.length}`, points, broken: [], band: true },
    ...ends.map(([word, one]) => ({ ...one, key: word, name: `${word}: ${one.name}`, points: one.points.map(
      ([at, , mean]) => [at, mean, mean, mean]) })),
  ];
}

/** The lowest, mean and highest value of all series at each step. */
function sumBuckets(each, step) {
  const times = findTimes(each);
  if (!times) return [];
  const [since, until] = times;
  const width = Math.max(step, (until - since) / BUCKETS_MAX, 1e-9);
  const buckets = new Array(Math.floor((until - since) / width) + 1).fill(null);
  for (const { points } of each) {
    for (const [at, low, mean, high] of points) {
      const place = Math.floor((at - since) / width), sum = buckets[place];
      if (!sum) buckets[place] = { at, low, high, total: mean, many: 1 };
      else {
        if (low < sum.low) sum.low = low;
        if (high > sum.high) sum.high = high;
        sum.total += mean;
        sum.many += 1;
      }
    }
  }
  return buckets.filter(Boolean).map((sum) => [sum.at, sum.low, sum.total / sum.many, sum.high]);
}

function averageOf(points) {
  return points.reduce((sum, point) => sum + point[2], 0) / points.length;
}
