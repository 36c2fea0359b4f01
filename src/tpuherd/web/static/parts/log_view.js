// The live logs of all hosts of a job, folded, filtered, followed.

import { createPainter, h, replace, setText } from "../dom.js";
import { countOf, formatClock, formatNumber } from "../format.js";
import { foldHosts, foldLines, hostLabel, readFilter } from "./log_model.js";
import { makeErrorNotice } from "./notice.js";

const MOST_ROWS = 4000;
const MOST_HELD = 12000; // while the reader has scrolled up
const MOST_KNOWN = 20000; // ids of lines
const AT_END = 30; // pixels

export class LogView {
  rows = [];
  #recent = new Map();
  #pending = [];
  #known = new Set();
  #follow = true;
  #unseen = 0;
  #filter = readFilter("");
  #oldest = null;
  #close = null;
  #load = null;

  /** @param {any} live @param {string} job @param {{slots: string[], workers: number}} hosts */
  constructor(live, job, hosts) {
    this.live = live;
    this.base = `/api/jobs/${encodeURIComponent(job)}/logs`;
    this.hosts = hosts;
    this.#build();
    this.paint = createPainter(() => this.#takePending());
    this.connect();
  }

  #build() {
    const choices = (name, all, values) =>
      h("select", { class: "field", "aria-label": name, onchange: () => this.connect() }, h("option", { value: "" }, all), values.map((value) => h("option", { value }, value)));
    const workers = Array.from({ length: this.hosts.workers }, (_, at) => String(at));
    this.slot = choices("Slot", "all slots", this.hosts.slots);
    this.worker = choices("Worker", "all workers", workers);
    this.search = h("input", { class: "field", type: "search", placeholder: "Filter: words or /expression/", "aria-label": "Filter lines by words or by a regular expression between slashes", "data-filter": true, autocomplete: "off", spellcheck: "false", oninput: () => this.#applyFilter() });
    this.download = h("a", { class: "button", download: true }, "Download");
    this.button = h("button", { class: "button", type: "button", onclick: () => this.#setFollow(!this.#follow) });
    this.older = h("button", { class: "button quiet", type: "button", hidden: true, onclick: () => this.#loadOlder() }, "Older lines");
    this.body = h("div");
    this.pane = h("div", { class: "log-lines", tabindex: "0", role: "region", "aria-label": "Log lines", onscroll: () => this.#watchScroll() }, this.older, this.body);
    this.status = h("span", { class: "log-state" });
    this.count = h("span");
    this.problem = h("div");
    const tools = h("div", { class: "toolbar log-tools" }, this.search, this.slot, this.worker, this.button, this.download);
    this.element = h("div", null, tools, this.problem, this.pane, h("div", { class: "log-foot" }, this.status, this.count));
    this.#setFollow(true);
  }

  #query(more) {
    const query = new URLSearchParams();
    if (this.slot.value) query.set("slot", this.slot.value);
    if (this.worker.value) query.set("worker", this.worker.value);
    for (const [name, value] of Object.entries(more ?? {})) query.set(name, String(value));
    return query;
  }

  /** Load the newest lines and follow from there. */
  async connect() {
    this.#stop();
    this.rows = [];
    this.#recent = new Map();
    this.#pending = [];
    this.#known = new Set();
    replace(this.body);
    this.download.href = `${this.base}/download?${this.#query()}`;
    const load = (this.#load = new AbortController());
    try {
      const { lines, more } = await this.live.getJson(`${this.base}?${this.#query({ lines: 500 })}`, load.signal);
      replace(this.problem);
      this.#oldest = lines[0]?.id ?? null;
      this.older.hidden = !more;
      this.#pending.push(...this.#dropKnown(lines));
      this.paint();
      this.#followFrom(lines.at(-1)?.id ?? "");
    } catch (error) {
      if (error.name !== "AbortError") replace(this.problem, makeErrorNotice(error, () => this.connect()));
    }
  }

  #followFrom(id) {
    let last = id;
    const makePath = () => `${this.base}/stream?${this.#query(last ? { after: last } : {})}`;
    const take = (lines) => {
      const fresh = Array.isArray(lines) ? this.#dropKnown(lines) : [];
      if (!fresh.length) return;
      last = fresh.at(-1).id;
      this.#pending.push(...fresh);
      this.paint();
    };
    this.#close = this.live.openStream(makePath, { lines: take }, (status) => setText(this.status, status));
  }

  /** The stream repeats some lines when it starts again. */
  #dropKnown(lines) {
    const fresh = lines.filter((line) => !this.#known.has(line.id));
    for (const line of fresh) this.#known.add(line.id);
    if (this.#known.size > MOST_KNOWN) this.#known = new Set([...this.#known].slice(-MOST_KNOWN / 2));
    return fresh;
  }

  #stop() {
    this.#load?.abort();
    this.#close?.();
    this.#close = null;
  }

  #takePending() {
    const lines = this.#pending.splice(0);
    if (lines.length) {
      const { added, joined } = foldLines(this.rows, lines, this.#recent);
      this.body.append(...added.map((row) => this.#makeElement(row)));
      for (const row of joined) this.#writeHosts(row);
      this.#trim();
      this.#unseen += this.#follow ? 0 : added.length;
    }
    if (this.#follow) this.pane.scrollTop = this.pane.scrollHeight;
    this.#writeState();
  }

  #trim() {
    const most = this.#follow ? MOST_ROWS : MOST_HELD;
    const over = this.rows.length - most;
    if (over <= 0) return;
    for (const row of this.rows.splice(0, over)) row.element.remove();
    this.#recent = new Map();
    this.older.hidden = true;
  }

  #makeElement(row) {
    const host = h("span", { class: "log-host" });
    const text = h("span", { class: "log-text" });
    row.element = h("div", { class: `log-line ${row.stream === "stderr" ? "stderr" : ""}` }, h("time", null, formatClock(row.at).slice(-8)), host, text);
    row.element.hidden = !this.#filter.test(row);
    this.#writeHosts(row);
    this.#writeText(row);
    return row.element;
  }

  #writeHosts(row) {
    const host = row.element.children[1];
    setText(host, hostLabel(row.hosts, this.hosts.slots.length * this.hosts.workers));
    host.title = foldHosts(row.hosts);
  }

  /** The text, with what the filter found marked. */
  #writeText(row) {
    const place = row.element.children[2];
    const { find } = this.#filter;
    if (!find) return setText(place, row.text);
    const parts = [];
    let from = 0;
    for (const found of row.text.matchAll(find)) {
      if (!found[0]) continue;
      parts.push(row.text.slice(from, found.index), h("mark", null, found[0]));
      from = found.index + found[0].length;
    }
    return replace(place, parts, row.text.slice(from));
  }

  #applyFilter() {
    this.#filter = readFilter(this.search.value);
    this.search.setAttribute("aria-invalid", String(Boolean(this.#filter.error)));
    for (const row of this.rows) {
      const shown = this.#filter.test(row);
      row.element.hidden = !shown;
      if (shown) this.#writeText(row);
    }
    this.paint();
  }

  #setFollow(follow) {
    this.#follow = follow;
    if (follow) this.#unseen = 0;
    this.button.setAttribute("aria-pressed", String(follow));
    setText(this.button, follow ? "Pause" : "Follow");
    if (follow && this.paint) this.paint();
    else this.#writeState();
  }

  #watchScroll() {
    const { scrollHeight, scrollTop, clientHeight } = this.pane;
    const atEnd = scrollHeight - scrollTop - clientHeight < AT_END;
    if (this.#follow && !atEnd && this.#isReader(scrollTop)) this.#setFollow(false);
    else if (!this.#follow && atEnd && scrollTop > (this.#lastTop ?? 0)) this.#setFollow(true);
    this.#lastTop = scrollTop;
  }

  #lastTop = 0;

  /** Scrolling up is the reader's doing; new lines only scroll down. */
  #isReader(top) {
    return top < this.#lastTop - 2;
  }

  async #loadOlder() {
    this.older.disabled = true;
    try {
      const { lines, more } = await this.live.getJson(`${this.base}?${this.#query({ lines: 500, before: this.#oldest })}`);
      this.#setFollow(false);
      const before = this.pane.scrollHeight;
      const rows = [];
      const { added } = foldLines(rows, lines);
      this.rows.unshift(...added);
      this.body.prepend(...added.map((row) => this.#makeElement(row)));
      this.pane.scrollTop += this.pane.scrollHeight - before;
      this.#oldest = lines[0]?.id ?? this.#oldest;
      this.older.hidden = !more;
      this.#writeState();
    } catch (error) {
      replace(this.problem, makeErrorNotice(error));
    } finally {
      this.older.disabled = false;
    }
  }

  #writeState() {
    const hidden = this.#filter.find ? this.rows.filter((row) => row.element?.hidden).length : 0;
    const many = countOf(this.rows.length, "line");
    const parts = [hidden ? `${formatNumber(this.rows.length - hidden)} of ${many} match` : many];
    if (this.#unseen) parts.push(`${formatNumber(this.#unseen)} new below`);
    if (this.#filter.error) parts.push(this.#filter.error);
    setText(this.count, this.rows.length ? parts.join(" · ") : "No lines yet.");
  }

  dispose() {
    this.#stop();
    this.paint.cancel();
  }
}
