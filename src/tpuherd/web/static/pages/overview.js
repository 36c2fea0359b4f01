// The fleet at one glance: what is wrong, what waits and why, every chip, every job.

import { createPainter, createScope, h, replace, setText } from "../dom.js";
import { countOf } from "../format.js";
import { createEventList } from "../parts/event_list.js";
import { makeFleetTiles, updateFleetTiles } from "../parts/fleet_tiles.js";
import { makeJobList, matchesWords, ORDERS, updateJobList } from "../parts/job_list.js";
import { MachineRoom } from "../parts/machine_room.js";
import { makeEmpty, makeErrorNotice } from "../parts/notice.js";
import { makeProblemList, updateProblemList } from "../parts/problem_list.js";
import { makeWaitingList, updateWaitingList } from "../parts/waiting_list.js";

export default { title: "Fleet", show };

function show(container, params, live) {
  const scope = createScope();
  const view = makeView(container, params, live, scope);
  let shown = null;
  const paint = createPainter(() => {
    const changes = shown;
    shown = null;
    updateView(view, live, changes);
  });
  scope.add(paint.cancel);
  scope.add(() => view.room.dispose());
  scope.add(
    live.on("changes", (changes) => {
      shown = mergeChanges(shown, changes);
      paint();
    }),
  );
  scope.add(live.on("samples", (nodes) => {
    view.room.renewNodes(nodes);
    view.paintTiles();
  }));
  scope.add(live.on("status", () => showLoading(view, live)));
  showLoading(view, live);
  if (live.state.loaded) updateView(view, live, { all: true, jobs: new Set(), nodes: new Set() });
  return scope.dispose;
}

function mergeChanges(before, added) {
  if (!before) return added;
  return {
    all: before.all || added.all,
    jobs: new Set([...before.jobs, ...added.jobs]),
    nodes: new Set([...before.nodes, ...added.nodes]),
  };
}

function makeView(container, params, live, scope) {
  const filter = h("input", { class: "field", type: "search", placeholder: "Filter  ( / )", "aria-label": "Filter jobs by name, phase, zone, type or reason", "data-filter": true, value: params.query.get("q") ?? "", autocomplete: "off", spellcheck: "false" });
  const order = h("select", { class: "field", "aria-label": "Order of the jobs" }, Object.entries(ORDERS).map(([key, { title }]) => h("option", { value: key }, title)));
  const view = {
    words: [],
    loading: h("div"),
    problems: makeProblemList(),
    tiles: makeFleetTiles(),
    waiting: makeWaitingList(),
    room: new MachineRoom(live),
    jobs: makeJobList(),
    count: h("span", { class: "muted" }),
    none: h("div"),
    order,
  };
  const events = createEventList(live, { limit: 40, links: true });
  scope.add(events.dispose);
  view.paintTiles = createPainter(() => updateFleetTiles(view.tiles, live.state));
  scope.add(view.paintTiles.cancel);
  const readFilter = () => {
    view.words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    const query = filter.value ? `?q=${encodeURIComponent(filter.value)}` : "";
    history.replaceState(null, "", `#/${query}`);
    view.room.setFilter((job) => matchesWords(job, view.words));
    updateJobs(view, live);
  };
  filter.addEventListener("input", readFilter);
  order.addEventListener("change", () => updateJobs(view, live));
  view.words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
  view.body = h("div", { class: "fleet" }, view.tiles, h("div", { class: "fleet-columns" }, h("div", { class: "fleet-main" }, view.room.element, makeJobCard(view)), h("div", { class: "fleet-side" }, view.waiting, makeEventCard(events))));
  replace(container, h("div", { class: "page-head" }, h("h1", null, "Fleet"), h("div", { class: "toolbar" }, filter, order)), view.loading, view.problems, view.body);
  if (view.words.length) view.room.setFilter((job) => matchesWords(job, view.words));
  return view;
}

function makeJobCard(view) {
  const head = h("div", { class: "card-head" }, h("h2", { id: "jobs-title" }, "Jobs"), view.count);
  return h("section", { class: "card", "aria-labelledby": "jobs-title" }, head, h("div", { class: "table-wrap" }, view.jobs), view.none);
}

function makeEventCard(events) {
  const head = h("div", { class: "card-head" }, h("h2", { id: "events-title" }, "Latest events"));
  return h("section", { class: "card", "aria-labelledby": "events-title" }, head, events.element);
}

function showLoading(view, live) {
  view.body.hidden = !live.state.loaded;
  const failed = live.status === "reconnecting" && live.error?.message;
  if (live.state.loaded) replace(view.loading);
  else if (failed) replace(view.loading, makeErrorNotice(live.error));
  else if (live.status !== "ended") replace(view.loading, h("p", { class: "muted" }, "Asking herd …"));
}

function updateView(view, live, changes) {
  showLoading(view, live);
  const { state } = live;
  updateProblemList(view.problems, state, live.now());
  updateFleetTiles(view.tiles, state);
  updateWaitingList(view.waiting, state.jobs.values());
  view.room.update(changes);
  updateJobs(view, live);
}

function updateJobs(view, live) {
  const all = [...live.state.jobs.values()];
  const found = all.filter((job) => matchesWords(job, view.words));
  updateJobList(view.jobs, found, view.order.value, live);
  setText(view.count, found.length === all.length ? countOf(all.length, "job") : `${found.length} of ${countOf(all.length, "job")}`);
  view.jobs.hidden = !found.length;
  if (found.length) replace(view.none);
  else if (all.length) replace(view.none, makeEmpty("No job matches the filter."));
  else replace(view.none, makeEmpty("No jobs yet.", "Run one: `herd run job.yaml`. Try it without a cloud: `herd sim start`."));
}
