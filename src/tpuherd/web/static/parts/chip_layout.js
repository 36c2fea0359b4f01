// Places a square for every chip: chips in hosts, hosts in nodes, nodes in rows.

const HOST_GAP = 2;
const NODE_GAP = 7;
const LABEL = 15;

/**
 * @typedef {{x: number, y: number, node: any, host: number, chip: number}} Cell
 * @typedef {{x: number, y: number, width: number, height: number, node: any, cells: Cell[]}} NodeBox
 */

/** The side of a square, so that a small fleet is large and a large one fits. */
export function chooseSize(chips) {
  if (chips <= 64) return 20;
  if (chips <= 512) return 14;
  if (chips <= 4096) return 9;
  return 6;
}

/**
 * @param {any[]} nodes
 * @param {number} width
 * @param {{size: number, labels: boolean}} options
 * @returns {{boxes: NodeBox[], cells: Cell[], height: number}}
 */
export function layoutNodes(nodes, width, { size, labels }) {
  const boxes = [];
  const cells = [];
  let x = 0;
  let y = 0;
  let deepest = 0;
  for (const node of nodes) {
    const box = layoutNode(node, size, labels ? LABEL : 0);
    if (x > 0 && x + box.width > width) {
      x = 0;
      y += deepest + NODE_GAP;
      deepest = 0;
    }
    moveBox(box, x, y);
    x += box.width + NODE_GAP;
    deepest = Math.max(deepest, box.height);
    boxes.push(box);
    for (const cell of box.cells) cells.push(cell);
  }
  return { boxes, cells, height: y + deepest };
}

/** Columns that make a full rectangle, if there is one that is not too flat. */
function countColumns(hosts) {
  const square = Math.ceil(Math.sqrt(hosts));
  for (let columns = square; columns <= 2 * square; columns += 1) if (hosts % columns === 0) return columns;
  return square;
}

/** The width of all nodes side by side. */
export function measureRow(nodes, { size, labels }) {
  const widths = nodes.map((node) => layoutNode(node, size, labels ? LABEL : 0).width);
  return widths.reduce((sum, one) => sum + one + NODE_GAP, -NODE_GAP);
}

function layoutNode(node, size, top) {
  const chips = Math.max(1, node.chips_per_host || 1);
  const across = chips % 4 === 0 ? Math.max(2, chips / 4) : Math.ceil(Math.sqrt(chips));
  const down = Math.ceil(chips / across);
  const hosts = Math.max(1, node.hosts.length);
  const columns = countColumns(hosts);
  const step = size + 1;
  const hostWidth = across * step - 1 + HOST_GAP;
  const hostHeight = down * step - 1 + HOST_GAP;
  const cells = [];
  for (let host = 0; host < hosts; host += 1) {
    const left = (host % columns) * hostWidth;
    const high = Math.floor(host / columns) * hostHeight + top;
    for (let chip = 0; chip < chips; chip += 1) {
      cells.push({
        x: left + (chip % across) * step,
        y: high + Math.floor(chip / across) * step,
        node,
        host,
        chip,
      });
    }
  }
  const rows = Math.ceil(hosts / columns);
  return {
    x: 0,
    y: 0,
    width: Math.max(columns * hostWidth - HOST_GAP, top ? 22 : 0),
    height: rows * hostHeight - HOST_GAP + top,
    top,
    node,
    cells,
  };
}

function moveBox(box, x, y) {
  box.x = x;
  box.y = y;
  for (const cell of box.cells) {
    cell.x += x;
    cell.y += y;
  }
}

/** The cell at a point, or the nearest of the node there. */
export function findCell(boxes, x, y, size) {
  const box = boxes.find((one) => x >= one.x && x <= one.x + one.width && y >= one.y && y <= one.y + one.height);
  if (!box) return null;
  let best = null;
  let least = Infinity;
  for (const cell of box.cells) {
    const far = Math.abs(cell.x + size / 2 - x) + Math.abs(cell.y + size / 2 - y);
    if (far < least) [best, least] = [cell, far];
  }
  return best;
}

/** The place in `cells` that a key leads to. */
export function stepCell(cells, at, key) {
  if (key === "Home") return 0;
  if (key === "End") return cells.length - 1;
  if (key === "ArrowRight") return Math.min(cells.length - 1, at + 1);
  if (key === "ArrowLeft") return Math.max(0, at - 1);
  if (key === "PageDown") return stepNode(cells, at, 1);
  if (key === "PageUp") return stepNode(cells, at, -1);
  return stepRow(cells, at, key === "ArrowDown" ? 1 : -1);
}

function stepNode(cells, at, sign) {
  let next = at;
  while (cells[next + sign] && cells[next].node === cells[at].node) next += sign;
  return next;
}

function stepRow(cells, at, sign) {
  const from = cells[at];
  let best = at;
  let least = Infinity;
  cells.forEach((cell, place) => {
    const down = (cell.y - from.y) * sign;
    if (down <= 0) return;
    const far = down * 4 + Math.abs(cell.x - from.x);
    if (far < least) [best, least] = [place, far];
  });
  return best;
}
