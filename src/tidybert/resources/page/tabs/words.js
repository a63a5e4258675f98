import { ask, isBert } from "../ask.js";
import { bars, card, directionOf, el, number, svg, table } from "../dom.js";
import { chart, matrix } from "../draw.js";

/** The sentence with the word in bold; places count characters. */
function withWord(text, [start, end]) {
  const characters = Array.from(text);
  return el("p", { class: "source", dir: directionOf(text) }, characters.slice(0, start).join(""), el("mark", {}, characters.slice(start, end).join("")), characters.slice(end).join(""));
}

/** Words at their places on a plane. */
/** The first of the places around a dot where its name covers no other name; above it if all are taken. */
function nameAt(x, y, length, taken) {
  const wide = 7.5 * length;
  const around = [[0, -9, "middle"], [0, 18, "middle"], [9, 4, "start"], [-9, 4, "end"]].map(([dx, dy, anchor]) => {
    const left = x + dx - { start: 0, middle: wide / 2, end: wide }[anchor];
    return { x: x + dx, y: y + dy, anchor, box: [left, y + dy - 10, left + wide, y + dy + 3] };
  });
  const covers = (one, other) => one[0] < other[2] && other[0] < one[2] && one[1] < other[3] && other[1] < one[3];
  const found = around.find(({ box }) => !taken.some((each) => covers(box, each))) || around[0];
  taken.push(found.box);
  return found;
}

function map(words, places, room) {
  const width = Math.max(240, Math.min(520, room)), height = 340, edge = 60;
  const range = (axis) => {
    const all = places.map((each) => each[axis]);
    return [Math.min(...all), Math.max(...all)];
  };
  const [[left, right], [low, high]] = [range(0), range(1)];
  const x = (value) => edge + ((width - 2 * edge) * (value - left)) / (right - left || 1);
  const y = (value) => height - 30 - ((height - 60) * (value - low)) / (high - low || 1);
  const dots = places.map(([across, up]) => [x(across), y(up)]);
  const taken = dots.map(([cx, cy]) => [cx - 4, cy - 4, cx + 4, cy + 4]);
  return svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": "A map of the words" },
    svg("rect", { x: 1, y: 1, width: width - 2, height: height - 2, rx: 8, fill: "none", class: "axis" }),
    words.map((word, at) => {
      const [cx, cy] = dots[at];
      const name = nameAt(cx, cy, [...word].length, taken);
      return [svg("circle", { class: "dot", cx, cy, r: 4 }), svg("text", { class: "name", x: name.x, y: name.y, "text-anchor": name.anchor }, word)];
    }));
}

export const words = {
  id: "words",
  name: "Words",
  lead: "A word begins with the same vector in every sentence, and each layer mixes in more of what is around it. So one word in two sentences drifts apart, while words of one kind stay near each other.",
  can: isBert,
  missing: "Every BERT can.",
  command: "tidybert page tidybert-small",
  fields: [
    { key: "text", label: "First sentence", example: "He sat on the bank of the river and fished." },
    { key: "pair", label: "Second sentence", example: "She took the money to the bank before it closed." },
    { key: "word", label: "The word in both", rows: 1, example: "bank" },
    { key: "words", label: "Words or texts to compare, with commas between them", rows: 1, example: "king, queen, prince, river, lake, sea, bread, cheese" },
  ],
  async results(view) {
    const listed = view.get("words").split(/[,،、，]/).map((each) => each.trim()).filter(Boolean);
    const question = view.question("text", "pair", "word");
    const [apart, compared] = await Promise.all([ask("word-apart", question), ask("word-map", { model: view.model.name, words: listed })]);
    const low = Math.min(0, ...apart.cosines);
    const part = (row, column) => Math.max(0, compared.cosines[row][column]);
    return {
      nodes: [
        el("div", { class: "columns" },
          card(`“${question.word}” drifts apart`,
            withWord(question.text, apart.spans[0]), withWord(question.pair, apart.spans[1]),
            chart({ label: "Cosine of the word's two vectors by layer", series: [{ values: apart.cosines }], names: apart.cosines.map((_, at) => at), low }),
            el("p", { class: "quiet" }, "The cosine of the word's two vectors after each layer. Layer 0 is the embeddings, where only the positions differ.")),
          card(`The tokens nearest to “${question.word}”`,
            bars("Cosine of the word embeddings", apart.nearest.map((each) => ({ name: each.piece, value: each.cosine, text: number(each.cosine, 2) })), { most: 1 }))),
        el("div", { class: "columns" },
          card("Words on a map", map(listed, compared.map, view.width),
            el("p", { class: "quiet" }, "The two directions in which the vectors differ most (PCA). A map of two directions leaves the others out, so the table has the last word.")),
          card("Cosines",
            matrix({ label: "Cosines of the words", rows: listed, columns: listed, width: view.width / 2.2, part, value: (row, column) => `${listed[row]}, ${listed[column]}: ${number(compared.cosines[row][column], 2)}` }),
            el("details", {}, el("summary", {}, "As a table"),
              table("Cosines of the words", ["", ...listed], listed.map((each, row) => [each, ...compared.cosines[row].map((value) => number(value, 2))]))))),
      ],
      python: `${apart.python}${compared.python}`,
      data: { ...apart, words: listed, ...compared },
    };
  },
};
