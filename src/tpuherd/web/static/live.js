// Keeps the state of the fleet current by server-sent events.

import { openEventStream } from "./stream.js";

/** What the server said against a request. */
export class ApiError extends Error {
  constructor(message, hint, status) {
    super(message);
    this.hint = hint;
    this.status = status;
  }
}

const ENDED = 401;

/** @returns the live state, its requests and its streams; see the functions within */
export function createLive() {
  const handlers = new Map();
  const live = {
    state: emptyState(),
    status: "starting",
    error: null,
    retryAt: 0,
    now: () => Date.now() / 1000 + live.offset,
    offset: 0,
    on: (kind, handler) => addHandler(handlers, kind, handler),
    getJson: (path, signal) => requestJson(live, path, { signal }),
    post: (path, body) => requestJson(live, path, postOptions(body)),
    openStream: (makePath, wanted, onStatus) => openEventStream(makePath, wanted, onStatus ?? (() => {})),
    start: () => startLive(live),
    emit: (kind, payload) => emit(handlers, kind, payload),
  };
  return live;
}

function emptyState() {
  return { jobs: new Map(), nodes: new Map(), problems: [], engine: null, cost: null, loaded: false };
}

function addHandler(handlers, kind, handler) {
  const all = handlers.get(kind) ?? handlers.set(kind, new Set()).get(kind);
  all.add(handler);
  return () => all.delete(handler);
}

function emit(handlers, kind, payload) {
  for (const handler of [...(handlers.get(kind) ?? [])]) {
    try {
      handler(payload);
    } catch (error) {
      console.error(error);
    }
  }
}

function postOptions(body) {
  return {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body ?? {}),
  };
}

async function requestJson(live, path, options) {
  const answer = await fetchAnswer(path, options);
  if (answer.status === ENDED) setStatus(live, "ended");
  let content = null;
  try {
    content = await answer.json();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    if (answer.ok) throw new ApiError("The server's answer could not be read.", "Reload the page.", answer.status);
  }
  if (answer.ok) return content;
  const sentence = content?.error ?? `The server answered with status ${answer.status}.`;
  throw new ApiError(sentence, content?.hint ?? "", answer.status);
}

async function fetchAnswer(path, options) {
  try {
    return await fetch(path, { credentials: "same-origin", cache: "no-store", ...options });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError("The server does not answer.", "Is `herd ui` still running?", 0);
  }
}

function setStatus(live, status) {
  if (live.status === status) return;
  if (live.status === "ended" && status !== "live") return;
  live.status = status;
  live.emit("status", status);
}

function startLive(live) {
  const isStopped = () => live.status === "ended";
  const load = async () => {
    applyOverview(live, await live.getJson("/api/overview"));
  };
  const stream = openEventStream(
    async () => {
      if (!live.state.loaded) await load();
      // The state has a number; the stream goes on behind it.
      return `/api/stream?after=${encodeURIComponent(live.state.seq)}`;
    },
    {
      changes: (data) => applyChanges(live, data),
      events: (data) => applyEvents(live, data),
      samples: (data) => applySamples(live, data),
      reset: () => {
        live.state.loaded = false;
        stream.restart();
      },
    },
    (status, error) => {
      live.error = error;
      setStatus(live, status);
    },
    isStopped,
  );
  return stream;
}

function byName(rows, key) {
  return new Map((rows ?? []).map((row) => [row[key], row]));
}

function setClock(live, now) {
  if (typeof now === "number" && Number.isFinite(now)) live.offset = now - Date.now() / 1000;
}

function applyOverview(live, answer) {
  setClock(live, answer.now);
  const jobs = byName(answer.jobs, "job");
  const nodes = byName(answer.nodes, "node");
  live.state = { ...answer, jobs, nodes, problems: answer.problems ?? [], loaded: true };
  live.emit("reset", null);
  live.emit("changes", { jobs: new Set(jobs.keys()), nodes: new Set(nodes.keys()), all: true });
}

function applyChanges(live, data) {
  const state = live.state;
  setClock(live, data.now);
  const merged = (data.jobs ?? []).map((job) => mergeSlots(state.jobs.get(job.job), job));
  const jobs = patchRows(state.jobs, merged, data.removed_jobs, "job");
  const nodes = patchRows(state.nodes, data.nodes, data.removed_nodes, "node");
  for (const key of ["seq", "cost", "engine", "problems"]) if (data[key] !== undefined) state[key] = data[key];
  live.emit("changes", { jobs, nodes, all: false });
}

/** A change of a job brings only the slots that changed. */
function mergeSlots(before, job) {
  if (!before) return job;
  const slots = byName(before.slot_rows, "slot");
  for (const row of job.slot_rows ?? []) slots.set(row.slot, row);
  for (const name of job.removed_slots ?? []) slots.delete(name);
  const rows = [...slots.values()];
  if (slots.size !== before.slot_rows.length) rows.sort((one, other) => slotNumber(one) - slotNumber(other));
  return { ...job, slot_rows: rows };
}

function slotNumber(row) {
  return Number(row.slot.slice(row.slot.lastIndexOf("-") + 1)) || 0;
}

function patchRows(known, rows, removed, key) {
  const touched = new Set();
  for (const row of rows ?? []) {
    known.set(row[key], row);
    touched.add(row[key]);
  }
  for (const name of removed ?? []) if (known.delete(name)) touched.add(name);
  return touched;
}

function applyEvents(live, data) {
  if (Array.isArray(data)) live.emit("events", data);
}

function applySamples(live, data) {
  setClock(live, data.now);
  const touched = new Set();
  for (const [name, host] of Object.entries(data.hosts ?? {})) {
    const node = live.state.nodes.get(name.slice(0, name.lastIndexOf("/")));
    const at = node ? node.hosts.findIndex((one) => one.worker === host.worker) : -1;
    if (at < 0) continue;
    node.hosts[at] = host;
    touched.add(node.node);
  }
  live.emit("samples", touched);
}
