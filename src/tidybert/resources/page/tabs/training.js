import { ask } from "../ask.js";
import { card, choice, directionOf, el, number, pieces, share, table } from "../dom.js";

const WHAT = { masked: "became [MASK]", replaced: "became a random token", kept: "stayed as it was" };

export const training = {
  id: "training",
  name: "How it is trained",
  lead: "Pre-training hides 15 % of the tokens and asks for them: most become [MASK], some a random token, and some stay. The loss is the mean over the hidden tokens, plus the loss of the answer whether B follows A.",
  can: (model) => model.heads.includes("fill-mask") && model.heads.includes("next-sentence"),
  missing: "This needs a model with both heads of pre-training. tidybert ships one.",
  command: "tidybert page tidybert-small",
  fields: [
    { key: "text", label: "Segment A", rows: 3, example: "The river begins in the mountains and flows through the city. Many people lived on its banks in the early years of the century." },
    { key: "pair", label: "Segment B; it may be empty", rows: 3, example: "They built small houses and a church near the bridge." },
  ],
  async results(view) {
    const seed = view.number("seed", 1);
    const follows = view.values.follows !== "no";
    const found = await ask("training", { ...view.question("text", "pair"), seed, follows });
    const hidden = new Map(found.hidden.map((each) => [each.position, each]));
    const list = pieces(found.tokens.map((token, at) => ({ ...token, piece: found.read[at] })), {
      direction: directionOf(view.get("text")), boxed: found.tokens.length > 80,
      classOf: (token, at) => hidden.has(at) ? "b" : token.side === null ? "special" : "",
      below: (_, at) => hidden.has(at) ? [`${hidden.get(at).truth}`, WHAT[hidden.get(at).what].replace("became ", "→ ").replace(" as it was", "")] : [],
    });
    const counts = Object.keys(WHAT).map((what) => `${found.hidden.filter((each) => each.what === what).length} ${WHAT[what]}`);
    const losses = found.hidden.map((each) => number(each.loss, 2)).join(" + ");
    const pair = found.pair;
    return {
      nodes: [
        card(`${found.hidden.length} of ${found.tokens.length} tokens are to be guessed`,
          el("div", { class: "controls" },
            el("button", { type: "button", class: "plain", id: "again", on: { click: () => view.set({ seed: seed + 1 }) } }, "Draw other masks"),
            pair ? choice("follows", "The truth about B", [["yes", "B follows A"], ["no", "B is from elsewhere"]], follows ? "yes" : "no", (value) => view.set({ follows: value === "no" ? value : null })) : null,
            el("span", { class: "quiet" }, `Seed ${seed}`)),
          list, el("p", { class: "quiet" }, `What the model reads; below a hidden token is the truth. ${counts.join(", ")}. Of the hidden tokens 80 % become [MASK], 10 % a random token and 10 % stay, drawn one by one.`)),
        el("div", { class: "columns" },
          card("The loss of the words",
            table("The loss of a token is −ln of the probability that the model gave to the truth", ["position", "truth", "what happened", "likeliest", "probability", "loss"],
              found.hidden.map((each) => [each.position, each.truth, WHAT[each.what], each.likeliest, share(Math.exp(-each.loss)), each.loss])),
            el("p", { class: "sum" }, `(${losses}) ÷ ${found.hidden.length} = ${number(found.mean)}`)),
          card("The loss of the pair, and the sum",
            pair ? [
              el("p", {}, `The truth is that B ${pair.follows ? "follows A" : "is from elsewhere"}; the model gave it ${share(pair.probability)}.`),
              el("p", { class: "sum" }, `−ln ${number(pair.probability)} = ${number(pair.loss)}`),
              el("p", { class: "sum" }, `${number(found.mean)} + ${number(pair.loss)} = `, el("strong", {}, number(pair.sum))),
              el("p", { class: "quiet" }, "This sum is the loss of pre-training; its gradient moves every weight.")]
              : el("p", {}, `Without a segment B the loss is that of the words alone: ${number(found.mean)}.`))),
      ],
      python: found.python,
      data: found,
    };
  },
};
