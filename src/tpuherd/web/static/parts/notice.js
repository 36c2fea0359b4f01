// Boxes that say what is wrong, or that there is nothing to see.

import { h } from "../dom.js";

const WORDS = { info: "Note", good: "Done", warn: "Attention", bad: "Problem" };

/** @param {"info" | "good" | "warn" | "bad"} kind @param {string} title @param {string} [text] */
export function makeNotice(kind, title, text = "", ...more) {
  return h(
    "div",
    { class: `notice ${kind}`, role: kind === "bad" ? "alert" : "note" },
    h("span", { class: "visually-hidden" }, `${WORDS[kind]}: `),
    h("strong", { dir: "auto" }, title),
    text && h("p", { dir: "auto" }, markCode(text)),
    more,
  );
}

/** Text whose parts in backquotes are code. */
export function markCode(text) {
  return String(text)
    .split("`")
    .map((part, at) => (at % 2 ? h("code", null, part) : part));
}

/** @param {{message: string, hint?: string}} error @param {() => void} [retry] */
export function makeErrorNotice(error, retry) {
  const button = retry && h("button", { class: "button", type: "button", onclick: retry }, "Try again");
  return makeNotice("bad", error.message ?? String(error), error.hint ?? "", button);
}

export function makeEmpty(title, text = "") {
  return h("div", { class: "empty" }, h("p", null, h("strong", null, title)), text && h("p", null, markCode(text)));
}
