// Events with their reasons, the newest first; older ones on demand.

import { cleanText, h, reconcile, replace } from "../dom.js";
import { formatClock } from "../format.js";
import { jobHref } from "../routes.js";
import { makeErrorNotice } from "./notice.js";

const MOST = 1000;

/**
 * @param {any} live
 * @param {{job?: string, limit?: number, links?: boolean}} options
 */
export function createEventList(live, { job = "", limit = 50, links = false } = {}) {
  const list = h("ol", { class: "events", tabindex: "0", "aria-label": "Events, the newest first" });
  const more = h("button", { class: "button quiet", type: "button", onclick: () => load(list.herdOldest) }, "Older events");
  const problem = h("div");
  const element = h("div", null, problem, list, h("div", { class: "card-note" }, more));
  let events = [];
  let kept = limit;
  more.hidden = true;

  function put(added) {
    const known = new Set(events.map((one) => one.seq));
    events = [...events, ...added.filter((one) => !known.has(one.seq))];
    events.sort((one, other) => other.seq - one.seq);
    events.length = Math.min(events.length, kept);
    list.herdOldest = events.at(-1)?.seq;
    reconcile(list, events, (one) => String(one.seq), (one) => makeEvent(one, links && !job));
  }

  async function load(before) {
    const query = new URLSearchParams({ limit: String(limit) });
    if (job) query.set("job", job);
    if (before) query.set("before", String(before));
    try {
      const answer = await live.getJson(`/api/events?${query}`);
      replace(problem);
      if (before) kept = Math.min(MOST, kept + limit);
      put(answer.events);
      more.hidden = answer.events.length < limit || kept >= MOST;
      if (!events.length) replace(problem, h("p", { class: "card-note" }, "Nothing has happened yet."));
    } catch (error) {
      replace(problem, makeErrorNotice(error, () => load(before)));
    }
  }

  const stops = [
    live.on("events", (added) => {
      const own = job ? added.filter((one) => one.job === job) : added;
      if (!own.length) return;
      if (!events.length) replace(problem);
      put(own);
    }),
    live.on("reset", () => load()),
  ];
  if (live.state.loaded) load();
  return { element, dispose: () => stops.forEach((stop) => stop()) };
}

function makeEvent(event, linked) {
  const line = cleanText(event.line ?? "");
  const text = line.startsWith(event.kind) ? line.slice(event.kind.length).trim() : line;
  const name = event.slot || event.job;
  const place = linked && event.job ? h("a", { href: jobHref(event.job), dir: "auto" }, name) : h("bdi", null, name);
  return h(
    "li",
    { class: `event ${eventTone(event.kind)}` },
    h("time", { class: "muted num" }, formatClock(event.at)),
    h("span", { class: "event-body" }, name ? [place, " "] : null, h("span", { class: "event-kind" }, event.kind), " ", h("bdi", null, text)),
  );
}

function eventTone(kind) {
  if (/lost|notice|refused|unhealthy|missed/.test(kind)) return "warn";
  if (/fail|gave_up|hung|stall|damaged|error/.test(kind)) return "bad";
  return "";
}
