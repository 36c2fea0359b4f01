// The page of a sweep: how the best value came about, each parameter against the metric, all trials.

import { cleanText, createScope, h, replace } from "../dom.js";
import { countOf, formatSpan, NOTHING } from "../format.js";
import { createChart } from "../parts/chart.js";
import { makeEmpty } from "../parts/notice.js";
import { createParallel } from "../parts/parallel.js";
import { buildTile, keepFresh } from "../parts/refresh.js";
import { buildShapeKey, createScatter } from "../parts/scatter.js";
import { createTable } from "../parts/table.js";
import { bestSoFar, paramLabel, parameterNames, trialKind } from "../parts/trial_axis.js";
import { jobHref } from "../routes.js";

const CURVES = 8; // trials whose values over the steps are drawn

export default {
  title: (route) => `${cleanText(route.name)}: sweep`,
  show(container, route, live) {
    const scope = createScope();
    const notice = h("div"), body = h("div", { class: "sweep-body" });
    const tiles = h("dl", { class: "tiles" });
    replace(container, h("h1", { dir: "auto" }, cleanText(route.name), " ", h("small", {}, "sweep")),
      h("p", {}, h("a", { href: jobHref(route.name) }, "Its job: slots, timeline, logs")), tiles, notice, body);
    let view = null, known = "";
    scope.add(keepFresh(live, `/api/sweeps/${encodeURIComponent(route.name)}`, notice, (page) => {
      replace(tiles, buildTiles(page));
      const names = JSON.stringify([parameterNames(page.trials), page.metric, page.trials.length > 0]);
      if (names !== known) {
        known = names;
        view?.dispose();
        view = page.trials.length ? createView(page) : null;
        replace(body, view ? view.element : makeEmpty("No trial has been created yet, because no slot is ready."));
      }
      view?.update(page);
    }).dispose);
    scope.add(() => view?.dispose());
    return scope.dispose;
  },
};

function buildTiles(page) {
  const best = page.trials.find(({ trial }) => trial === page.best);
  const counts = Object.entries(page.phases).map(([phase, many]) => `${many} ${phase}`).join(", ");
  const params = best ? Object.entries(best.params).map(([name, value]) => `${name} ${paramLabel(value)}`).join(", ") : "";
  return [
    buildTile(`best ${cleanText(page.metric || "value")}`, best ? paramLabel(best.value) : NOTHING,
      best ? cleanText(`trial ${best.trial}: ${params}`) : "no trial is complete yet"),
    buildTile("trials", `${page.trials.length} of ${page.planned}`, counts),
    buildTile("goal", cleanText(`${page.goal} ${page.metric}`.trim() || "all of a grid"), page.method ? `by ${cleanText(page.method)}` : ""),
  ];
}

/** The charts and the table; their axes are made for these parameters. */
function createView(page) {
  const metric = cleanText(page.metric || "value");
  const history = createScatter({ title: `${metric} by trial, and the best so far`, xOf: ({ trial }) => trial, ...plotOf(page) });
  const each = parameterNames(page.trials).map((name) => createScatter({
    title: `${metric} by ${name}`, xOf: ({ params }) => params[name], ...plotOf(page), stair: null }));
  const parallel = createParallel({ title: `Parameters and ${metric} of each trial`, ...plotOf(page), metric });
  const curves = createChart({ title: `${metric} over steps, the best ${CURVES} trials`, axis: "number", series: [], fold: false,
    empty: "No trial has reported a value yet." });
  const table = createTable(tableOptions(page));
  const key = h("div");
  const element = h("div", { class: "chart-stack" }, key, history.element, h("div", { class: "chart-columns" }, each.map((one) => one.element)),
    parallel.element, curves.element, h("h2", {}, "Trials"), table.element);
  const parts = [history, ...each, parallel];
  return {
    element,
    update(fresh) {
      history.update(plotOf(fresh));
      for (const one of each) one.update({ ...plotOf(fresh), stair: null });
      parallel.update(plotOf(fresh));
      curves.setSeries(curvesOf(fresh));
      table.setRows(fresh.trials.map((trial) => ({ ...trial, best: trial.trial === fresh.best })));
      const kinds = new Set(fresh.trials.filter(({ value }) => typeof value === "number").map((trial) => trialKind(trial, fresh.best)));
      replace(key, buildShapeKey(kinds), notDrawn(fresh.trials));
    },
    dispose() {
      for (const one of [...parts, curves, table]) one.dispose();
    },
  };
}

/** A sentence on trials that ended without a value. */
function notDrawn(trials) {
  const many = trials.filter(({ value, phase }) => typeof value !== "number" && ["complete", "pruned"].includes(phase)).length;
  return many ? h("p", { class: "muted" }, `${countOf(many, "trial")} ended without a finite value and ${many === 1 ? "is" : "are"} not drawn.`) : null;
}

function plotOf(page) {
  return { trials: page.trials, best: page.best, stair: bestSoFar(page.trials, page.goal) };
}

function curvesOf(page) {
  const turn = page.goal === "maximize" ? -1 : 1;
  return page.trials
    .filter(({ value, points }) => typeof value === "number" && points && points.length > 1)
    .sort((left, right) => turn * (left.value - right.value))
    .slice(0, CURVES)
    .map(({ trial, points }) => ({ key: String(trial), name: `trial ${trial}`,
      points: points.map(([step, value]) => [step, value, value, value]) }));
}

function tableOptions(page) {
  const params = parameterNames(page.trials).map((name) => ({
    key: `param:${name}`, title: cleanText(name), right: page.trials.every(({ params: one }) => typeof one[name] !== "string"),
    value: ({ params: one }) => one[name], cell: ({ params: one }) => (one[name] === undefined ? NOTHING : paramLabel(one[name])) }));
  return {
    caption: "Trials", rows: [], rowKey: ({ trial }) => String(trial), sort: null, empty: "No trial yet.",
    columns: [
      { key: "trial", title: "trial", right: true, cell: ({ trial, best }) => (best ? `\u2605 ${trial}` : String(trial)) },
      { key: "phase", title: "phase", cell: ({ phase, nan }) => (nan ? `${phase} (NaN)` : phase) },
      { key: "value", title: cleanText(page.metric || "value"), right: true, cell: ({ value, nan }) => (nan ? "NaN" : typeof value === "number" ? paramLabel(value) : NOTHING) },
      ...params,
      { key: "step", title: "step", right: true },
      { key: "slot", title: "slot" },
      { key: "attempts", title: "attempts", right: true },
      { key: "preemptions", title: "preemptions", right: true },
      { key: "seconds", title: "time", right: true, cell: ({ seconds }) => formatSpan(seconds) },
      { key: "why", title: "why" },
    ],
  };
}
