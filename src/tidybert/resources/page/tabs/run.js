import { ask } from "../ask.js";
import { card, el, share, table } from "../dom.js";

export const run = {
  id: "run",
  name: "How a run goes",
  lead: "A pre-training writes its losses while it goes on, and each checkpoint that it keeps can fill in a masked word. So you see what it has learned so far.",
  ofRun: true,
  can: (model) => model.run && model.heads.includes("fill-mask"),
  missing: "This needs a RUN of tidybert pretrain, finished or not, with its metrics.jsonl.",
  command: "tidybert page RUN",
  fields: [{ key: "text", label: "Text with a [MASK]", example: "He went to school and then studied [MASK] at the university." }],
  async results(view) {
    const at = view.number("at", 0);
    const found = await ask("run", { ...view.question("text"), at });
    const names = found.fills.length ? found.fills[0].masks.map((_, place) => `word ${place + 1}`) : [];
    return {
      nodes: [
        card(found.title,
          el("div", { class: "controls" }, el("button", { type: "button", class: "plain", id: "again", on: { click: () => view.set({ at: at + 1 }) } }, "Look again")),
          el("img", { class: "curves", alt: found.figures, src: `data:image/svg+xml,${encodeURIComponent(found.picture)}` })),
        card("The masked word by checkpoint",
          found.fills.length
            ? table("The likeliest words of each checkpoint, with their probabilities", ["checkpoint", ...names],
              found.fills.map((each) => [each.model, ...each.masks.map((mask) => mask.words.map((one) => `${one.word} ${share(one.probability)}`).join(" · "))]))
            : el("p", {}, "This RUN keeps no checkpoint. --keep-every keeps some for good.")),
      ],
      python: found.python,
      data: found,
    };
  },
};
