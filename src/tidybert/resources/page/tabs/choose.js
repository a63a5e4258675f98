import { ask } from "../ask.js";
import { bars, card, el, share } from "../dom.js";

export const choose = {
  id: "choose",
  name: "Choose",
  lead: "The model reads the context with each choice as a pair and gives every pair one score. The softmax over the choices makes them probabilities.",
  ofRun: true,
  can: (model) => model.task === "choose",
  missing: "Choosing needs a model that was fine-tuned on contexts with choices, such as those of SWAG.",
  command: "tidybert finetune choose minilm --train quiz.jsonl --out quiz",
  fields: [
    { key: "text", label: "Context", rows: 4, example: "She opened the umbrella because" },
    { key: "choices", label: "Choices, one a line", rows: 4, example: "it was raining.\nthe soup was cold.\nher train was early." },
  ],
  async results(view) {
    const choices = view.get("choices").split("\n").map((each) => each.trim()).filter(Boolean);
    const found = await ask("choose", { ...view.question("text"), choices });
    const rows = choices.map((name, at) => ({ name, value: found.scores[at], marked: at === found.choice }));
    return {
      nodes: [card("The choices", bars("Probability of each choice", rows, { most: 1 }),
        el("p", { class: "quiet" }, `The model chooses “${choices[found.choice]}” with ${share(found.scores[found.choice])}.`))],
      python: found.python,
      data: { ...found, choices },
    };
  },
};
