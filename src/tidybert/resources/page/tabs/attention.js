import { ask, isBert } from "../ask.js";
import { card, choice, directionOf, el, number, roving, select, table } from "../dom.js";
import { byWeight, lines, matrix, pixels, strips, theme, weightLegend } from "../draw.js";

const LINES_FROM = 0.05;
// A matrix of more pieces has a row of the page for itself.
const MANY = 32;

/** The positions of the rows and columns that are shown. */
function places(tokens, part, special) {
  const all = tokens.map((_, at) => at);
  const text = all.filter((at) => special || tokens[at].side !== null);
  const of = (side) => all.filter((at) => tokens[at].side === side);
  if (part === "ab") return [of(0), of(1)];
  if (part === "ba") return [of(1), of(0)];
  return [text, text];
}

/** A square of weights (n, n), with rows that add to 1 again where pieces are left out. */
function shownWeights(weights, size, rows, columns, rescale) {
  return rows.map((row) => {
    const found = columns.map((column) => weights[row * size + column]);
    const total = rescale ? found.reduce((sum, each) => sum + each, 0) : 1;
    return total > 0 ? found.map((each) => each / total) : found;
  });
}

const PARTS = Float32Array.from({ length: 256 }, (_, at) => byWeight(at / 255));
const drawnHeads = new WeakMap();

/** Small pictures of a layer's heads, from its weights in 8 bits; drawn once for each theme. */
function small(buffer, heads, size) {
  const known = drawnHeads.get(buffer);
  if (known?.theme === theme()) return known.canvases;
  const bytes = new Uint8Array(buffer);
  const canvases = Array.from({ length: heads }, (_, head) => {
    const weights = bytes.subarray(head * size * size, (head + 1) * size * size);
    return pixels(Float32Array.from(weights, (each) => PARTS[each]), size, size, { "aria-hidden": "true" });
  });
  drawnHeads.set(buffer, { theme: theme(), canvases });
  return canvases;
}

async function grid(view, question, found, chosen) {
  const size = found.tokens.length;
  const layers = await Promise.all(Array.from({ length: found.layers }, (_, at) => ask("attention-layer", { ...question, layer: at + 1 }, { binary: true })));
  const rows = layers.map((buffer, layer) => {
    const canvases = small(buffer, found.heads, size);
    const heads = Array.from({ length: found.heads }, (_, head) => {
      const name = `layer ${layer + 1}, head ${head + 1}`;
      const isChosen = chosen.layer === layer + 1 && chosen.head === head + 1;
      return el("button", {
        type: "button", id: `head-${layer + 1}-${head + 1}`, "aria-label": name, title: name,
        "aria-pressed": String(isChosen), tabindex: isChosen ? "0" : "-1",
        on: { click: () => view.set({ layer: layer + 1, head: head + 1, row: null, column: null }) },
      }, canvases[head]);
    });
    return el("div", { class: "row" }, el("span", {}, layer + 1), heads);
  });
  const grid = el("div", { class: "heads", role: "group", "aria-label": "Layers and heads", style: { "--heads": String(found.heads) } },
    el("div", { class: "row", "aria-hidden": "true" }, el("span", {}), Array.from({ length: found.heads }, (_, at) => el("span", {}, at + 1))), rows);
  roving(grid, "button", found.heads);
  return grid;
}

/** One head exactly: weights and scores, (n, n) each. */
async function head(question, size) {
  const found = new Float32Array(await ask("attention-head", question, { binary: true }));
  return { weights: found.subarray(0, size * size), scores: found.subarray(size * size) };
}

function arithmetic(cell) {
  const D = cell.query.length;
  const order = cell.probs.map((_, at) => at).sort((one, other) => cell.probs[other] - cell.probs[one]);
  return card(`From ${cell.tokens[cell.row]} to ${cell.tokens[cell.column]}`,
    el("h3", {}, "1. The query of the row times the key of the column"),
    strips([["query", cell.query], ["key", cell.key], ["their products", cell.products]]),
    el("p", { class: "sum" }, `q · k = ${number(cell.dot)}; divided by √${D} = ${number(Math.sqrt(D))} it is ${number(cell.scaled)}`),
    el("h3", {}, "2. The softmax over the row"),
    table(`What ${cell.tokens[cell.row]} looks at`, ["token", "score", "weight"],
      order.map((at) => [`${at}: ${cell.tokens[at]}`, cell.scores[at] === null ? "−∞" : cell.scores[at], cell.probs[at]]),
      { marked: (at) => order[at] === cell.column }),
    el("p", { class: "sum" }, cell.scores[cell.column] === null ? "A score of −∞ gives the weight 0." : `e^${number(cell.scaled)} ÷ the sum of e^score over the row = ${number(cell.probs[cell.column])}. The row adds to ${number(cell.probs.reduce((sum, each) => sum + each, 0))}.`),
    el("h3", {}, "3. The values, each times its weight, are added"),
    strips([...order.slice(0, 4).map((at) => [`${number(cell.probs[at], 2)} × ${cell.tokens[at]}`, cell.weighted[at]]), ["the sum of all", cell.context]]));
}

