// Elements from code. Every text becomes a text node, so no text can become markup.

const SVG = "http://www.w3.org/2000/svg";

function filled(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") {
      for (const [event, act] of Object.entries(value)) node.addEventListener(event, act);
    } else if (name === "style") {
      // The security policy forbids style attributes in markup; the object model is allowed.
      for (const [key, each] of Object.entries(value)) node.style.setProperty(key, each);
    } else {
      node.setAttribute(name, value === true ? "" : value);
    }
  }
  node.append(...children.flat(Infinity).filter((each) => each !== null && each !== undefined && each !== false));
  return node;
}

/** An HTML element; children are nodes, texts, or lists of them, and null is left out. */
export const el = (name, attributes = {}, ...children) =>
  filled(document.createElement(name), attributes, children);

/** An SVG element. */
export const svg = (name, attributes = {}, ...children) =>
  filled(document.createElementNS(SVG, name), attributes, children);

/** Replaces what is in a node, and leaves the focus on the control with the same id. */
export function replace(node, children) {
  const focus = node.contains(document.activeElement) ? document.activeElement.id : "";
  node.replaceChildren(...children.flat(Infinity).filter(Boolean));
  if (focus) document.getElementById(focus)?.focus();
}

/** rtl if the first letter of a text is of a right-to-left script, else ltr. */
export function directionOf(text) {
  const first = text.match(/\p{L}/u);
  return first && /[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]/.test(first[0]) ? "rtl" : "ltr";
}

/** A number with its meaningful digits. */
export function number(value, digits = 3) {
  if (value === null || value === undefined) return "−∞";
  const tiny = digits > 2 && value !== 0 && Math.abs(value) < 0.5 * 10 ** -digits;
  return (tiny ? value.toExponential(1) : value.toFixed(digits)).replaceAll("-", "−");
}

/** A probability in percent. */
export function share(value) {
  if (value > 0 && value < 0.0005) return "<0.1 %";
  return `${(100 * value).toFixed(1)} %`;
}

/** A titled part of a view. */
export const card = (title, ...children) =>
  el("section", { class: "card" }, title ? el("h2", {}, title) : null, ...children);

/** Buttons of which one is pressed: choices are [value, name] pairs. */
export function choice(id, label, choices, chosen, choose) {
  const buttons = choices.map(([value, name]) =>
    el("button", {
      type: "button", id: `${id}-${value}`, "aria-pressed": String(value === chosen),
      on: { click: () => choose(value) },
    }, name));
  return el("div", { class: "group", role: "group", "aria-label": label }, buttons);
}

/** A labelled select: choices are [value, name] pairs. */
export function select(id, label, choices, chosen, choose) {
  const options = choices.map(([value, name]) =>
    el("option", { value, selected: String(value) === String(chosen) }, name));
  return el("label", {}, label,
    el("select", { id, on: { change: (event) => choose(event.target.value) } }, options));
}

/** A table row a fact: names and bars. Each row: {name, value, text, marked, second}. */
export function bars(caption, rows, { most = null, nameOf = "" } = {}) {
  const longest = most ?? Math.max(1e-9, ...rows.map((each) => Math.abs(each.value)));
  return el("table", { class: "bars" }, el("caption", { class: nameOf ? "" : null }, caption), el("tbody", {},
    rows.map((each) => el("tr", { class: each.marked ? "marked" : null },
      el("th", { scope: "row", dir: "auto" }, each.name),
      el("td", { class: "bar" }, el("i", {
        class: each.value < 0 || each.second ? "second" : null,
        style: { width: `${Math.min(100, (100 * Math.abs(each.value)) / longest)}%` },
      })),
      el("td", { class: "number" }, each.text ?? share(each.value))))));
}

/** A plain table: heads and rows of texts; numbers are set to the right. */
export function table(caption, heads, rows, { marked = () => false } = {}) {
  const cell = (value, at) => at === 0
    ? el("th", { scope: "row", dir: "auto" }, String(value))
    : el("td", typeof value === "number" ? { class: "number" } : { dir: "auto" },
      typeof value === "number" && !Number.isInteger(value) ? number(value) : value instanceof Node ? value : String(value));
  return el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    el("table", {}, el("caption", {}, caption),
      el("thead", {}, el("tr", {}, heads.map((each) => el("th", { scope: "col" }, each)))),
      el("tbody", {}, rows.map((row, at) => el("tr", { class: marked(at) ? "marked" : null }, row.map(cell))))));
}

/** The pieces of a text. Each token has piece, side and special; more are options below. */
export function pieces(tokens, { direction = "ltr", below = () => [], classOf = segmentClass, press = null, pressed = () => false, boxed = false } = {}) {
  return el("ul", { class: boxed ? "pieces boxed" : "pieces", dir: direction, tabindex: boxed ? "0" : null },
    tokens.map((token, at) => {
      const mark = token.piece.startsWith("##") && token.piece.length > 2;
      const inside = [
        el("span", { dir: "auto" }, mark ? el("span", { class: "mark" }, "##") : null, mark ? token.piece.slice(2) : token.piece),
        ...[below(token, at)].flat().map((each) => el("small", {}, each)),
      ];
      const given = { class: `piece ${classOf(token, at)}`, "data-at": at };
      return el("li", {}, press
        ? el("button", { ...given, type: "button", id: `piece-${at}`, "aria-pressed": String(pressed(at)), on: { click: () => press(at) } }, inside)
        : el("span", given, inside));
    }));
}

/** The class of a token by its segment. */
export function segmentClass(token) {
  if (token.side === null) return "special";
  return token.segment === 1 ? "b" : "a";
}

/** Moves the focus among elements with the arrow keys; columns make it two-dimensional. */
export function roving(container, selector, columns = 0) {
  container.addEventListener("keydown", (event) => {
    const all = [...container.querySelectorAll(selector)];
    const at = all.indexOf(document.activeElement);
    const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns }[event.key];
    const to = event.key === "Home" ? 0 : event.key === "End" ? all.length - 1 : at + step;
    if (at < 0 || !all[to] || (!step && event.key !== "Home" && event.key !== "End")) return;
    event.preventDefault();
    all[at].tabIndex = -1;
    all[to].tabIndex = 0;
    all[to].focus();
  });
}
