import { ask, isBert } from "../ask.js";
import { card, directionOf, el, pieces } from "../dom.js";
import { strips } from "../draw.js";
import { link, source } from "../linked.js";

export const tokens = {
  id: "tokens",
  name: "Tokens",
  lead: "BERT reads tokens, which are words or parts of words; each token has an id in the vocabulary, a segment and a position. Three embeddings, one for each of these numbers, are added to the vector that the first layer reads.",
  can: isBert,
  missing: "Every BERT can.",
  command: "tidybert page tidybert-small",
  fields: [
    { key: "text", label: "Text", example: "The astonishing penguins waddled home." },
    { key: "pair", label: "Second text; it may be empty", example: "Nobody watched them." },
  ],
  async results(view) {
    const question = view.question("text", "pair");
    const found = await ask("tokens", question);
    const list = found.tokens;
    const longest = list.reduce((best, each, at) => (each.side === 0 && each.piece.length > list[best].piece.length ? at : best), 1);
    const at = Math.min(view.number("at", longest), list.length - 1);
    const parts = (await ask("embedding", { ...question, position: at })).parts;
    const linked = link(el("div", {},
      source(question.text, list, 0),
      question.pair ? source(question.pair, list, 1) : null,
      pieces(list, {
        direction: directionOf(question.text), boxed: list.length > 60,
        below: (token) => [token.id, `segment ${token.segment}`, `at ${token.position}`],
        press: (chosen) => view.set({ at: chosen }), pressed: (each) => each === at,
      })));
    return {
      nodes: [
        card(`${list.length} tokens`,
          linked,
          el("p", { class: "quiet" },
            el("span", { class: "key" }, el("i", { class: "a" }), "segment 0"),
            question.pair ? el("span", { class: "key" }, el("i", { class: "b" }), "segment 1") : null,
            "## marks a token that continues the word before it. Choose a token to see its embeddings.")),
        card(`The embeddings of ${list[at].piece}`,
          strips(parts.slice(0, 4).map((each) => [each.name, each.values])),
          strips(parts.slice(4).map((each) => [each.name, each.values])),
          el("p", { class: "quiet" }, `Each strip has ${parts[0].values.length} numbers. The first three add up to the fourth; LayerNorm then centres and scales it.`)),
      ],
      python: found.python,
      data: { ...found, chosen: at, embeddings: parts },
    };
  },
};
