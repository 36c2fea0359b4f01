// Paints the squares of chips on a canvas: a colour and a shape each.

import { readColour } from "../dom.js";
import { nodeState, stateShape, stateVariable, STATES } from "./states.js";

/** The ways to colour the chips. */
export const MODES = [
  { key: "state", title: "State" },
  { key: "duty", title: "Duty" },
  { key: "hbm", title: "HBM" },
];
export const HEAT_STEPS = 6;

/** @returns all colours under the current theme */
export function readPalette() {
  const palette = { surface: readColour("--surface"), text: readColour("--muted"), line: readColour("--line-strong"), focus: readColour("--focus") };
  for (const state of STATES) palette[state] = readColour(stateVariable(state));
  for (let step = 0; step < HEAT_STEPS; step += 1) palette[`heat-${step}`] = readColour(`--heat-${step}`);
  return palette;
}

/** How full a chip is, from 0 to 1, or null if nobody knows. */
export function chipLevel(node, host, chip, mode) {
  const row = node.hosts[host];
  if (!row) return null;
  const value = mode === "duty" ? (row.duty?.[chip] ?? null) : row.hbm_used?.[chip] ?? null;
  const most = mode === "duty" ? 100 : row.hbm_total?.[chip];
  if (!Number.isFinite(value) || !Number.isFinite(most) || most <= 0) return null;
  return Math.min(1, Math.max(0, value / most));
}

function chipLook(cell, mode, slot) {
  if (mode === "state") {
    const { state } = nodeState(cell.node, slot);
    return [STATES.includes(state) ? state : "controller_gap", stateShape(state)];
  }
  const level = chipLevel(cell.node, cell.host, cell.chip, mode);
  if (level === null) return ["line", "hollow"];
  return [`heat-${Math.min(HEAT_STEPS - 1, Math.floor(level * HEAT_STEPS))}`, "full"];
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {import("./chip_layout.js").NodeBox} box
 * @param {{size: number, mode: string, palette: any}} look
 * @param {any} slot the slot of the node
 */
export function paintNode(context, box, { size, mode, palette }, slot) {
  context.clearRect(box.x - 2, box.y - 2, box.width + 4, box.height + 4);
  if (box.top) paintLabel(context, box, palette);
  for (const cell of box.cells) {
    const [colour, shape] = chipLook(cell, mode, slot);
    paintChip(context, cell.x, cell.y, size, palette[colour], shape, palette);
  }
}

function paintLabel(context, box, palette) {
  const name = box.node.slot || box.node.node;
  const number = /-(\d+)$/.exec(name)?.[1] ?? name;
  context.fillStyle = palette.text;
  context.font = "11px system-ui, sans-serif";
  context.textBaseline = "top";
  context.fillText(number, box.x, box.y + 1, box.width);
}

/** One square; also used for legends. */
export function paintChip(context, x, y, size, colour, shape, palette) {
  context.fillStyle = colour;
  context.strokeStyle = colour;
  context.lineWidth = size > 8 ? 1.5 : 1;
  const edge = context.lineWidth / 2;
  if (shape === "full" || shape === "stripe" || shape === "cross") {
    context.fillRect(x, y, size, size);
    if (shape !== "full") paintMark(context, x, y, size, shape, palette);
    return;
  }
  context.strokeRect(x + edge, y + edge, size - 2 * edge, size - 2 * edge);
  if (shape === "half") context.fillRect(x, y + size / 2, size, size / 2);
  if (shape === "dot") context.fillRect(x + size * 0.3, y + size * 0.3, size * 0.4, size * 0.4);
}

function paintMark(context, x, y, size, shape, palette) {
  const inset = size * 0.22;
  context.strokeStyle = palette.surface;
  context.beginPath();
  context.moveTo(x + inset, y + size - inset);
  context.lineTo(x + size - inset, y + inset);
  if (shape === "cross") {
    context.moveTo(x + inset, y + inset);
    context.lineTo(x + size - inset, y + size - inset);
  }
  context.stroke();
}

/** A frame around the chip that the keys are at. */
export function paintFocus(context, cell, size, palette) {
  context.strokeStyle = palette.focus;
  context.lineWidth = 2;
  context.strokeRect(cell.x - 1, cell.y - 1, size + 2, size + 2);
}