export const attention = {
  id: "attention",
  name: "Attention",
  lead: "In every layer each token looks at all tokens, in several heads at once; a row of a matrix says how a token divides its attention. Choose a head in the grid to open it, and a cell of its matrix to see its arithmetic.",
  can: isBert,
  missing: "Every BERT can.",
  command: "tidybert page tidybert-small",
  fields: [
    { key: "text", label: "Text", example: "The cat sat on the mat because it was tired.", clears: () => ({ row: null, column: null }) },
    { key: "pair", label: "Second text; it may be empty", example: "", clears: () => ({ row: null, column: null }) },
  ],
  async results(view) {
    const question = view.question("text", "pair");
    const causal = view.values.causal === "yes";
    const at = [view.number("row"), view.number("column")];
    const found = await ask("attention", { ...question, causal, layer: view.number("layer", 1), head: view.number("head", 1), row: at[0], column: at[1] });
    const size = found.tokens.length;
    const chosen = { layer: found.layer, head: found.head };
    const special = view.values.special !== "hidden";
    const part = found.has_pair ? view.values.part ?? "all" : "all";
    const asLines = view.values.as === "lines";
    const opened = { ...question, ...chosen };
    const [both, masked] = await Promise.all([
      head({ ...opened, causal: false }, size), causal ? head({ ...opened, causal: true }, size) : null,
    ]);
    const [rows, columns] = places(found.tokens, part, special);
    const [third, half] = [3, 2].map((parts) => Math.min(view.width, Math.max(view.width / parts - 40, 300)));
    const names = (positions) => positions.map((at) => found.tokens[at].piece);
    const pick = (row, column) => view.set({ row: rows[row], column: columns[column] });
    const cellAt = rows.includes(at[0]) && columns.includes(at[1]) ? [rows.indexOf(at[0]), columns.indexOf(at[1])] : null;

    const drawn = (weights, title) => {
      const shown = shownWeights(weights, size, rows, columns, !special && part === "all");
      const label = `${title}: layer ${chosen.layer}, head ${chosen.head}`;
      if (asLines) return lines({ label, from: names(rows), to: names(columns), weight: (row, column) => shown[row][column], least: LINES_FROM });
      return matrix({
        label, rows: names(rows), columns: names(columns), width: causal ? third : size <= MANY ? half : view.width,
        part: (row, column) => byWeight(shown[row][column]),
        value: (row, column) => `${names(rows)[row]} looks at ${names(columns)[column]}: ${number(shown[row][column])}`,
        pick, chosen: cellAt, mirrored: directionOf(question.text) === "rtl",
      });
    };
    const scores = () => {
      const finite = masked.scores.filter(Number.isFinite);
      const [low, high] = [Math.min(...finite), Math.max(...finite)];
      return matrix({
        label: "Scores before the softmax, with the causal mask", rows: names(rows), columns: names(columns), width: third,
        part: (row, column) => {
          const score = masked.scores[rows[row] * size + columns[column]];
          return Number.isFinite(score) ? (score - low) / (high - low || 1) : NaN;
        },
        value: (row, column) => {
          const score = masked.scores[rows[row] * size + columns[column]];
          return `${names(rows)[row]}, ${names(columns)[column]}: ${Number.isFinite(score) ? number(score) : "−∞"}`;
        },
        pick, chosen: cellAt, mirrored: directionOf(question.text) === "rtl",
      });
    };
    const cell = cellAt ? await ask("cell", { ...opened, causal, row: at[0], column: at[1] }) : null;
    const clear = { row: null, column: null };
    const controls = el("div", { class: "controls" },
      select("layer", "Layer", Array.from({ length: found.layers }, (_, each) => [each + 1, each + 1]), chosen.layer, (value) => view.set({ layer: value })),
      select("head", "Head", Array.from({ length: found.heads }, (_, each) => [each + 1, each + 1]), chosen.head, (value) => view.set({ head: value })),
      choice("as", "Picture", [["matrix", "Matrix"], ["lines", "Lines"]], asLines ? "lines" : "matrix", (value) => view.set({ as: value === "lines" ? value : null })),
      choice("special", "special tokens", [["shown", "special tokens shown"], ["hidden", "hidden"]], special ? "shown" : "hidden", (value) => view.set({ ...clear, special: value === "hidden" ? value : null })),
      found.has_pair ? choice("part", "Part", [["all", "All"], ["ab", "A → B"], ["ba", "B → A"]], part, (value) => view.set({ ...clear, part: value === "all" ? null : value })) : null,
      choice("causal", "Causal mask", [["no", "Both directions"], ["yes", "With the causal mask"]], causal ? "yes" : "no", (value) => view.set({ causal: value === "yes" ? value : null })));
    const notes = [
      "A row is the token that looks, and a column what it looks at.",
      special || part !== "all" ? (part === "all" ? "Each row adds to 1." : "Only attention across the two texts is shown, so a row adds to less than 1.") : "The weights that are left are scaled again, so that each row adds to 1.",
      asLines ? `Lines below ${LINES_FROM} are not drawn.` : null,
    ].filter(Boolean).join(" ");
    const single = causal
      ? card(`Layer ${chosen.layer}, head ${chosen.head}`, controls,
        el("div", { class: "columns three" },
          el("figure", {}, drawn(both.weights, "Both directions"), el("figcaption", {}, "Both directions: BERT's own attention.")),
          el("figure", {}, drawn(masked.weights, "Causal"), el("figcaption", {}, "With the causal mask: zeros for all that comes later.")),
          el("figure", {}, scores(), el("figcaption", {}, "Before the softmax the mask sets these empty cells to −∞."))),
        asLines ? null : weightLegend(), el("p", { class: "quiet" }, notes))
      : card(`Layer ${chosen.layer}, head ${chosen.head}`, controls, drawn(both.weights, "Attention"), asLines ? null : weightLegend(), el("p", { class: "quiet" }, notes));
    return {
      nodes: [
        el("div", { class: causal || size > MANY ? "" : "halves" },
          card("All heads", await grid(view, { ...question, causal }, found, chosen), el("p", { class: "quiet" }, `Rows are ${found.layers} layers and columns ${found.heads} heads. The arrow keys move among them.`)),
          single),
        cell ? arithmetic(cell) : null,
      ],
      python: found.python,
      data: { tokens: found.tokens, ...chosen, causal, weights: [...(masked ?? both).weights], cell },
    };
  },
};
