// The charts of a job: loss, step rate, duty, memory, drawn from its samples and kept current.

import { h, replace, setText } from "../dom.js";
import { createChart } from "./chart.js";
import { makeEmpty, makeErrorNotice } from "./notice.js";

const CHARTS = [
  { names: ["loss"], title: "Loss", unit: "number", log: true },
  { names: ["step_rate"], title: "Steps a second", unit: "rate" },
  { names: ["duty"], title: "Duty of the chips", unit: "percent" },
  { names: ["hbm_used"], title: "HBM used", unit: "bytes" },
  { names: ["cpu"], title: "CPU of the hosts", unit: "percent" },
];
const RENEW_MS = 10_000;
const SPANS = { "1 h": 3600, "6 h": 6 * 3600, "1 d": 86400, "7 d": 7 * 86400, All: null };

export class JobCharts {
  #charts = new Map();
  #span = "6 h";
  #marks = [];
  #load = null;

  constructor(live, job) {
    this.live = live;
    this.job = job;
    this.body = h("div", { class: "charts" });
    this.problem = h("div");
    this.note = h("p", { class: "card-note" });
    this.element = h("div", null, this.problem, this.body, this.note);
    this.tools = h("div", { class: "toolbar" }, h("div", { class: "segmented", role: "group", "aria-label": "Span of the charts" }, this.#makeSpans()));
    for (const chart of CHARTS) this.#charts.set(chart.names[0], createChart({ ...chart, series: [], empty: "Nothing reported yet." }));
    replace(this.body, [...this.#charts.values()].map((chart) => chart.element));
    this.renew();
    this.timer = setInterval(() => document.hidden || this.renew(), RENEW_MS);
  }

  #makeSpans() {
    return Object.keys(SPANS).map((name) =>
      h("button", { type: "button", "aria-pressed": String(name === this.#span), onclick: (event) => this.#choose(name, event.target) }, name),
    );
  }

  #choose(name, button) {
    this.#span = name;
    for (const one of button.parentElement.children) one.setAttribute("aria-pressed", String(one === button));
    this.renew();
  }

  /** Bands of lost time behind the curves. @param {{at: number, until: number, label: string}[]} marks */
  setMarks(marks) {
    this.#marks = marks;
    this.#charts.forEach((chart) => chart.setMarks(marks));
  }

  async renew() {
    this.#load?.abort();
    const load = (this.#load = new AbortController());
    const names = CHARTS.flatMap((chart) => chart.names).join(",");
    const span = SPANS[this.#span];
    const query = new URLSearchParams({ names, points: "600" });
    if (span) query.set("since", String(Math.floor(this.live.now() - span)));
    try {
      const { series } = await this.live.getJson(`/api/jobs/${encodeURIComponent(this.job)}/series?${query}`, load.signal);
      this.#show(series);
    } catch (error) {
      if (error.name === "AbortError") return;
      this.body.hidden = error.status === 404;
      replace(this.problem, error.status === 404 ? makeEmpty("No samples are kept of this job.") : makeErrorNotice(error));
    }
  }

  /** Charts without a value would only take room: a sentence names them. */
  #show(series) {
    const missing = [];
    for (const { names, title } of CHARTS) {
      const chart = this.#charts.get(names[0]);
      const own = series.filter((one) => one.name === names[0] && one.points.length);
      chart.setSeries(own.map(nameSeries));
      chart.element.hidden = !own.length;
      if (!own.length) missing.push(title);
    }
    const isEmpty = missing.length === CHARTS.length;
    this.body.hidden = isEmpty;
    setText(this.note, isEmpty || !missing.length ? "" : `Not reported: ${missing.join(", ")}.`);
    replace(this.problem, isEmpty && makeEmpty("Nothing reported yet.", "Hosts report their values every ten seconds while an attempt runs; a script reports its loss and steps."));
  }

  dispose() {
    clearInterval(this.timer);
    this.#load?.abort();
    this.#charts.forEach((chart) => chart.dispose());
  }
}

function nameSeries({ slot, host, chip, name, points }) {
  const place = [host || slot, chip === null || chip === undefined ? null : `chip ${chip}`].filter(Boolean).join(" ");
  return { key: `${slot}\n${host}\n${chip}\n${name}`, name: place, points };
}
