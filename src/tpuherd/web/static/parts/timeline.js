// The timeline of all slots of a job: what each second went to.

import { announce, createPainter, h, replace, setProp, setText, svg } from "../dom.js";
import { formatClock, formatMoney, formatSpan } from "../format.js";
import { STATES, stateColour } from "./states.js";
import { clampWindow, findSpan, makeLanes, makeTicks, spanCost, zoomWindow } from "./timeline_model.js";
import { fillLegend, makeLossSentence, makeTimeTable } from "./timeline_texts.js";
import { hideTooltip, makePairs, showTooltip } from "./tooltip.js";

const AXIS = 24;
const DRAG_LEAST = 6;
const SHORT_S = 900; // a window that is told with seconds
const NAME_MOST = 18;
/** States with a pattern over their colour, and its angle. */
const HATCHED = { wasted: 45, capacity_wait: -45, stopping: 90, hung: 0, process_down: 45, stopped: 45, gave_up: -45 };
let count = 0;

/** Long names differ at their end. */
function shortenName(name) {
  return name.length > NAME_MOST ? `…${name.slice(1 - NAME_MOST)}` : name;
}

export class Timeline {
  lanes = [];
  titles = new Map();
  whole = { from: 0, to: 1 };
  window = { from: 0, to: 1 };
  mark = null;
  #width = 0;
  #row = 24;
  #following = true;
  #drag = null;

