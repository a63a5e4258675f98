import { ask } from "../ask.js";
import { bars, card, choice, directionOf, el, share, table } from "../dom.js";
import { chart, pixels } from "../draw.js";

const CURVES = 4;

function positionsCard(found) {
  const rows = found.values.length, width = found.values[0].length;
  const names = found.values.map((_, at) => at);
  // Even columns are sines; those far to the right turn slowly.
  const columns = Array.from({ length: CURVES }, (_, at) => Math.min(width - 2, 2 * Math.round((at * width) / 16)));
  return card("Positions",
    el("div", { class: "columns" },
      el("figure", {},
        chart({ label: "Curves of the positions", names, low: -1, high: 1, dots: false, series: columns.map((column, at) => ({ values: found.values.map((row) => Math.max(-1, Math.min(1, row[column]))), second: at % 2 === 1 })) }),
        el("figcaption", {}, `The columns ${columns.join(", ")} over the positions 0 to ${rows - 1}. Each wave is slower than the one before it.`)),
      el("figure", {},
        pixels(found.values.flat().map((value) => 0.5 + value / 2), width, rows, { diverging: true, class: "pixels", role: "img", "aria-label": `All ${width} columns for ${rows} positions` }),
        el("figcaption", {}, `A row for each position, a column for each of ${width} numbers.`))),
    el("p", { class: "quiet" }, found.kind === "sinusoidal"
      ? "These sines and cosines are computed once and never trained: PE(p, 2i) = sin(p ÷ 10000^(2i ÷ H)), and PE(p, 2i + 1) is its cosine."
      : "These positions began as sines and cosines, and training changed them."));
}

/** The end of a long prompt, from the beginning of a word where there is one. */
function ending(prompt) {
  const letters = Array.from(prompt);
  return letters.length > 60 ? `… ${letters.slice(-60).join("").replace(/^\S{0,20}\s/u, "")}` : prompt;
}

export const left = {
  id: "left",
  name: "Left to right",
  lead: "A language model sees only what is to the left, and says how likely each token is to come next. One token is taken into the prompt, and the model goes on until it says [EOS].",
  can: (model) => model.heads.includes("generate"),
  missing: "This needs a language model. A poem is enough to train one in under a minute.",
  command: "tidybert train-lm poem.txt --out poem --max-steps 150 --tokens-per-step 128",
  tall: true,
  fields: [{ key: "text", label: "Prompt", example: "Before my", clears: () => ({ step: null }) }],
  async results(view) {
    const draws = view.values.draw === "yes";
    const seed = view.number("seed", 1);
    const question = view.question("text");
    const [found, positions] = await Promise.all([
      ask("left", { ...question, temperature: draws ? 1 : null, seed }), ask("positions", { model: view.model.name }),
    ]);
    const last = found.steps.length - 1;
    const at = Math.min(view.number("step", 0), last);
    const step = found.steps[at];
    const to = (value) => view.set({ step: value || null });
    const button = (id, name, value, disabled) => el("button", { type: "button", id, class: "plain", disabled, on: { click: () => to(value) } }, name);
    const rows = step.likeliest.map(([name, value]) => ({ name, value, marked: name === step.token }));
    if (!rows.some((each) => each.marked)) rows.push({ name: step.token, value: step.probability, marked: true });
    return {
      nodes: [
        el("div", { class: "columns" },
          card("The prompt so far",
            el("p", { class: "source", dir: directionOf(step.prompt) }, step.prompt, " ", el("mark", {}, step.token)),
            el("div", { class: "controls" },
              button("back", "Back", at - 1, at === 0), button("take", `Take ${step.token}`, at + 1, at === last), button("all", "To the end", last, at === last)),
            el("div", { class: "controls" },
              choice("draw", "How a token is chosen", [["no", "The likeliest"], ["yes", "Drawn"]], draws ? "yes" : "no", (value) => view.set({ step: null, draw: value === "yes" ? value : null })),
              draws ? el("button", { type: "button", class: "plain", id: "again", on: { click: () => view.set({ step: null, seed: seed + 1 }) } }, "Draw again") : null),
            el("p", { class: "quiet" }, `Step ${at + 1} of ${found.steps.length}. ${found.ended ? "The model ends with [EOS]." : "The page stops here; the model would go on."}`)),
          card("The next token", bars("The likeliest tokens", rows, { most: 1 }))),
        card("All steps", table("Each step's prompt and next token", ["step", "prompt", "next token", "probability"],
          found.steps.map((each, number) => [number + 1, ending(each.prompt), each.token, share(each.probability)]), { marked: (number) => number === at })),
        positionsCard(positions),
      ],
      python: found.python,
      data: { ...found, chosen: at },
    };
  },
};
