// The button that changes between the system's, light and dark colours.

import { announce } from "../dom.js";

const ORDER = ["system", "light", "dark"];
const SIGNS = { system: "◐", light: "☀", dark: "☾" };
const TITLES = { system: "as the system", light: "light", dark: "dark" };

function tellTheme() {
  document.dispatchEvent(new CustomEvent("herd-theme"));
}

function applyTheme(button, theme) {
  if (theme === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  button.textContent = `${SIGNS[theme]}\ufe0e`;
  button.setAttribute("aria-label", `Colours: ${TITLES[theme]}`);
  button.title = `Colours: ${TITLES[theme]}`;
}

function keepTheme(theme) {
  try {
    localStorage.setItem("herd-theme", theme);
  } catch {
    // Storage may be forbidden: the choice holds until the page is closed.
  }
}

/** @param {HTMLElement} button */
export function startThemeButton(button) {
  let theme = document.documentElement.dataset.theme ?? "system";
  applyTheme(button, theme);
  button.addEventListener("click", () => {
    theme = ORDER[(ORDER.indexOf(theme) + 1) % ORDER.length];
    applyTheme(button, theme);
    keepTheme(theme);
    announce(`Colours: ${TITLES[theme]}`);
    tellTheme();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", tellTheme);
}
