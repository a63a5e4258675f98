import { ask } from "../ask.js";
import { bars, card, directionOf, el, number, pieces, share } from "../dom.js";

export const answer = {
  id: "answer",
  name: "Answer",
  lead: "The model gives each token of the text two scores: how well an answer begins there, and how well it ends there. The answer is the stretch whose two scores add up to most.",
  ofRun: true,
  can: (model) => model.task === "answer",
  missing: "Answers need a model that was fine-tuned on questions, such as those of SQuAD.",
  command: "tidybert finetune answer minilm --train questions.json --dev questions-dev.json --out answers",
  tall: true,
  fields: [
    { key: "question", label: "Question", rows: 1, example: "Where do the penguins live?" },
    { key: "text", label: "Text", rows: 4, example: "The penguins live on a small island in the south. In winter they walk for days to reach the sea, where they find fish and squid." },
  ],
  async results(view) {
    const given = view.question("text", "question");
    const found = await ask("answer", given);
    const characters = Array.from(given.text);
    const direction = directionOf(given.text);
    const marked = found.answer
      ? el("p", { class: "source", dir: direction }, characters.slice(0, found.start).join(""), el("mark", {}, characters.slice(found.start, found.end).join("")), characters.slice(found.end).join(""))
      : el("p", { class: "source", dir: direction }, given.text);
    const scores = found.pieces.flatMap((each) => each.scores);
    const [low, high] = [Math.min(...scores), Math.max(...scores)];
    const bar = (value, second) => el("i", { class: second ? "meter second" : "meter", style: { height: `${(100 * (value - low)) / (high - low || 1)}%` } });
    const list = pieces(found.pieces.map((each) => ({ piece: each.text, side: 0, segment: 0 })), {
      direction, boxed: true,
      classOf: (_, at) => (found.answer && found.pieces[at].start >= found.start && found.pieces[at].end <= found.end ? "a" : ""),
      below: (_, at) => [el("span", { class: "meters", "aria-hidden": "true" }, bar(found.pieces[at].scores[0]), bar(found.pieces[at].scores[1], true)), number(found.pieces[at].scores[0], 1), number(found.pieces[at].scores[1], 1)],
    });
    const runners = found.n_best.map((each, at) => ({ name: each.answer, value: each.score, marked: at === 0 && Boolean(found.answer) }));
    if (found.null_score !== undefined && found.null_score !== null) runners.push({ name: "no answer", value: found.null_score, second: true, marked: !found.answer });
    return {
      nodes: [
        el("div", { class: "columns" },
          card("The answer", el("p", { class: "number-large" }, el("span", { dir: "auto" }, found.answer || "No answer")), el("p", { class: "quiet" }, `probability ${share(found.score)}`), marked),
          card("The runners-up", bars("Probability among all stretches of the text", runners, { most: 1 }),
            found.null_score === null ? el("p", { class: "quiet" }, "Every question that trained this model had an answer, so it always gives one.") : null)),
        card("Start and end scores", list,
          el("p", { class: "quiet" }, el("span", { class: "key" }, el("i", { class: "fill" }), "upper number: start score"), el("span", { class: "key" }, el("i", { class: "fill second" }), "lower number: end score"),
            found.windows > 1 ? `The text is read in ${found.windows} windows.` : null)),
      ],
      python: found.python,
      data: found,
    };
  },
};