  constructor(live) {
    this.live = live;
    count += 1;
    this.id = `timeline-${count}`;
    this.#build();
    this.#listen();
    this.paint = createPainter(() => this.#draw());
    this.resizing = new ResizeObserver(() => {
      this.#width = Math.floor(this.plot.clientWidth);
      this.paint();
    });
    this.resizing.observe(this.plot);
  }

  #build() {
    const label = "Timeline. Left and right go from span to span, up and down from slot to slot, Enter zooms in, plus, minus and 0 change the window.";
    this.axis = svg("svg", { height: AXIS, "aria-hidden": "true" });
    this.picture = svg("svg", { "aria-hidden": "true" });
    this.names = h("div", { class: "timeline-names" });
    this.plot = h("div", { class: "timeline-plot", tabindex: "0", role: "application", "aria-label": label }, this.axis, this.picture);
    this.sentence = h("p", { class: "timeline-sentence" });
    this.legend = h("div", { class: "legend" });
    this.table = h("details", null, h("summary", null, "As a table"), h("div"));
    this.range = h("span", { class: "muted nowrap" });
    this.tools = h("div", { class: "toolbar" }, this.range, this.#makeTools());
    const frame = h("div", { class: "timeline-frame" }, this.names, this.plot);
    this.element = h("div", { class: "timeline" }, this.sentence, frame, this.legend, this.table);
    this.table.addEventListener("toggle", () => this.#fillTable());
  }

  #makeTools() {
    const tools = [
      ["−", "Zoom out", () => this.#zoom(2)],
      ["+", "Zoom in", () => this.#zoom(0.5)],
      ["◂", "Earlier", () => this.#move(-0.5)],
      ["▸", "Later", () => this.#move(0.5)],
      ["All", "Show all", () => this.#show(this.whole)],
    ];
    return h("div", { class: "segmented" }, tools.map(([sign, title, onclick]) => h("button", { type: "button", title, "aria-label": title, onclick }, sign)));
  }

  /** @param {any} page what the server says of the job */
  setPage(page) {
    this.titles = new Map((page.states ?? []).map((one) => [one.state, one]));
    this.lanes = makeLanes(page);
    const start = page.timeline?.start ?? 0;
    this.whole = { from: start, to: Math.max(start + 10, page.timeline?.end ?? 0) };
    this.window = this.#following ? { ...this.whole } : clampWindow(this.window, this.whole);
    this.#row = this.lanes.length <= 12 ? 26 : this.lanes.length <= 40 ? 19 : 13;
    const names = this.lanes.map((lane) => h("span", { title: lane.slot }, h("bdi", null, shortenName(lane.slot))));
    replace(this.names, h("span", { style: { height: `${AXIS}px` } }), names);
    setProp(this.names, "style", { "--row": `${this.#row}px` });
    replace(this.sentence, makeLossSentence(this.lanes, this.titles));
    this.#fillTable();
    this.paint();
  }

  #fillTable() {
    if (this.table.open) replace(this.table.lastElementChild, makeTimeTable(this.lanes, this.titles));
  }

  #show(window) {
    this.window = clampWindow(window, this.whole);
    this.#following = this.window.to - this.window.from >= (this.whole.to - this.whole.from) * 0.999;
    this.paint();
  }

  #zoom(factor, around) {
    this.#show(zoomWindow(this.window, this.whole, factor, around));
  }

  #move(share) {
    const by = (this.window.to - this.window.from) * share;
    this.#show({ from: this.window.from + by, to: this.window.to + by });
  }

  #xOf(at) {
    return ((at - this.window.from) / (this.window.to - this.window.from)) * this.#width;
  }

  #timeOf(x) {
    return this.window.from + (x / this.#width) * (this.window.to - this.window.from);
  }

  #draw() {
    if (!this.#width) return;
    const height = this.lanes.length * this.#row;
    setProp(this.picture, "height", height);
    this.#drawAxis();
    replace(this.picture, this.#makePatterns(), this.#makeGrid(height), this.#makeStates(), this.#makeLosses(), this.#makeMarks(height));
    fillLegend(this.legend, this.lanes, this.window, this.titles);
    const seconds = this.window.to - this.window.from < SHORT_S;
    setText(this.range, `${formatClock(this.window.from, { seconds })} – ${formatClock(this.window.to, { seconds })}`);
  }

  #drawAxis() {
    const ticks = makeTicks(this.window, this.#width).filter(({ at }) => this.#xOf(at) < this.#width - 30);
    replace(this.axis, ticks.map(({ at, text }) => svg("text", { x: this.#xOf(at) + 3, y: 16 }, text)));
  }

  #makePatterns() {
    const patterns = Object.entries(HATCHED).map(([state, angle]) =>
      svg(
        "pattern",
        { id: `${this.id}-${state}`, width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: `rotate(${angle})` },
        svg("rect", { width: 6, height: 6, fill: stateColour(state) }),
        svg("rect", { width: 2, height: 6, fill: "var(--surface)", "fill-opacity": 0.55 }),
      ),
    );
    return svg("defs", null, patterns);
  }

  #makeGrid(height) {
    const lines = makeTicks(this.window, this.#width).map(({ at }) => `M${this.#xOf(at).toFixed(1)} 0V${height}`);
    const lanes = this.lanes.map((_, at) => `M0 ${at * this.#row + 3}h${this.#width}v${this.#row - 6}h${-this.#width}z`);
    return [svg("path", { class: "timeline-lane", d: lanes.join("") }), svg("path", { class: "timeline-grid", d: lines.join("") })];
  }

  /** One path a state, however many spans there are. */
  #makeStates() {
    const paths = new Map(STATES.map((state) => [state, []]));
    this.lanes.forEach((lane, at) => {
      const top = at * this.#row + 3;
      const tall = this.#row - 6;
      for (const span of lane.spans) {
        if (span.end < this.window.from || span.start > this.window.to) continue;
        const x = Math.max(-2, this.#xOf(span.start));
        const wide = Math.max(["productive", "unreported"].includes(span.state) ? 0.3 : 1.2, Math.min(this.#width + 2, this.#xOf(span.end)) - x);
        paths.get(span.state)?.push(`M${x.toFixed(1)} ${top}h${wide.toFixed(1)}v${tall}h${(-wide).toFixed(1)}z`);
      }
    });
    return [...paths].filter(([, parts]) => parts.length).map(([state, parts]) => {
      const fill = state in HATCHED ? `url(#${this.id}-${state})` : stateColour(state);
      return svg("path", { d: parts.join(""), fill });
    });
  }

  #makeLosses() {
    const marks = this.lanes.flatMap((lane, at) =>
      lane.losses
        .filter((loss) => loss.at >= this.window.from && loss.at <= this.window.to)
        .map((loss) => `M${(this.#xOf(loss.at) - 4).toFixed(1)} ${at * this.#row}h8l-4 6z`),
    );
    return svg("path", { class: "timeline-loss", d: marks.join("") });
  }

  #makeMarks(height) {
    const parts = [];
    const now = this.#xOf(this.live.now());
    if (now >= 0 && now <= this.#width) parts.push(svg("path", { class: "timeline-now", d: `M${now.toFixed(1)} 0V${height}` }));
    if (this.mark) {
      const { span, lane } = this.mark;
      const x = Math.max(1, this.#xOf(span.start));
      const wide = Math.max(3, Math.min(this.#width - 1, this.#xOf(span.end)) - x);
      parts.push(svg("rect", { class: "timeline-mark", x, y: lane * this.#row + 1, width: wide, height: this.#row - 2 }));
    }
    if (this.#drag?.moved) {
      const [from, to] = [this.#drag.start, this.#drag.x].sort((one, other) => one - other);
      parts.push(svg("rect", { x: from, y: 0, width: to - from, height, fill: "var(--accent)", "fill-opacity": 0.2 }));
    }
    return parts;
  }

  #listen() {
    const { plot } = this;
    plot.addEventListener("pointerdown", (event) => this.#startDrag(event));
    plot.addEventListener("pointermove", (event) => this.#point(event));
    plot.addEventListener("pointerup", (event) => this.#endDrag(event));
    plot.addEventListener("pointercancel", () => this.#dropDrag());
    plot.addEventListener("pointerleave", hideTooltip);
    plot.addEventListener("dblclick", () => this.#show(this.whole));
    plot.addEventListener("wheel", (event) => this.#turnWheel(event), { passive: false });
    plot.addEventListener("keydown", (event) => this.#press(event));
    plot.addEventListener("blur", () => {
      this.mark = null;
      hideTooltip();
      this.paint();
    });
  }

  #placeOf(event) {
    const frame = this.plot.getBoundingClientRect();
    const lane = Math.floor((event.clientY - frame.top - AXIS) / this.#row);
    return { x: event.clientX - frame.left, lane };
  }

  #startDrag(event) {
    if (event.button !== 0) return;
    const { x } = this.#placeOf(event);
    this.#drag = { start: x, x, moved: false, pan: event.shiftKey || event.pointerType === "touch", window: this.window };
    this.plot.setPointerCapture(event.pointerId);
  }

  #point(event) {
    const { x, lane } = this.#placeOf(event);
    const drag = this.#drag;
    if (drag) {
      drag.x = x;
      drag.moved ||= Math.abs(x - drag.start) > DRAG_LEAST;
      if (drag.moved && drag.pan) this.#pan(drag);
      this.plot.classList.toggle("dragging", drag.moved);
      this.paint();
    }
    const span = this.lanes[lane] && findSpan(this.lanes[lane], this.#timeOf(x));
    if (span && !drag?.moved) this.#tell(span, this.lanes[lane], event.clientX, event.clientY);
    else hideTooltip();
  }

  #pan(drag) {
    const by = ((drag.start - drag.x) / this.#width) * (drag.window.to - drag.window.from);
    this.#show({ from: drag.window.from + by, to: drag.window.to + by });
  }

  #endDrag() {
    const drag = this.#drag;
    this.#dropDrag();
    if (!drag?.moved || drag.pan) return;
    const [from, to] = [this.#timeOf(drag.start), this.#timeOf(drag.x)].sort((one, other) => one - other);
    this.#show({ from, to });
  }

  #dropDrag() {
    this.#drag = null;
    this.plot.classList.remove("dragging");
    this.paint();
  }

  /** The wheel zooms once the timeline was clicked, or with Ctrl; else it scrolls the page. */
  #turnWheel(event) {
    const isSideways = Math.abs(event.deltaX) > Math.abs(event.deltaY);
    if (!isSideways && !event.ctrlKey && !event.metaKey && document.activeElement !== this.plot) return;
    event.preventDefault();
    if (isSideways) this.#move(event.deltaX / this.#width);
    else this.#zoom(event.deltaY > 0 ? 1.25 : 0.8, this.#timeOf(this.#placeOf(event).x));
  }

  #press(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const acts = {
      "+": () => this.#zoom(0.5, this.#markTime()),
      "=": () => this.#zoom(0.5, this.#markTime()),
      "-": () => this.#zoom(2, this.#markTime()),
      0: () => this.#show(this.whole),
      Enter: () => this.#zoomToMark(),
      ArrowLeft: () => (event.shiftKey ? this.#move(-0.25) : this.#step(-1)),
      ArrowRight: () => (event.shiftKey ? this.#move(0.25) : this.#step(1)),
      ArrowUp: () => this.#changeLane(-1),
      ArrowDown: () => this.#changeLane(1),
    };
    if (!acts[event.key]) return;
    event.preventDefault();
    acts[event.key]();
  }

  #markTime() {
    return this.mark ? (this.mark.span.start + this.mark.span.end) / 2 : undefined;
  }

  #zoomToMark() {
    if (!this.mark) return;
    const { start, end } = this.mark.span;
    const margin = (end - start) * 0.5;
    this.#show({ from: start - margin, to: end + margin });
  }

  #step(sign) {
    const lane = this.mark?.lane ?? 0;
    const spans = this.lanes[lane]?.spans ?? [];
    const at = this.mark ? spans.indexOf(this.mark.span) + sign : sign > 0 ? 0 : spans.length - 1;
    this.#setMark(lane, spans[Math.min(spans.length - 1, Math.max(0, at))]);
  }

  #changeLane(sign) {
    const lane = Math.min(this.lanes.length - 1, Math.max(0, (this.mark?.lane ?? (sign > 0 ? -1 : 0)) + sign));
    const at = this.#markTime() ?? this.window.to - 1;
    this.#setMark(lane, findSpan(this.lanes[lane], at) ?? this.lanes[lane]?.spans.at(-1));
  }

  #setMark(lane, span) {
    if (!span) return;
    this.mark = { lane, span };
    if (span.end < this.window.from || span.start > this.window.to) {
      const length = this.window.to - this.window.from;
      this.#show({ from: span.start - length / 3, to: span.start + (2 * length) / 3 });
    }
    this.paint();
    const frame = this.plot.getBoundingClientRect();
    const x = frame.left + Math.min(this.#width, Math.max(0, this.#xOf(span.start)));
    this.#tell(span, this.lanes[lane], x, frame.top + AXIS + (lane + 1) * this.#row);
    announce(`${span.slot}: ${this.#titleOf(span.state)}, ${formatSpan(span.end - span.start)}, from ${formatClock(span.start)}`);
  }

  #titleOf(state) {
    return this.titles.get(state)?.title ?? state.replaceAll("_", " ");
  }

  #tell(span, lane, x, y) {
    const cost = spanCost(span, lane.rate);
    const loss = lane.losses.find((one) => Math.abs(one.at - span.start) < 1 || (one.at >= span.start && one.at < span.end));
    showTooltip(x, y, [
      h("strong", { dir: "auto" }, `${span.slot}: ${this.#titleOf(span.state)}`),
      h("div", { class: "muted" }, this.titles.get(span.state)?.meaning ?? ""),
      makePairs([
        ["lasted", formatSpan(span.end - span.start)],
        ["from", formatClock(span.start)],
        ["until", formatClock(span.end)],
        ["cost", cost ? `about ${formatMoney(cost)}` : null],
        ["loss", loss ? `${loss.verdict} in attempt ${loss.attempt}` : null],
      ]),
    ]);
  }

  dispose() {
    this.resizing.disconnect();
    this.paint.cancel();
    hideTooltip();
  }
}
