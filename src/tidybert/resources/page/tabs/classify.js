import { ask } from "../ask.js";
import { bars, card, el, number, share } from "../dom.js";

const COLUMNS = [
  ["gradients", "integrated gradients"],
  ["quick", "gradient × input"],
  ["removed", "left out"],
  ["attention", "attention of [CLS]"],
];

function answers(found, title) {
  if (found.scores === null) {
    return card(title, el("p", { class: "number-large" }, number(found.value)));
  }
  const rows = Object.entries(found.scores).map(([name, value]) => ({ name, value, marked: found.labels.includes(name) })).sort((one, other) => other.value - one.value);
  return card(title, bars("Calibrated probabilities", rows.slice(0, 12), { most: 1 }), rows.length > 12 ? el("p", { class: "quiet" }, `${rows.length - 12} less likely labels are not shown.`) : null);
}

function attributed(found, view) {
  const most = Object.fromEntries(COLUMNS.map(([key]) => [key, Math.max(1e-9, ...found.words.map((each) => Math.abs(each[key] ?? 0)))]));
  const without = view.number("without");
  const rows = found.words.map((word, at) => el("tr", {},
    el("th", { scope: "row", dir: "auto" }, word.text),
    COLUMNS.map(([key, name]) => el("td", { class: "bar signed", "data-name": name },
      el("i", { class: word[key] < 0 ? "second" : null, style: { width: `${(50 * Math.abs(word[key] ?? 0)) / most[key]}%` } }),
      el("span", {}, word[key] === null ? "–" : number(word[key], 2)))),
    el("td", {}, el("button", {
      type: "button", class: "plain", id: `without-${at}`, "aria-pressed": String(at === without), "aria-label": `Delete ${word.text} and run again`,
      on: { click: () => view.set({ without: at === without ? null : at }) },
    }, "Delete"))));
  return el("div", { class: "scroll tall", tabindex: "0", role: "region", "aria-label": "What each word adds" },
    el("table", { class: "attributions" }, el("caption", {}, `What raised the score of ${found.target}`),
      el("thead", {}, el("tr", {}, ["word", ...COLUMNS.map(([, name]) => name), ""].map((name) => name ? el("th", { scope: "col" }, name) : el("td", {})))),
      el("tbody", {}, rows)));
}

export const classify = {
  id: "classify",
  name: "Classify",
  lead: "A fine-tuned model gives each label a probability, and attributions say how much each word raised the answer. Attention need not be an explanation: delete a word and run again to check what either of them says.",
  ofRun: true,
  can: (model) => ["classify", "multi-label", "regress"].includes(model.task),
  missing: "This needs a model that was fine-tuned on labelled texts. The quickstart makes one in a minute or two.",
  command: "tidybert quickstart",
  tall: true,
  fields: [
    { key: "text", label: "Text", example: "My invoice shows a fee that I never agreed to.", clears: () => ({ without: null }) },
    { key: "pair", label: "Second text", example: "", clears: () => ({ without: null }) },
  ],
  fieldsOf(model) {
    return model.inputs === "pair" ? this.fields : this.fields.slice(0, 1);
  },
  async results(view) {
    const question = { ...view.question("text"), pair: view.model.inputs === "pair" ? view.get("pair") : "" };
    const found = await ask("classify", { ...question, without: view.number("without") });
    const again = found.rerun;
    return {
      nodes: [
        el("div", { class: "columns" },
          answers(found, found.scores === null ? "The score" : found.labels.length ? `The answer: ${found.labels.join(", ")}` : "No label"),
          again ? answers(again, `Without “${again.word}”`) : card("Without a word", el("p", { class: "quiet" }, "Press Delete beside a word to run the model again without it."))),
        card("What each word adds", attributed(found, view),
          el("p", { class: "quiet" }, `Blue words speak for ${found.target}, orange ones against it. The numbers of the first three columns are in log-odds, ln(p ÷ (1 − p)); “left out” is what the score loses without the word. Attention is the last layer's, and it has no sign.`),
          el("p", { class: "quiet" }, `Completeness: integrated gradients of all tokens should add up to ${number(found.score - found.baseline, 2)}, the score less that of a text of [PAD]; they miss it by ${number(found.gap)}.`)),
      ],
      python: found.python,
      data: found,
    };
  },
};
