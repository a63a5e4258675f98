import { ask } from "../ask.js";
import { bars, card, directionOf, el, pieces, share } from "../dom.js";

export const next = {
  id: "next",
  name: "Next sentence",
  lead: "In pre-training BERT also sees two segments and says whether B came after A in a text, or from somewhere else. Its answer is read at [CLS], which has looked at both segments.",
  can: (model) => model.heads.includes("next-sentence"),
  missing: "This needs a model that kept its next-sentence head from pre-training. tidybert ships one.",
  command: "tidybert page tidybert-small",
  fields: [
    { key: "text", label: "Segment A", example: "She opened the door and looked into the dark room." },
    { key: "pair", label: "Segment B", example: "Nobody was there, and she closed the door again." },
  ],
  async results(view) {
    const question = view.question("text", "pair");
    const [found, swapped] = await Promise.all([ask("next", question), ask("next", { ...question, text: question.pair, pair: question.text })]);
    return {
      nodes: [
        el("div", { class: "columns" },
          card("B follows A", el("p", { class: "number-large" }, share(found.follows)),
            bars("Probability", [{ name: "B follows A", value: found.follows }, { name: "B is from elsewhere", value: 1 - found.follows, second: true }], { most: 1 })),
          card("The other way round", el("p", { class: "number-large" }, share(swapped.follows)),
            el("p", { class: "quiet" }, "The probability that A follows B. The training contrasts B with text from other documents, so the topic counts for more than the order."))),
        card("What the model reads",
          pieces(found.tokens, { direction: directionOf(question.text), boxed: found.tokens.length > 60 }),
          el("p", { class: "quiet" },
            el("span", { class: "key" }, el("i", { class: "a" }), "segment A"),
            el("span", { class: "key" }, el("i", { class: "b" }), "segment B"))),
      ],
      python: found.python,
      data: found,
    };
  },
};
