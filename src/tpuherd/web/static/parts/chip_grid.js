// The chips of one job as squares, as one would see them in a machine room.

import { announce, createPainter, h } from "../dom.js";
import { formatAgo, formatBytes, formatPercent, countOf } from "../format.js";
import { findCell, layoutNodes, stepCell } from "./chip_layout.js";
import { paintFocus, paintNode } from "./chip_paint.js";
import { nodeState } from "./states.js";
import { hideTooltip, makePairs, showTooltip } from "./tooltip.js";

const MOST_PIXELS = 12_000_000; // what a phone's canvas can hold
const MARGIN = 2;
const KEYS = ["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown", "Home", "End", "PageUp", "PageDown"];

/** A canvas with a square for every chip of the nodes it is given. */
export class ChipGrid {
  nodes = [];
  boxes = [];
  cells = [];
  look = { size: 14, labels: false, mode: "state", palette: null };
  focus = -1;
  width = 0;
  height = 0;
  #touched = new Set();
  #whole = true;
  #seen = false;

  /** @param {{name: string, now: () => number, slotOf: (node: any) => any, onOpen: (node: any) => void}} options */
  constructor(options) {
    this.options = options;
    this.canvas = h("canvas", { class: "chips", tabindex: "0", role: "application" });
    this.element = h("div", { class: "chips-frame" }, this.canvas);
    this.paint = createPainter(() => this.#draw());
    this.#listen();
    this.seeing = new IntersectionObserver(
      ([entry]) => {
        this.#seen = entry.isIntersecting;
        if (this.#seen) this.paint();
      },
      { rootMargin: "300px" },
    );
    this.seeing.observe(this.element);
  }

  setNodes(nodes) {
    this.nodes = nodes;
    const chips = nodes.reduce((sum, node) => sum + countChips(node), 0);
    const keys = "Arrow keys go from chip to chip, Enter opens the job.";
    this.canvas.setAttribute("aria-label", `${countOf(chips, "chip")} of ${this.options.name}. ${keys}`);
    this.#arrange();
  }

  /** @param {{mode?: string, palette?: any, size?: number, labels?: boolean}} look */
  setLook(look) {
    const before = this.look;
    this.look = { ...before, ...look };
    if (this.look.size !== before.size || this.look.labels !== before.labels) this.#arrange();
    else this.#repaint();
  }

  /** Draw some nodes again; their rows may be new objects. @param {Map<string, any>} fresh */
  renew(fresh) {
    for (const box of this.boxes) {
      const node = fresh.get(box.node.node);
      if (!node) continue;
      box.node = node;
      for (const cell of box.cells) cell.node = node;
      this.#touched.add(node.node);
    }
    this.paint();
  }

  /** Arrange anew if the width has changed. */
  fit() {
    if (this.#room() !== this.width) this.#arrange();
  }

  dispose() {
    this.seeing.disconnect();
    this.paint.cancel();
    hideTooltip();
  }

  #room() {
    return Math.max(120, Math.floor(this.element.clientWidth) - 2 * MARGIN);
  }

  #arrange() {
    this.width = this.#room();
    const { boxes, cells, height } = layoutNodes(this.nodes, this.width, this.look);
    this.boxes = boxes;
    this.cells = cells;
    this.height = height + 2 * MARGIN;
    this.canvas.style.height = `${this.height}px`;
    this.canvas.style.width = `${this.width + 2 * MARGIN}px`;
    if (this.focus >= cells.length) this.focus = cells.length - 1;
    this.#repaint();
  }

  #repaint() {
    this.#whole = true;
    this.paint();
  }

