// The addresses of the pages, which stand behind the # of the address line.

export const PAGES = ["overview", "job", "sweep", "capacity", "cost", "quota", "world"];

/** @param {string} hash @returns {{page: string, name: string, query: URLSearchParams}} */
export function readRoute(hash) {
  const [path, query = ""] = hash.replace(/^#?\/?/, "").split("?", 2);
  const [first, second = ""] = path.split("/", 2);
  const route = { name: decodeName(second), query: new URLSearchParams(query) };
  if (first === "jobs" && second) return { page: "job", ...route };
  if (first === "sweeps" && second) return { page: "sweep", ...route };
  if (first === "" || first === "jobs" || first === "sweeps") return { page: "overview", ...route };
  return { page: PAGES.includes(first) ? first : "missing", ...route };
}

function decodeName(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

export function jobHref(name) {
  return `#/jobs/${encodeURIComponent(name)}`;
}

export function sweepHref(name) {
  return `#/sweeps/${encodeURIComponent(name)}`;
}

/** @param {string} page capacity, cost, quota, world; "" is the fleet */
export function pageHref(page) {
  return `#/${page}`;
}
