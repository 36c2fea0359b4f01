// Log lines as rows: equal lines of several hosts are one row.

import { cleanText } from "../dom.js";
import { foldNames } from "../format.js";

const NEAR_ROWS = 400; // how far back an equal line is looked for
const LABEL_MOST = 18; // characters of the hosts' column
const NEAR_S = 30;

/**
 * @typedef {{id: string, at: number, slot: string, worker: number, stream: string, text: string}} Line
 * @typedef {{key: number, at: number, stream: string, text: string, hosts: Set<string>, element?: HTMLElement}} Row
 */

let keys = 0;

/** @param {Line} line @returns {Row} */
function makeRow(line) {
  keys += 1;
  return { key: keys, at: line.at, stream: line.stream, text: cleanText(lastPart(line.text)), hosts: new Set([hostName(line)]) };
}

/** What a progress bar shows last: each part of the line wrote over the one before. */
function lastPart(text) {
  return text.replace(/\r+$/, "").split("\r").at(-1);
}

export function hostName(line) {
  return `${line.slot}/w${line.worker}`;
}

/**
 * Add lines to rows. A line joins the row with the same text of another host nearby.
 * @param {Row[]} rows changed in place
 * @param {Line[]} lines
 * @returns {{added: Row[], joined: Set<Row>}}
 */
export function foldLines(rows, lines, recent = new Map()) {
  const added = [];
  const joined = new Set();
  for (const line of lines) {
    const text = cleanText(lastPart(line.text));
    const key = `${line.stream}\n${text}`;
    const host = hostName(line);
    const known = recent.get(key);
    if (known && !known.row.hosts.has(host) && rows.length - known.place < NEAR_ROWS && Math.abs(line.at - known.row.at) < NEAR_S) {
      known.row.hosts.add(host);
      joined.add(known.row);
      continue;
    }
    const row = makeRow(line);
    recent.set(key, { row, place: rows.length });
    rows.push(row);
    added.push(row);
  }
  if (recent.size > 4 * NEAR_ROWS) dropOld(recent, rows.length);
  return { added, joined };
}

function dropOld(recent, length) {
  for (const [key, { place }] of recent) if (length - place > NEAR_ROWS) recent.delete(key);
}

/** gpt-0/w[0-3], or the number of hosts where that is long. @param {Set<string>} hosts */
export function hostLabel(hosts, many) {
  if (hosts.size > 1 && hosts.size === many) return `all ${many} hosts`;
  const text = foldHosts(hosts);
  if (text.length <= LABEL_MOST) return text;
  return hosts.size > 1 ? `${hosts.size} hosts` : `…${text.slice(1 - LABEL_MOST)}`;
}

/** gpt-[0-2]/w[0-3], where the slots have the same workers. @param {Iterable<string>} hosts */
export function foldHosts(hosts) {
  const workers = new Map();
  for (const host of hosts) {
    const cut = host.lastIndexOf("/");
    const slot = host.slice(0, cut);
    (workers.get(slot) ?? workers.set(slot, []).get(slot)).push(host.slice(cut + 1));
  }
  const slots = new Map();
  for (const [slot, names] of workers) {
    const folded = foldNames(names.sort());
    (slots.get(folded) ?? slots.set(folded, []).get(folded)).push(slot);
  }
  return [...slots].map(([folded, names]) => `${foldNames(names)}/${folded}`).join(", ");
}

/** A test for the words or the /expression/ of a filter. @returns {{test: (row: Row) => boolean, find: RegExp | null, error: string}} */
export function readFilter(text) {
  const wanted = text.trim();
  if (!wanted) return { test: () => true, find: null, error: "" };
  const expression = /^\/(.+)\/$/.exec(wanted);
  try {
    const find = expression ? new RegExp(expression[1], "gi") : new RegExp(escapeWords(wanted), "gi");
    const words = wanted.toLowerCase().split(/\s+/);
    const hasAll = (row) => {
      const all = `${[...row.hosts].join(" ")} ${row.text}`.toLowerCase();
      return words.every((word) => all.includes(word));
    };
    const matches = (row) => row.text.search(find) >= 0;
    return { test: expression ? matches : hasAll, find, error: "" };
  } catch {
    return { test: () => true, find: null, error: "That is no regular expression." };
  }
}

function escapeWords(text) {
  return text.split(/\s+/).map((word) => word.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")).join("|");
}
