// Reads server-sent events, and connects again whenever the connection ends.

const FIRST_S = 0.5;
const MOST_S = 15;
const SILENCE_MS = 45_000; // the server sends a comment every 15 s
const HIDDEN_MS = 60_000; // a hidden tab gives its connection back: browsers allow six a server
const ENDED = 401;

/**
 * @param {(after: string) => string | Promise<string>} makePath of the id of the last event read
 * @param {Record<string, (data: any) => void>} handlers by name of the event
 * @param {(status: "live" | "reconnecting" | "ended", error?: unknown) => void} onStatus
 * @param {() => boolean} [isStopped]
 * @returns {(() => void) & {restart: () => void}} closes the stream
 */
export function openEventStream(makePath, handlers, onStatus, isStopped = () => false) {
  const stream = { after: "", wait: FIRST_S, closed: false, hurried: false, hidden: false, controller: null, wake: null };
  const restart = () => {
    stream.wait = FIRST_S;
    stream.hurried = true;
    stream.controller?.abort();
    stream.wake?.();
  };
  const unwatch = watchTab(stream, restart);
  followForever(stream, { makePath, handlers, onStatus, isStopped });
  const close = () => {
    stream.closed = true;
    unwatch();
    restart();
  };
  close.restart = restart;
  return close;
}

async function followForever(stream, options) {
  while (!stream.closed && !options.isStopped()) {
    let problem = null;
    try {
      await followOnce(stream, options);
    } catch (error) {
      problem = error;
      if (error.status === ENDED) {
        stream.closed = true;
        options.onStatus("ended", error);
        return;
      }
    }
    if (stream.closed) return;
    options.onStatus("reconnecting", problem);
    if (stream.hidden) await waitFor(stream, null);
    else if (!stream.hurried) await waitFor(stream, stream.wait * (0.75 + Math.random() / 2));
    stream.hurried = false;
    stream.wait = Math.min(MOST_S, stream.wait * 2);
  }
}

async function followOnce(stream, { makePath, handlers, onStatus }) {
  stream.controller = new AbortController();
  const signal = stream.controller.signal;
  const path = await makePath(stream.after);
  const answer = await fetch(path, { signal, credentials: "same-origin", cache: "no-store" });
  if (!answer.ok) throw Object.assign(new Error(`status ${answer.status}`), { status: answer.status });
  onStatus("live");
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  const parser = createParser((name, data, id) => {
    if (id) stream.after = id;
    handlers[name]?.(data);
  });
  let watchdog = 0;
  try {
    for (;;) {
      clearTimeout(watchdog);
      watchdog = setTimeout(() => stream.controller.abort(), SILENCE_MS);
      const { done, value } = await reader.read();
      if (done) return;
      stream.wait = FIRST_S;
      parser(value);
    }
  } finally {
    clearTimeout(watchdog);
  }
}

/** @param {(name: string, data: any, id: string) => void} onEvent */
export function createParser(onEvent) {
  let rest = "";
  let event = { name: "message", data: [], id: "" };
  const endEvent = () => {
    const { name, data, id } = event;
    event = { name: "message", data: [], id: "" };
    if (data.length) onEvent(name, readData(data.join("\n")), id);
  };
  const readLine = (line) => {
    if (line === "") return endEvent();
    const [, field, value] = /^([^:]*):? ?(.*)$/s.exec(line);
    if (field === "event") event.name = value;
    else if (field === "data") event.data.push(value);
    else if (field === "id") event.id = value;
  };
  return (text) => {
    const lines = (rest + text).split(/\r\n|\n|\r(?!$)/);
    rest = lines.pop();
    lines.forEach(readLine);
  };
}

function readData(text) {
  try {
    return JSON.parse(text);
  } catch {
    return {};
  }
}

function waitFor(stream, seconds) {
  return new Promise((resolve) => {
    const timer = seconds === null ? 0 : setTimeout(resolve, seconds * 1000);
    stream.wake = () => {
      clearTimeout(timer);
      resolve();
    };
  }).finally(() => {
    stream.wake = null;
  });
}

/** Connect again at once when the tab is shown, the machine woke up or the network is back. */
function watchTab(stream, restart) {
  let hide = 0;
  let beat = Date.now();
  const onVisibility = () => {
    clearTimeout(hide);
    if (document.hidden) {
      hide = setTimeout(() => {
        stream.hidden = true;
        stream.controller?.abort();
      }, HIDDEN_MS);
    } else if (stream.hidden) {
      stream.hidden = false;
      restart();
    }
  };
  const onBeat = () => {
    const slept = Date.now() - beat > 20_000;
    beat = Date.now();
    if (slept && !stream.hidden) restart();
  };
  const timer = setInterval(onBeat, 5_000);
  document.addEventListener("visibilitychange", onVisibility);
  window.addEventListener("online", restart);
  return () => {
    clearTimeout(hide);
    clearInterval(timer);
    document.removeEventListener("visibilitychange", onVisibility);
    window.removeEventListener("online", restart);
  };
}
