// Starts the page: connects, shows the page of the address, and handles the keys of all pages.

import { announce, h, replace, setText } from "./dom.js";
import { createLive } from "./live.js";
import { startAgos } from "./parts/ago.js";
import { showKeyHelp } from "./parts/key_help.js";
import { makeErrorNotice, makeNotice } from "./parts/notice.js";
import { pageHref, readRoute } from "./routes.js";
import { startThemeButton } from "./parts/theme_button.js";

const LINKS = [
  ["", "Fleet"],
  ["capacity", "Capacity"],
  ["cost", "Cost"],
  ["quota", "Quota"],
  ["world", "World"],
];
const STATUS = {
  starting: "connecting",
  live: "live",
  reconnecting: "reconnecting",
  ended: "signed out",
};

const live = createLive();
const main = document.getElementById("main");
let shown = { dispose: null, number: 0, hash: null };

async function showRoute() {
  const route = readRoute(location.hash);
  const number = shown.number + 1;
  shown.dispose?.();
  shown = { dispose: null, number, hash: location.hash };
  markNav(route.page);
  const container = h("div", { class: `page page-${route.page}` });
  try {
    if (route.page === "missing") throw new Error("There is no such page.");
    const { default: page } = await import(`./pages/${route.page}.js`);
    if (shown.number !== number) return;
    const title = typeof page.title === "function" ? page.title(route) : page.title;
    document.title = `${title} · tpuherd`;
    replace(main, container);
    shown.dispose = page.show(container, route, live);
  } catch (error) {
    if (shown.number !== number) return;
    replace(main, h("div", { class: "page" }, h("h1", null, "Not found"), makeErrorNotice(error)));
  }
  window.scrollTo(0, 0);
}

function markNav(page) {
  const current = page === "overview" || page === "job" || page === "sweep" ? "" : page;
  const links = LINKS.filter(([name]) => name !== "world" || live.state.world);
  replace(
    document.getElementById("nav"),
    links.map(([name, text]) =>
      h("a", { href: pageHref(name), "aria-current": name === current ? "page" : null }, text),
    ),
  );
}

function showStatus() {
  const place = document.getElementById("link-status");
  const { status } = live;
  if (place.dataset.status === status) return;
  place.dataset.status = status;
  setText(document.getElementById("link-text"), STATUS[status]);
  if (status === "reconnecting") announce("The connection is lost; connecting again.");
  showLinkNotice(status);
}

function showLinkNotice(status) {
  const place = document.getElementById("link-notice");
  if (status === "ended") {
    const text = "The address of this page is out of date. Run `herd ui` again and open the address that it prints.";
    replace(place, makeNotice("warn", "This page is no longer live.", text));
  } else if (status === "live" || !live.state.loaded) {
    replace(place);
  }
}

let lostTimer = 0;

/** A short gap is nothing to tell; a longer one is. */
function watchLoss(status) {
  clearTimeout(lostTimer);
  if (status !== "reconnecting") return;
  lostTimer = setTimeout(() => {
    if (live.status !== "reconnecting") return;
    const text = "What you see is as of then. It goes on by itself once `herd ui` answers again.";
    replace(
      document.getElementById("link-notice"),
      makeNotice("warn", "The connection to herd is lost.", text),
    );
  }, 3000);
}

function showContext() {
  const { context, project, world } = live.state;
  const text = [world ? "world" : project, context].filter(Boolean).join(" · ");
  setText(document.getElementById("project"), text);
  markNav(readRoute(location.hash).page);
}

function isTyping(target) {
  return target instanceof Element && target.closest("input, select, textarea, [contenteditable]");
}

function handleKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  if (isTyping(event.target)) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  if (event.key === "/") {
    const filter = main.querySelector("[data-filter]");
    if (!filter) return;
    event.preventDefault();
    filter.focus();
    filter.select?.();
  } else if (event.key === "?") {
    showKeyHelp();
  } else if (event.key === "g") {
    location.hash = "#/";
  }
}

function start() {
  live.on("status", (status) => {
    showStatus();
    watchLoss(status);
  });
  live.on("reset", showContext);
  document.addEventListener("keydown", handleKey);
  document.getElementById("help").addEventListener("click", showKeyHelp);
  document.getElementById("skip").addEventListener("click", (event) => {
    event.preventDefault();
    main.focus();
  });
  startThemeButton(document.getElementById("theme"));
  window.addEventListener("hashchange", () => {
    if (location.hash === shown.hash) return;
    showRoute().then(() => main.focus({ preventScroll: true }));
  });
  startAgos(live);
  live.start();
  showRoute();
}

start();
