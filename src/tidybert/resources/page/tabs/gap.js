import { ask } from "../ask.js";
import { bars, card, choice, directionOf, el, number, share, table } from "../dom.js";
import { chart, divergingLegend, matrix } from "../draw.js";

export const gap = {
  id: "gap",
  name: "Masked word",
  lead: "BERT learned to guess words that were hidden from it, from the words on both sides. Choose a word to hide it, and see what the model would write in its place and how that answer grows from layer to layer.",
  can: (model) => model.heads.includes("fill-mask"),
  missing: "This view needs a model that kept its masked-LM head from pre-training. tidybert ships one.",
  command: "tidybert page tidybert-small",
  tall: true,
  fields: [{ key: "text", label: "Text", example: "He went to school and then studied law at the university.", clears: () => ({ word: null }) }],
  async results(view) {
    const question = view.question("text");
    const words = (await ask("words", question)).words;
    const hidden = Math.min(view.number("word", Math.min(3, words.length - 1)), words.length - 1);
    if (hidden < 0) return { nodes: [card(null, el("p", {}, "Write a text with a word."))], python: null, data: null };
    const found = await ask("gap", { ...question, word: hidden });
    const buttons = el("div", { class: "pieces", dir: directionOf(question.text), role: "group", "aria-label": "The words of the text" },
      words.map((word, at) => el("button", {
        type: "button", class: "piece", id: `word-${at}`, "aria-pressed": String(at === hidden),
        on: { click: () => view.set({ word: at }) },
      }, el("span", { dir: "auto" }, at === hidden ? `${found.mask} `.repeat(found.masks.length).trim() : word))));
    const towards = view.values.towards ?? "from";
    const change = found.change[towards];
    const most = Math.max(0.01, ...change.flat().map(Math.abs));
    const names = found.tokens.map((each) => each.piece);
    const layers = change.map((_, at) => `layer ${at + 1}`);
    return {
      nodes: [
        card("Choose the word to hide", buttons),
        found.masks.map((mask) => el("div", { class: "columns" },
          card(`In place of “${mask.truth}”`,
            bars("The ten likeliest tokens", mask.words.map((word, at) => ({ name: word, value: mask.probabilities[at], marked: word === mask.truth })), { most: 1 }),
            el("p", {}, mask.truth_rank === 1 ? `The hidden token is the likeliest, with ${share(mask.truth_probability)}.` : `The hidden token, “${mask.truth}”, has ${share(mask.truth_probability)} and rank ${mask.truth_rank.toLocaleString("en")} of ${found.vocabulary.toLocaleString("en")}.`)),
          card("Layer by layer",
            chart({ label: `The probability of ${mask.truth} by layer`, series: [{ values: mask.layers.map((each) => each.truth_probability) }], names: mask.layers.map((each) => each.layer), high: Math.max(0.01, ...mask.layers.map((each) => each.truth_probability)), text: share }),
            table("Each layer's likeliest tokens, and the rank of the hidden one", ["layer", "likeliest", "rank", "probability"],
              mask.layers.map((each) => [each.layer, each.words.slice(0, 3).join(" · "), each.truth_rank, share(each.truth_probability)])),
            el("p", { class: "quiet" }, "Layer 0 is the embeddings. The head was trained on the last layer alone, so it reads the lower ones as a stranger would.")))),
        card("How attention changed",
          el("div", { class: "controls" }, choice("towards", "Direction", [["from", "What the masked word looks at"], ["to", "What looks at the masked word"]], towards, (value) => view.set({ towards: value }))),
          matrix({
            label: "Change of attention by layer and token", rows: layers, columns: names, width: view.width, diverging: true,
            part: (row, column) => 0.5 + change[row][column] / (2 * most),
            value: (row, column) => `${layers[row]}, ${names[column]}: ${number(change[row][column])}`,
          }),
          divergingLegend(most),
          el("p", { class: "quiet" }, "Mean over the heads, with the word hidden minus with the word shown. Blue is more attention than before.")),
      ],
      python: found.python,
      data: found,
    };
  },
};
