// A form for any kind of weather: its fields come from the world's own table.

import { cleanText, h, replace } from "../dom.js";

const FAMILIES = [["stroke", "happens once"], ["rule", "stays in force"]];

/** `act(kind, body, words)` is called with what the user filled in: {element, update(kinds)}. */
export function createWeatherForm(act) {
  const choice = h("select", { class: "field" });
  const meaning = h("p", { class: "muted" }), fields = h("div", { class: "weather-fields" });
  const submit = h("button", { type: "submit", class: "button primary" }, "Let it happen");
  const form = h("form", { class: "weather-form" }, h("label", { class: "choice" }, "Kind ", choice), meaning, fields, submit);
  let kinds = [];
  const drawFields = () => {
    const kind = kinds.find(({ name }) => name === choice.value);
    meaning.textContent = kind ? cleanText(kind.meaning) : "";
    replace(fields, kind ? kind.arguments.map(buildField) : null);
  };
  choice.addEventListener("change", drawFields);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    act(choice.value, readFields(form), `${choice.value}: done.`);
  });
  return {
    element: form,
    update(fresh) {
      if (kinds.length === fresh.length) return;
      kinds = fresh;
      replace(choice, FAMILIES.map(([family, title]) => h("optgroup", { label: title },
        kinds.filter((kind) => kind.family === family).map(({ name }) => h("option", { value: name }, name)))));
      drawFields();
    },
  };
}

function buildField({ name, type, unit, needed, choices, meaning, default: preset }) {
  const offered = type === "flag" ? ["true", "false"] : choices;
  const input = offered.length
    ? h("select", { class: "field", name }, needed ? null : h("option", { value: "" }, preset === null ? "" : `${preset} (default)`),
      offered.map((one) => h("option", { value: one }, one)))
    : h("input", { class: "field", name, required: needed, autocomplete: "off", spellcheck: "false",
      placeholder: preset === null ? hintOf(type) : String(preset) });
  const said = `${meaning}${unit && type !== "duration" ? ` (${unit})` : ""}`;
  return h("label", { class: "weather-field" }, h("span", { class: "field-name" }, name, needed ? h("b", {}, " (needed)") : null),
    input, h("small", {}, cleanText(said)));
}

function hintOf(type) {
  return type === "duration" ? "90s, 10m, 2h" : "";
}

/** What was filled in; the world parses texts as its command line does. */
function readFields(form) {
  return Object.fromEntries([...new FormData(form)].filter(([, value]) => value !== ""));
}
