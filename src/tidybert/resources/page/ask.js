// Questions to the server. Answers are remembered, so a view that is drawn again asks nothing.

const answers = new Map();
const REMEMBERED = 200;
const KEY = "tidybert-key";

/** An error that the user can read. */
export class Refused extends Error {
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

/** Remembers an API key until the window is closed. */
export const useKey = (key) => sessionStorage.setItem(KEY, key);

/** The response to a request; throws Refused. */
export async function sent(path, given, again = "Start it again with tidybert page.") {
  const key = sessionStorage.getItem(KEY);
  const headers = { ...given.headers, ...(given.body ? { "Content-Type": "application/json" } : {}), ...(key ? { Authorization: `Bearer ${key}` } : {}) };
  let response;
  try {
    response = await fetch(path, { ...given, headers });
  } catch {
    throw new Refused(`The server does not answer. ${again}`, 0);
  }
  if (response.ok) return response;
  const found = await response.json().catch(() => ({}));
  throw new Refused(found.error?.message ?? `The server answered with status ${response.status}.`, response.status);
}

/** Whether a model reads both sides, as BERT does, and not from left to right alone. */
export const isBert = (model) => !model.heads.includes("generate");

/** What the server has. */
export const about = async () => (await sent("/page/about", {})).json();

/** The answer of a view; the same question gets the same promise. */
export const ask = (view, question, { binary = false } = {}) => asked(`/page/${view}`, question, binary);

/** The texts of the server's index that are nearest to a query. */
export const searched = (query) => asked("/search", { inputs: query }, false);

function asked(path, question, binary) {
  const body = JSON.stringify(question);
  const name = `${path} ${body}`;
  if (!answers.has(name)) {
    const answer = sent(path, { method: "POST", body })
      .then((response) => (binary ? response.arrayBuffer() : response.json()));
    // A failure may pass.
    answer.catch(() => answers.delete(name));
    answers.set(name, answer);
    if (answers.size > REMEMBERED) answers.delete(answers.keys().next().value);
  }
  return answers.get(name);
}
