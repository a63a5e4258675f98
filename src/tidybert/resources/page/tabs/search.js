import { searched } from "../ask.js";
import { card, el, number } from "../dom.js";

const counted = (count) => `${count.toLocaleString("en")} ${count === 1 ? "text" : "texts"}`;
const written = (value) => (typeof value === "object" ? JSON.stringify(value) : String(value));

/** A text that was found: the number of the list is its rank. */
function entry(hit) {
  const cosine = number(hit.score);
  const place = (rank) => rank ?? "not among the first";
  const ranks = hit.fused === undefined ? [] : [["by words", place(hit.rank_words)], ["by meaning", place(hit.rank_meaning)]];
  const facts = [...ranks, ["row", hit.row], ...Object.entries(hit.columns)];
  return el("li", {},
    el("p", { dir: "auto" }, hit.text),
    el("div", { class: "bar cosine" }, el("span", {}, `cosine ${cosine}`),
      el("i", { class: hit.score < 0 ? "second" : null, style: { width: `${Math.min(100, 100 * Math.abs(hit.score))}%` } })),
    el("dl", { class: "facts" }, facts.map(([name, value]) => el("div", {}, el("dt", { dir: "auto" }, name), el("dd", { dir: "auto" }, written(value))))));
}

export const search = {
  id: "search",
  name: "Search",
  lead: "The model makes one vector of the query and compares it with the vector of every text of an index. The cosine says how near two vectors are: it is 1 where they point the same way. An index with words also ranks the texts by the words of the query (BM25), and the list has the order of both.",
  can: (model) => model.index !== null,
  missing: "A search needs an index of texts, made by one of the open models.",
  command: "tidybert index minilm FILE --out DIR",
  then: "Then open the page with that index: tidybert page --index DIR.",
  fields: [{ key: "query", label: "Query", rows: 1, example: "where is my bill" }],
  async results(view) {
    const query = view.get("query");
    const hits = await searched(query);
    const { texts, opened } = view.model.index;
    return {
      nodes: [card("The nearest texts",
        el("p", { class: "quiet" }, hits.length < texts ? `The first ${hits.length} of ${counted(texts)} in the index.` : `The index has ${counted(texts)}.`),
        el("ol", { class: "hits" }, hits.map(entry)))],
      // Python reads a string of JSON as the same string.
      python: `from tidybert import Index\n\nindex = ${opened}\nfor hit in index.search(${JSON.stringify(query)}):\n    print(round(hit.score, 3), hit.row, hit.text, hit.columns)\n`,
      data: { query, texts, hits },
    };
  },
};
