// Pictures: matrices on canvas, lines in SVG. Colours come from the style sheet.
import { el, svg, number } from "./dom.js";

const COLOURS = 256;

function rgb(name) {
  const text = getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  return [1, 3, 5].map((at) => parseInt(text.slice(at, at + 2), 16));
}

const mixed = (from, to, part) => from.map((each, at) => Math.round(each + (to[at] - each) * part));

const palettes = new Map();

/** The colours in use: light or dark. */
export const theme = () => document.documentElement.dataset.theme;

/** 256 colours as pixels: from the page's to the accent, or from the second through the page's. */
function palette(diverging) {
  const name = `${theme()} ${diverging}`;
  if (!palettes.has(name)) {
    const page = rgb("--page"), accent = rgb("--accent"), second = rgb("--second");
    const colours = Array.from({ length: COLOURS }, (_, at) => {
      const part = at / (COLOURS - 1);
      if (!diverging) return mixed(page, accent, part);
      return part < 0.5 ? mixed(page, second, 1 - 2 * part) : mixed(page, accent, 2 * part - 1);
    });
    palettes.set(name, new Uint32Array(new Uint8Array(colours.flatMap((each) => [...each, 255])).buffer));
  }
  return palettes.get(name);
}

/** Small weights stay visible: the colour follows the square root. */
export const byWeight = (weight) => Math.sqrt(Math.max(0, weight));

/** A canvas with a pixel a value; parts are 0 to 1, and NaN is left empty. */
export function pixels(parts, columns, rows, { diverging = false, ...attributes } = {}) {
  const canvas = el("canvas", { width: columns, height: rows, ...attributes });
  const context = canvas.getContext("2d");
  const image = context.createImageData(columns, rows);
  const colours = palette(diverging);
  const drawn = new Uint32Array(image.data.buffer);
  for (let at = 0; at < parts.length; at++) {
    if (!Number.isNaN(parts[at])) drawn[at] = colours[Math.max(0, Math.min(COLOURS - 1, Math.round(parts[at] * (COLOURS - 1))))];
  }
  context.putImageData(image, 0, 0);
  return canvas;
}

/** A strip of numbers around zero, and how far the scale goes. */
export function strip(name, values, most) {
  const parts = values.map((each) => 0.5 + each / (2 * most));
  return [
    el("span", {}, name),
    pixels(parts, values.length, 1, { diverging: true, role: "img", "aria-label": `${name}: ${values.length} numbers, ${number(Math.min(...values))} to ${number(Math.max(...values))}` }),
  ];
}

/** Strips with one scale: a few numbers far from the others have the darkest colour. */
export function strips(named) {
  const sizes = named.flatMap(([, values]) => values.map(Math.abs)).sort((one, other) => one - other);
  const most = Math.max(1e-9, sizes[Math.floor(0.99 * (sizes.length - 1))]);
  return [
    el("div", { class: "strip" }, named.map(([name, values]) => strip(name, values, most))),
    divergingLegend(most),
  ];
}

const ramp = (diverging) => pixels(Array.from({ length: COLOURS }, (_, at) => at / (COLOURS - 1)), COLOURS, 1, { diverging, "aria-hidden": "true" });

/** The legend of weights. */
export const weightLegend = () => el("div", { class: "legend" }, "0", ramp(false), "1", el("span", {}, "colour: square root of the weight"));

/** The legend of numbers around zero. */
export const divergingLegend = (most) => el("div", { class: "legend" }, number(-most, 2), ramp(true), number(most, 2));

/**
 * A matrix with words on both sides. It shows a value on hover, and the arrow keys move a cell.
 *
 * part(row, column) is 0 to 1 for the colour, or NaN for an empty cell; value(row, column) is the
 * text to say. pick(row, column) is called for a click or Enter; mirrored is for right-to-left text.
 */
