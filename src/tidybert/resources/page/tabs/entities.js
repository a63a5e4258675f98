import { ask } from "../ask.js";
import { card, directionOf, el, pieces, share, table } from "../dom.js";

/** The text with its entities marked; places count characters. */
function marked(text, entities) {
  const characters = Array.from(text);
  const nodes = [];
  let done = 0;
  for (const each of entities) {
    nodes.push(characters.slice(done, each.start).join(""),
      el("mark", {}, characters.slice(each.start, each.end).join(""), el("small", {}, each.type)));
    done = each.end;
  }
  return el("p", { class: "source", dir: directionOf(text) }, nodes, characters.slice(done).join(""));
}

export const entities = {
  id: "entities",
  name: "Entities",
  lead: "The model gives every word a tag, read at the word's first token. B- begins an entity, I- continues it, and O is outside of all.",
  ofRun: true,
  can: (model) => model.task === "tag",
  missing: "Entities need a model that was fine-tuned on tagged words, such as those of CoNLL-2003.",
  command: "tidybert finetune tag minilm --train people.conll --dev people-dev.conll --out people",
  tall: true,
  fields: [{ key: "text", label: "Text", example: "Zoë Smith left Rome for the United Nations in New York." }],
  async results(view) {
    const question = view.question("text");
    const found = await ask("entities", question);
    const list = pieces(found.words.map((word) => ({ piece: word, side: 0, segment: 0 })), {
      direction: directionOf(question.text), boxed: found.words.length > 60,
      classOf: (_, at) => (found.tags[at] === "O" ? "" : "a"), below: (_, at) => found.tags[at],
    });
    return {
      nodes: [
        found.entities ? card(found.entities.length === 1 ? "1 entity" : `${found.entities.length} entities`, marked(question.text, found.entities),
          found.entities.length ? table("Mean probability of an entity's tags", ["entity", "type", "probability"], found.entities.map((each) => [each.text, each.type, share(each.score)])) : null) : null,
        card("The tag of each word", list),
      ],
      python: found.python,
      data: found,
    };
  },
};
