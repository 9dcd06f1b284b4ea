// Elements from plain calls. Text stays text: nothing that a broker says is ever read as markup.

const SVG = "http://www.w3.org/2000/svg";

export const byId = (id) => document.getElementById(id);

export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "on") for (const [event, heard] of Object.entries(value)) made.addEventListener(event, heard);
    else if (name === "data") Object.assign(made.dataset, value);
    else if (name in made && name !== "list") made[name] = value;
    else made.setAttribute(name, value);
  }
  made.append(...children.filter(isThere));
  return made;
}

const isThere = (child) => child !== null && child !== undefined && child !== "";

export function drawing(width, height, ...shapes) {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("width", width);
  svg.setAttribute("height", height);
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.setAttribute("aria-hidden", "true");
  for (const [tag, attributes] of shapes) {
    const shape = document.createElementNS(SVG, tag);
    for (const [name, value] of Object.entries(attributes)) shape.setAttribute(name, value);
    svg.append(shape);
  }
  return svg;
}

// Rows of a list: those whose words are the same as before stay as they are, with the focus, the rest is made anew.
// rows: [{ key, words, make }], an element's key being its data-key.
export function putRows(place, before, rows, after) {
  const known = new Map([...place.children].map((child) => [child.dataset.key, child]));
  const found = rows.map(({ key, words, make }) => {
    const old = known.get(key);
    if (old && old.words === words) return old;
    const fresh = make();
    fresh.words = words;
    return fresh;
  });
  const focused = document.activeElement?.dataset.key;
  const kept = before.map((one) => (one.dataset.key === focused && known.get(focused)) || one);
  put(place, ...kept, ...found, after);
}

// What the pointer presses: a button that is replaced between press and release is never clicked. So what is in a place
// stays while it is pressed, and whoever draws is told on release that something was not drawn meanwhile.
let pressed = null;
let isSkipped = false;
let redraw = () => {};
export const onSkipped = (heard) => (redraw = heard);

addEventListener("pointerdown", (event) => (pressed = event.button === 0 ? event.target : null), true);
for (const end of ["pointerup", "pointercancel", "dragend", "contextmenu"]) {
  addEventListener(end, () => setTimeout(release), true); // the click comes first
}

function release() {
  pressed = null;
  if (!isSkipped) return;
  isSkipped = false;
  redraw();
}

// Replace what is in a place, and keep the focus and the scrolling where they are. It stays while it is pressed.
export function put(place, ...children) {
  if (pressed && place.contains(pressed)) {
    isSkipped = true;
    return;
  }
  const focused = place.contains(document.activeElement) ? document.activeElement.dataset.key : null;
  const scrolled = place.scrollTop;
  const wanted = children.filter(isThere);
  if (wanted.length === place.childNodes.length && wanted.every((child, at) => child === place.childNodes[at])) return;
  place.replaceChildren(...wanted);
  place.scrollTop = scrolled;
  if (focused) place.querySelector(`[data-key="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
}