  #draw() {
    const { look, canvas } = this;
    if (!this.#seen || !look.palette) return;
    if (this.#whole) fitCanvas(canvas, this.width, this.height);
    const context = canvas.getContext("2d");
    for (const box of this.boxes) {
      if (this.#whole || this.#touched.has(box.node.node)) paintNode(context, box, look, this.options.slotOf(box.node));
    }
    const cell = this.cells[this.focus];
    if (cell && document.activeElement === canvas) paintFocus(context, cell, look.size, look.palette);
    this.#whole = false;
    this.#touched.clear();
  }

  #listen() {
    const { canvas } = this;
    canvas.addEventListener("pointermove", (event) => this.#point(event));
    canvas.addEventListener("pointerleave", hideTooltip);
    canvas.addEventListener("click", (event) => {
      const cell = this.#cellAt(event);
      if (cell) this.options.onOpen(cell.node);
    });
    canvas.addEventListener("focus", () => {
      if (canvas.matches(":focus-visible")) this.#moveTo(Math.max(0, this.focus));
    });
    canvas.addEventListener("blur", () => {
      hideTooltip();
      this.#repaint();
    });
    canvas.addEventListener("keydown", (event) => this.#press(event));
  }

  #cellAt(event) {
    return findCell(this.boxes, event.offsetX - MARGIN, event.offsetY - MARGIN, this.look.size);
  }

  #point(event) {
    const cell = this.#cellAt(event);
    this.canvas.style.cursor = cell ? "pointer" : "";
    if (cell) this.#tell(cell, event.clientX, event.clientY);
    else hideTooltip();
  }

  #press(event) {
    if (event.key === "Enter" && this.cells[this.focus]) this.options.onOpen(this.cells[this.focus].node);
    if (!KEYS.includes(event.key) || event.shiftKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    this.#moveTo(stepCell(this.cells, Math.max(0, this.focus), event.key));
  }

  #moveTo(place) {
    const before = this.cells[this.focus];
    const cell = this.cells[place];
    if (!cell) return;
    this.focus = place;
    if (before) this.#touched.add(before.node.node);
    this.#touched.add(cell.node.node);
    this.paint();
    const frame = this.canvas.getBoundingClientRect();
    const beside = this.look.size + MARGIN;
    this.#tell(cell, frame.left + cell.x + beside, frame.top + cell.y + beside);
    announce(chipSentence(cell, this.options.slotOf(cell.node)));
  }

  #tell(cell, x, y) {
    showTooltip(x, y, describeChip(cell, this.options.slotOf(cell.node), this.options.now()));
  }
}

export function countChips(node) {
  return node.hosts.length * (node.chips_per_host || 0);
}

function fitCanvas(canvas, width, height) {
  const ratio = Math.min(devicePixelRatio || 1, Math.sqrt(MOST_PIXELS / (width * height)));
  canvas.width = Math.ceil((width + 2 * MARGIN) * ratio);
  canvas.height = Math.ceil(height * ratio);
  canvas.getContext("2d").setTransform(ratio, 0, 0, ratio, MARGIN * ratio, MARGIN * ratio);
}

function describeChip({ node, host, chip }, slot, now) {
  const row = node.hosts[host] ?? {};
  return [
    h("strong", { dir: "auto" }, `${node.slot || node.node} · w${row.worker ?? host} · chip ${chip}`),
    makePairs([
      ["state", nodeState(node, slot).word],
      ["duty", formatPercent(row.duty?.[chip])],
      ["HBM", hbmText(row, chip)],
      ["step", slot?.step === null || slot?.step === undefined ? null : String(slot.step)],
      ["node", node.node],
      ["zone", `${node.zone} · ${node.type}${node.tier ? ` · ${node.tier}` : ""}`],
      ["last sign", row.at ? formatAgo(row.at, now) : "none yet"],
      ["note", row.why || null],
    ]),
  ];
}

function hbmText(row, chip) {
  const used = row.hbm_used?.[chip];
  return Number.isFinite(used) ? `${formatBytes(used)} of ${formatBytes(row.hbm_total?.[chip])}` : null;
}

function chipSentence({ node, host, chip }, slot) {
  const row = node.hosts[host] ?? {};
  const duty = Number.isFinite(row.duty?.[chip]) ? `, duty ${formatPercent(row.duty[chip])}` : "";
  return `${node.slot || node.node}, host ${row.worker ?? host}, chip ${chip}: ${nodeState(node, slot).word}${duty}`;
}
