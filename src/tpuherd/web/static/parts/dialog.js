// Dialogs: a question before something is changed, and windows with text.

import { h } from "../dom.js";
import { markCode } from "./notice.js";

let count = 0;

/** Open a dialog; the focus returns to where it was. @returns {HTMLDialogElement} */
export function openDialog(title, content, buttons) {
  count += 1;
  const heading = h("h2", { id: `dialog-${count}`, dir: "auto" }, title);
  const before = document.activeElement;
  const dialog = h(
    "dialog",
    { class: "dialog", "aria-labelledby": heading.id },
    heading,
    h("div", { class: "dialog-body" }, content),
    h("div", { class: "dialog-buttons" }, buttons),
  );
  dialog.addEventListener("close", () => {
    dialog.remove();
    if (before?.isConnected) before.focus();
  });
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog) dialog.close("");
  });
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
}

/**
 * Ask before something is changed.
 * @param {{title: string, lines: (string | Node)[], confirm: string, danger?: boolean}} question
 * @returns {Promise<boolean>}
 */
export function askConfirmation({ title, lines, confirm, danger = false }) {
  return new Promise((resolve) => {
    const cancel = h("button", { class: "button", type: "button", onclick: () => dialog.close("") }, "Cancel");
    const style = `button ${danger ? "danger" : "primary"}`;
    const accept = h("button", { class: style, type: "button", onclick: () => dialog.close("yes") }, confirm);
    const content = lines.map((line) =>
      line instanceof Node ? line : h("p", { dir: "auto" }, markCode(line)),
    );
    const dialog = openDialog(title, content, [cancel, accept]);
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"));
    (danger ? cancel : (dialog.querySelector("input") ?? accept)).focus();
    dialog.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || !event.target.matches("input")) return;
      event.preventDefault(); // else the key presses the button that gets the focus back
      dialog.close("yes");
    });
  });
}

/** Show text with a button to close it. */
export function showText(title, content) {
  const close = h("button", { class: "button primary", type: "button", onclick: () => dialog.close() }, "Close");
  const dialog = openDialog(title, content, [close]);
  close.focus();
  return dialog;
}