export function matrix({ label, rows, columns, part, value, pick = null, chosen = null, diverging = false, mirrored = false, width = 640, cell: least = 12 }) {
  const unit = parseFloat(getComputedStyle(document.documentElement).fontSize) / 16;
  const gutter = Math.min(110, 16 + 7.5 * Math.max(...[...rows, ...columns].map((each) => [...each].length))) * unit;
  const room = Math.max(200, width) - gutter;
  const cell = Math.max(least * unit, Math.min(34 * unit, room / columns.length));
  const ratio = devicePixelRatio || 1;
  const size = [gutter + cell * columns.length + 2, gutter + cell * rows.length + 2];
  const canvas = el("canvas", {
    role: "img", tabindex: "0", "aria-label": label,
    width: Math.ceil(size[0] * ratio), height: Math.ceil(size[1] * ratio),
    style: { width: `${size[0]}px`, height: `${size[1]}px`, cursor: pick ? "pointer" : "default" },
  });
  const said = el("p", { class: "quiet said", "aria-live": "polite" });
  const context = canvas.getContext("2d");
  const place = (column) => (mirrored ? columns.length - 1 - column : column);
  const parts = new Float32Array(rows.length * columns.length);
  for (let row = 0; row < rows.length; row++) {
    for (let column = 0; column < columns.length; column++) {
      parts[row * columns.length + place(column)] = part(row, column);
    }
  }
  const cells = pixels(parts, columns.length, rows.length, { diverging });
  const style = getComputedStyle(document.documentElement);
  const colour = (name) => style.getPropertyValue(name).trim();
  const font = `${Math.max(8 * unit, Math.min(13 * unit, cell * 0.92))}px system-ui, sans-serif`;
  let at = chosen;

  function draw() {
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, ...size);
    context.imageSmoothingEnabled = false;
    context.drawImage(cells, gutter, gutter, cell * columns.length, cell * rows.length);
    context.strokeStyle = colour("--line");
    context.strokeRect(gutter, gutter, cell * columns.length, cell * rows.length);
    context.font = font;
    context.textBaseline = "middle";
    context.textAlign = "right";
    rows.forEach((word, row) => {
      context.fillStyle = colour(at && at[0] === row ? "--accent" : "--ink");
      context.fillText(word, gutter - 6, gutter + cell * (row + 0.5), gutter - 8);
    });
    context.textAlign = "left";
    columns.forEach((word, column) => {
      context.save();
      context.translate(gutter + cell * (place(column) + 0.5), gutter - 6);
      context.rotate(-Math.PI / 2);
      context.fillStyle = colour(at && at[1] === column ? "--accent" : "--ink");
      context.fillText(word, 0, 0, gutter - 8);
      context.restore();
    });
    if (at) {
      context.strokeStyle = colour("--ink");
      context.lineWidth = 2;
      context.strokeRect(gutter + cell * place(at[1]), gutter + cell * at[0], cell, cell);
      context.lineWidth = 1;
    }
  }
  function move(to) {
    at = to;
    draw();
    said.textContent = to ? value(...to) : "";
  }
  canvas.addEventListener("pointermove", (event) => {
    const box = canvas.getBoundingClientRect();
    const row = Math.floor((event.clientY - box.top - gutter) / cell);
    const column = place(Math.floor((event.clientX - box.left - gutter) / cell));
    const inside = row >= 0 && row < rows.length && column >= 0 && column < columns.length;
    if (inside) move([row, column]);
  });
  canvas.addEventListener("pointerleave", () => move(chosen));
  canvas.addEventListener("click", () => pick && at && pick(...at));
  canvas.addEventListener("keydown", (event) => {
    const step = { ArrowDown: [1, 0], ArrowUp: [-1, 0], ArrowRight: [0, mirrored ? -1 : 1], ArrowLeft: [0, mirrored ? 1 : -1] }[event.key];
    if (step) {
      event.preventDefault();
      const [row, column] = at ?? [0, -step[1]];
      move([Math.max(0, Math.min(rows.length - 1, row + step[0])), Math.max(0, Math.min(columns.length - 1, column + step[1]))]);
    } else if ((event.key === "Enter" || event.key === " ") && pick && at) {
      event.preventDefault();
      pick(...at);
    }
  });
  move(chosen);
  return el("div", {}, el("div", { class: "scroll tall" }, canvas), said);
}

