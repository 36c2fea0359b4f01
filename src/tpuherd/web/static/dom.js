// Builds and changes elements. Whatever comes from outside becomes text, never markup.

const SVG = "http://www.w3.org/2000/svg";

/**
 * @typedef {string | number | Node | null | undefined | false | Child[]} Child
 * @typedef {Record<string, any>} Props
 */

/** An HTML element. @param {string} tag @param {Props | null} [props] @param {...Child} children */
export function h(tag, props, ...children) {
  return fillElement(document.createElement(tag), props, children);
}

/** An SVG element. @param {string} tag @param {Props | null} [props] @param {...Child} children */
export function svg(tag, props, ...children) {
  return fillElement(document.createElementNS(SVG, tag), props, children);
}

function fillElement(element, props, children) {
  for (const [name, value] of Object.entries(props ?? {})) setProp(element, name, value);
  appendChildren(element, children);
  return element;
}

/** Set one prop as `h` does. */
export function setProp(element, name, value) {
  if (name === "style") {
    for (const [key, one] of Object.entries(value)) setStyle(element, key, one);
  } else if (name === "data") {
    for (const [key, one] of Object.entries(value)) setData(element, key, one);
  } else if (typeof value === "function") {
    element.addEventListener(name.replace(/^on/, ""), value);
  } else if (value === null || value === undefined || value === false) {
    if (element.hasAttribute(name)) element.removeAttribute(name);
  } else {
    const text = value === true ? "" : String(value);
    if (element.getAttribute(name) !== text) element.setAttribute(name, text);
  }
}

function setStyle(element, key, value) {
  const name = key.startsWith("--") ? key : key.replace(/[A-Z]/g, (one) => `-${one.toLowerCase()}`);
  element.style.setProperty(name, value === null ? "" : String(value));
}

function setData(element, key, value) {
  if (value === null || value === undefined) delete element.dataset[key];
  else if (element.dataset[key] !== String(value)) element.dataset[key] = String(value);
}

function appendChildren(element, children) {
  for (const child of children) {
    if (child === null || child === undefined || child === false) continue;
    if (Array.isArray(child)) appendChildren(element, child);
    else element.append(child instanceof Node ? child : cleanText(child));
  }
}

/** Put these children in the place of all others. @param {Element} element @param {...Child} children */
export function replace(element, ...children) {
  element.replaceChildren();
  appendChildren(element, children);
  return element;
}

/** Write an element's text if it differs. */
export function setText(element, text) {
  const wanted = cleanText(text);
  if (element.textContent !== wanted) element.textContent = wanted;
}

/**
 * Make the container's children match the items: each item keeps its element, so that focus,
 * selection and scrolling stay where they are.
 * @template T
 * @param {Element} container
 * @param {T[]} items
 * @param {(item: T) => string} keyOf
 * @param {(item: T) => Element} make
 * @param {(element: Element, item: T) => void} [update]
 */
export function reconcile(container, items, keyOf, make, update) {
  const wanted = new Set(items.map(keyOf));
  const known = new Map();
  for (const child of [...container.children]) {
    if (wanted.has(child.herdKey)) known.set(child.herdKey, child);
    else child.remove();
  }
  let place = container.firstElementChild;
  for (const item of items) {
    const key = keyOf(item);
    const element = known.get(key) ?? Object.assign(make(item), { herdKey: key });
    if (place === element) place = place.nextElementSibling;
    else container.insertBefore(element, place);
    update?.(element, item);
  }
}

let speaker = null;

/** Tell screen readers a short sentence, politely. */
export function announce(text) {
  speaker ??= document.getElementById("announcer");
  if (speaker) setText(speaker, text);
}

/** Collects what a page must undo when it is left. */
export function createScope() {
  const disposers = [];
  return {
    add(disposer) {
      if (disposer) disposers.push(disposer);
      return disposer;
    },
    listen(target, type, handler, options) {
      target.addEventListener(type, handler, options);
      disposers.push(() => target.removeEventListener(type, handler, options));
    },
    dispose() {
      for (const disposer of disposers.splice(0).reverse()) disposer();
    },
  };
}

/** Run a drawing at most once a frame. @param {() => void} draw */
export function createPainter(draw) {
  let frame = 0;
  const paint = () => {
    frame ||= requestAnimationFrame(() => {
      frame = 0;
      draw();
    });
  };
  paint.cancel = () => {
    cancelAnimationFrame(frame);
    frame = 0;
  };
  return paint;
}

let probe = null;

/** The value of a colour variable under the current theme, for canvases. */
export function readColour(name) {
  probe ??= document.body.appendChild(h("span", { hidden: true }));
  probe.style.color = `var(${name})`;
  return getComputedStyle(probe).color;
}

const ANSI = /\u001b(?:\[[0-?]*[ -/]*[@-~]|\][^\u0007\u001b]*(?:\u0007|\u001b\\)?|[@-Z\\-_])/g;
const CONTROLS = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f]/g;
const TURNS = /[\u202a-\u202e\u2066-\u2069\u200e\u200f]/g;

/** Text without colour codes; control characters are shown, and none turns the direction. */
export function cleanText(text) {
  return String(text)
    .replace(ANSI, "")
    .replace(CONTROLS, (one) => (one < " " ? String.fromCharCode(0x2400 + one.charCodeAt(0)) : "\ufffd"))
    .replace(TURNS, "\ufffd");
}