/** Lines between two columns of words; weights below the least are left out. */
export function lines({ label, from, to, weight, least = 0.05, chosen = null, pick = null }) {
  const unit = parseFloat(getComputedStyle(document.documentElement).fontSize) / 16;
  const step = 24 * unit, width = 460 * unit, side = 140 * unit;
  const height = step * Math.max(from.length, to.length) + 8;
  const y = (at) => step * (at + 0.5) + 4;
  const drawn = [];
  from.forEach((_, row) => to.forEach((_, column) => {
    const each = weight(row, column);
    if (!(each >= least)) return;
    const [x1, x2] = [side + 6, width - side - 6];
    const middle = (x1 + x2) / 2;
    drawn.push(svg("path", {
      class: "line", "data-row": row, "stroke-width": (0.75 + 5 * each).toFixed(2),
      opacity: chosen === null || chosen === row ? (0.15 + 0.85 * each).toFixed(3) : "0.04",
      d: `M${x1} ${y(row)} C${middle} ${y(row)} ${middle} ${y(column)} ${x2} ${y(column)}`,
    }));
  }));
  const word = (text, row, x, anchor) => svg("text", { x, y: y(row), "text-anchor": anchor, "dominant-baseline": "central", direction: "ltr" }, text);
  const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": label },
    drawn, from.map((text, row) => word(text, row, side, "end")), to.map((text, row) => word(text, row, width - side, "start")));
  // A transparent band a word catches the pointer.
  from.forEach((_, row) => picture.append(svg("rect", {
    x: 0, y: y(row) - step / 2, width: side, height: step, fill: "transparent",
    on: {
      pointerenter: () => picture.querySelectorAll("path").forEach((path) => path.classList.toggle("hidden-line", path.dataset.row !== String(row))),
      pointerleave: () => picture.querySelectorAll("path").forEach((path) => path.classList.remove("hidden-line")),
      click: () => pick && pick(row),
    },
  })));
  return el("div", { class: "scroll tall" }, picture);
}

/** A chart of a line a series: series are {name, values, second}; NaN and null are left out. */
export function chart({ label, series, names, low = 0, high = 1, dots = true, text = (value) => number(value, 2) }) {
  const width = 460, height = 220, left = 60, bottom = 34;
  const x = (at) => left + ((width - left - 12) * at) / Math.max(1, names.length - 1);
  const y = (value) => 10 + (height - bottom - 10) * (1 - (value - low) / (high - low || 1));
  const grid = [0, 0.25, 0.5, 0.75, 1].map((part) => {
    const value = low + (high - low) * part;
    return [svg("line", { class: "axis", x1: left, x2: width - 8, y1: y(value), y2: y(value) }),
      svg("text", { class: "muted", x: left - 6, y: y(value), "text-anchor": "end", "dominant-baseline": "central" }, text(value))];
  });
  const every = Math.ceil(names.length / 13);
  const labels = names.map((name, at) => at % every ? null : svg("text", { class: "muted", x: x(at), y: height - 12, "text-anchor": "middle" }, name));
  const drawn = series.map(({ values, second }) => [
    svg("polyline", { class: second ? "line second" : "line", "stroke-width": 2, points: values.map((value, at) => `${x(at).toFixed(1)},${y(value).toFixed(1)}`).join(" ") }),
    dots ? values.map((value, at) => svg("circle", { class: second ? "dot second" : "dot", cx: x(at), cy: y(value), r: 3 }, svg("title", {}, `${names[at]}: ${text(value)}`))) : null,
  ]);
  return svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": label }, grid, labels, drawn);
}
