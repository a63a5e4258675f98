// The page for labelling: one text, a key a class, and what the model believes. Every answer is a
// request, and the response is the whole of what to show next, so the page keeps no labels itself.
import { el, card, directionOf, replace, share } from "./dom.js";
import { sent } from "./ask.js";
import { applyLooks, looksButtons, onSystemLooks } from "./looks.js";

const LONG = 600;
const POLL = 700;
const TOKEN = document.querySelector("meta[name=tidybert-token]").content;
const AGAIN = "Start tidybert label again: no answer is lost.";

const main = document.getElementById("view");
let view = null;
let chosen = new Set();
let panel = null;
let ticked = new Set();
// Where words are marked: [first, last, type] each, and the selected words, from one to another.
let marks = [];
let from = 0;
let to = 0;
let differing = [];
let busy = false;
let keysOn = true;
let news = { text: "", wrong: false };
let polling = 0;

const counted = (count, noun) => `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;

// --- requests

async function post(act, body = {}) {
  const response = await sent(`/label/${act}`, {
    method: "POST", body: JSON.stringify(body), headers: { "X-Tidybert-Token": TOKEN },
  }, AGAIN);
  return response.json();
}

/** Asks the server to do something and shows what is then; said is a sentence for the user. */
async function act(name, body, said = "") {
  if (busy) return;
  busy = true;
  main.toggleAttribute("data-busy", true);
  const before = view?.item?.number;
  try {
    view = await post(name, body);
    news = { text: [said, view.said].filter(Boolean).join(". "), wrong: false };
    if (view.errors) differing = view.errors;
    if (view.item?.number !== before) ticked = new Set();
    begin();
  } catch (error) {
    if (error.status === undefined) console.error(error);
    news = { text: error.message, wrong: true };
  }
  busy = false;
  main.toggleAttribute("data-busy", false);
  draw();
}

/** Begins with what was said of the text before. */
function begin() {
  chosen = new Set(view.item?.labels ?? []);
  marks = [...(view.item?.entities ?? [])];
  from = to = 0;
}

/** Asks again while something goes on that ends by itself. */
function poll() {
  clearTimeout(polling);
  const learns = !view?.corrects && !view?.marks && view?.learned < view?.labelled;
  if (view?.encoding || view?.training?.state === "running" || (learns && document.hasFocus())) polling = setTimeout(refresh, POLL);
}

async function refresh() {
  if (busy) return poll();
  try {
    const found = await post("view");
    // An answer may have been given meanwhile, and a class may be typed that no answer has yet.
    if (!busy) view = { ...found, classes: [...found.classes, ...view.classes.slice(found.classes.length)], item: found.item?.number === view.item?.number ? found.item : view.item };
    if (view.said) news = { text: view.said, wrong: false };
  } catch (error) {
    news = { text: error.message, wrong: true };
  }
  draw();
}

// --- what a person does

function answer(labels, status = "labelled") {
  const { item } = view;
  if (!item) return;
  const also = status === "labelled" ? [...ticked] : [];
  if (panel === "many") panel = null;
  const what = { labelled: view.marks ? `Kept, ${marks.length} marked` : `Labelled ${labels.join(", ")}`, none: "None of these", skipped: "Skipped" }[status];
  act("answer", { number: item.number, labels, status, also, marks }, also.length ? `${what}, ${counted(also.length + 1, "text")}` : what);
}

function choose(name) {
  if (view.marks) mark(name);
  else if (!view.several) return answer([name]);
  else if (chosen.has(name)) chosen.delete(name);
  else chosen.add(name);
  if (!view.classes.some((each) => each.name === name)) view.classes.push({ name, key: view.keys[view.classes.length] ?? "", count: 0 });
  draw();
}

const selected = () => [Math.min(from, to), Math.max(from, to)];

/** Marks the selected words, in place of the marks that they touch; once more, or without a type, takes them off. */
function mark(type) {
  const [first, last] = selected();
  const again = marks.some((each) => each[0] === first && each[1] === last && each[2] === type);
  marks = marks.filter((each) => each[1] < first || each[0] > last);
  if (type && !again && view.item.words.length) marks.push([first, last, type]);
  document.getElementById("words")?.focus({ preventScroll: true });
  draw();
}

function select(number, extend) {
  to = Math.max(0, Math.min(view.item.words.length - 1, number));
  if (!extend) from = to;
  draw();
  document.getElementById(`word-${to}`)?.scrollIntoView({ block: "nearest" });
}

const unmarked = () => { marks = []; keep(); };
const keep = () => (view.marks ? answer([]) : view.corrects ? answer([view.item.suspect.label]) : chosen.size ? answer([...chosen]) : answer([], "none"));
const back = () => view.canGoBack && act("back", {}, "Taken back");

function toggle(name) {
  panel = panel === name ? null : name;
  if (panel === "errors") return act("errors", {});
  draw();
  if (panel) document.querySelector(`#panel input, #panel button`)?.focus();
}

document.addEventListener("keydown", (event) => {
  const { target, key } = event;
  if (!view || event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
  const isTyping = target.matches("input:not([type=checkbox]), textarea, select");
  if (key === "Escape" && (panel || isTyping)) {
    panel = null;
    target.blur();
    return draw();
  }
  if (isTyping || !keysOn || (!view.item && key !== "Backspace")) return;
  const named = view.classes.find((each) => each.key === key.toLowerCase() && each.key);
  const acts = {
    0: () => (view.marks ? unmarked() : !view.corrects && answer([], "none")), s: () => answer([], "skipped"), n: () => view.item.near.length && toggle("many"),
    Backspace: back, "/": () => document.getElementById("name").focus(),
  };
  if (view.marks && view.item) {
    const forward = directionOf(view.item.texts[0]) === "rtl" ? -1 : 1;
    const go = { ArrowRight: to + forward, ArrowLeft: to - forward, Home: 0, End: view.item.words.length - 1 };
    for (const [name, number] of Object.entries(go)) acts[name] = () => select(number, event.shiftKey);
    acts.Delete = () => mark("");
  }
  if (named) choose(named.name);
  else if (acts[key]) acts[key]();
  else if (key === "Enter" && (view.several || view.corrects || view.marks) && !target.matches("button, a, summary, input")) keep();
  else return;
  event.preventDefault();
});

// --- what is shown

const key = (name) => el("kbd", { "aria-hidden": "true" }, name);

function button(id, name, shortcut, click, given = {}) {
  return el("button", { type: "button", class: "plain", id, "aria-keyshortcuts": shortcut, on: { click }, ...given }, name, shortcut ? key({ Backspace: "⌫", Enter: "↵" }[shortcut] ?? shortcut) : null);
}

function asked(item) {
  if (!item) return [el("h2", {}, "Every text has been asked"), el("p", {}, "Take the last answer back, see where model and labels differ, or train.")];
  const how = view.corrects ? null : item.drawn === "random" ? `drawn at random${view.marks ? "" : ": it measures the model"}` : "chosen: it teaches the model";
  const marks = [`line ${item.row}`, how, item.status && `answered: ${item.status === "labelled" ? item.labels.join(", ") || "nothing marked" : item.status}`];
  return [
    el("p", { class: "place" }, marks.filter(Boolean).map((each) => el("span", {}, each))),
    item.words ? words(item) : item.texts.map((each) => el("p", { class: each.length > LONG ? "asked long" : "asked", dir: directionOf(each), tabindex: each.length > LONG ? "0" : null }, each)),
    item.suspect ? el("p", { class: "quiet" }, `The label is ${item.suspect.label}. `, item.suspect.suggested ? `The probe says ${item.suspect.suggested}. ` : "", item.suspect.why ? `Why it is here: ${item.suspect.why}.` : "") : null,
  ];
}

/** The words of a text, to select by the mouse, a finger or the arrow keys. */
function words(item) {
  const under = (event) => document.elementFromPoint(event.clientX, event.clientY)?.closest("[data-word]");
  const take = (event, extend) => under(event) && select(Number(under(event).dataset.word), extend);
  const on = {
    pointerdown: (event) => { if (!event.button) take(event, event.shiftKey); },
    pointermove: (event) => { if (event.buttons & 1) take(event, true); },
  };
  const given = { id: "words", role: "listbox", tabindex: "0", "aria-multiselectable": "true", "aria-label": "Words", dir: directionOf(item.texts[0]), on };
  return [
    el("div", { class: item.texts[0].length > LONG ? "asked words long" : "asked words", ...given }, item.words.map(([gap, word], at) => [
      el("span", {}, gap), el("span", { id: `word-${at}`, role: "option", "data-word": at }, word, el("small"))]), item.after),
    el("p", { class: "quiet" }, "Select words with the mouse, or with ← → and Shift; then press the key of a type. Delete takes a mark off."),
  ];
}

/** Shows what is selected and marked, in the words that are there. */
function paint() {
  const [first, last] = selected();
  const all = document.querySelectorAll("[data-word]");
  all.forEach((node, at) => {
    const own = marks.find((each) => each[0] <= at && at <= each[1]);
    node.setAttribute("aria-selected", String(first <= at && at <= last));
    node.className = own ? "marked" : "";
    node.previousSibling.className = own && own[0] < at ? "marked" : "";
    const type = own?.[1] === at ? own[2] : "";
    if (node.lastChild.textContent !== type) node.lastChild.textContent = type;
  });
  document.getElementById("words")?.setAttribute("aria-activedescendant", all.length ? `word-${to}` : "");
}

function classes(item) {
  const bare = !item?.beliefs;
  const rows = view.classes.map((each, at) => {
    const belief = item?.beliefs?.[at] ?? null;
    const pressed = view.marks ? marks.some((mark) => mark[0] <= to && to <= mark[1] && mark[2] === each.name) : view.several ? chosen.has(each.name) : Boolean(item?.labels.includes(each.name));
    return el("li", {}, el("button", { type: "button", id: `class-${at}`, "aria-keyshortcuts": each.key || null, "aria-pressed": String(pressed), disabled: !item, on: { click: () => choose(each.name) } },
      each.key ? key(each.key) : el("span"),
      el("span", { dir: "auto" }, each.name),
      bare ? el("span", { class: "belief" }, [item?.suspect?.label === each.name && ", the label now", item?.suspect?.suggested === each.name && ", the probe's"].filter(Boolean).join("").slice(2)) : [
        el("span", { class: "bar", "aria-hidden": "true" }, el("i", { style: { width: `${100 * (belief ?? 0)}%` } })),
        el("span", { class: "belief" }, belief === null ? "" : [el("span", { class: "hidden" }, ", the model believes "), share(belief)]),
      ]));
  });
  return el("ul", { class: bare ? "classes bare" : "classes", "aria-label": "Classes" }, rows);
}

function nameField() {
  const input = el("input", { type: "text", id: "name", list: "names", autocomplete: "off", "aria-keyshortcuts": "/" });
  return el("form", { class: "acts", on: { submit: (event) => {
    event.preventDefault();
    const name = input.value.trim();
    if (!name || busy) return;
    const known = view.classes.find((each) => each.name.toLowerCase() === name.toLowerCase());
    input.value = "";
    input.blur();
    choose(known?.name ?? name);
  } } }, el("label", { class: "new" }, view.corrects ? "Class by name" : view.marks ? "Type by name, or a new one" : "Class by name, or a new one", input, key("/")),
  el("datalist", { id: "names" }, view.classes.map((each) => el("option", { value: each.name }))));
}

function acts(item) {
  return [
    view.several && item ? button("keep", "Keep these", "Enter", keep) : null,
    view.corrects && item ? button("keep", "Keep the label", "Enter", keep) : null,
    view.marks && item ? [button("keep", "Keep", "Enter", keep), button("none", "No entities", "0", unmarked)] : null,
    view.corrects || view.several || view.marks ? null : button("none", "None of these", "0", () => answer([], "none"), { disabled: !item }),
    button("skip", "Skip", "s", () => answer([], "skipped"), { disabled: !item }),
    button("back", "Back", "Backspace", back, { disabled: !view.canGoBack }),
    item?.near.length ? button("near", "Near texts", "n", () => toggle("many"), { "aria-expanded": String(panel === "many"), "aria-controls": "panel" }) : null,
  ];
}

function many(item) {
  return card("Label near texts at once",
    el("p", { class: "quiet" }, "Tick the texts that belong to the class of the one above. The next class that you choose is for all of them."),
    el("ul", { class: "many" }, item.near.map((each) => el("li", {}, el("label", {},
      el("input", { type: "checkbox", id: `near-${each.number}`, checked: ticked.has(each.number), on: { change: (event) => (event.target.checked ? ticked.add(each.number) : ticked.delete(each.number)) } }),
      el("span", { dir: "auto" }, each.texts.join(" / ")))))),
    button("tick-all", "Tick all", "", () => { item.near.forEach((each) => ticked.add(each.number)); draw(); }));
}

function errors() {
  const rows = differing.map((each) => el("li", {},
    el("p", { dir: "auto" }, each.text.slice(0, 400)),
    el("p", { class: "quiet" }, `Labelled ${each.label}; the model believes ${each.believed} (${share(each.probability)})${each.drawn === "random" ? "; drawn at random" : ""}`),
    button(`again-${each.number}`, "Ask again", "", () => { panel = null; act("show", { number: each.number }); document.getElementById("text").focus(); })));
  return card("Where the model and the labels differ",
    el("p", { class: "quiet" }, "Models that did not see the label disagree with it, the surest first. The label may be wrong, or the text hard."),
    rows.length ? el("ul", { class: "differing" }, rows) : el("p", {}, "Nowhere."));
}

const far = (part) => el("div", { class: "far", "aria-hidden": "true" }, el("i", { style: { width: `${100 * part}%` } }));

function training() {
  const found = view.training;
  if (!found) return null;
  const state = { running: `Training for ${found.seconds} s`, done: `Trained: ${found.run}`, failed: "The training failed" }[found.state];
  return [
    el("p", { role: "status" }, state),
    found.share === null ? null : far(found.share),
    found.report ? el("p", {}, el("a", { href: "/label/report", target: "_blank", rel: "noopener" }, "The report, in a new tab")) : null,
    el("pre", { class: "lines", tabindex: "0", "aria-label": "What the training says" }, found.lines.join("\n")),
  ];
}

function beside() {
  const all = view.labelled + view.none + view.skipped + view.left;
  const { accuracy, encoding } = view;
  const percent = (part) => (100 * part).toFixed(0);
  return [
    card("So far",
      el("p", { class: "count" }, view.labelled.toLocaleString("en")),
      el("p", { class: "quiet" }, `${view.corrects ? "looked at" : "labelled"} of ${counted(all, "text")}; ${view.none ? `${view.none} of no class, ` : ""}${view.skipped} skipped${view.equal ? `; ${counted(view.equal, "equal text")} not asked` : ""}`),
      far(all ? (all - view.left) / all : 0),
      el("p", { class: "quiet" }, `Every answer is in ${view.out}.`)),
    view.corrects ? null : card("The model",
      encoding ? el("p", {}, `Reading the texts: ${encoding[0].toLocaleString("en")} of ${encoding[1].toLocaleString("en")}. You can label already.`)
        : view.marks ? el("p", { class: "quiet" }, "It reads no text before you train it: all texts come at random.")
        : accuracy ? [el("p", { class: "count" }, `${percent(accuracy.low)} to ${percent(accuracy.high)}%`), el("p", { class: "quiet" }, `are right, of all texts: measured on ${counted(accuracy.count, "text")} drawn at random, which it did not learn from`)]
          : el("p", { class: "quiet" }, `Its accuracy shows from 5 labelled texts on that were drawn at random; there are ${view.random}.`),
      el("div", { class: "stack" },
        view.marks ? null : button("errors", "See errors", "", () => toggle("errors"), { "aria-expanded": String(panel === "errors"), "aria-controls": "panel", disabled: !view.learned }),
        button("train", view.training?.state === "running" ? "Training …" : "Train now", "", () => act("train", {}, "The training has begun; go on meanwhile"), { disabled: view.training?.state === "running" || view.labelled < 2 })),
      training()),
    el("p", {}, el("label", {}, el("input", { type: "checkbox", id: "keys-on", checked: keysOn, on: { change: (event) => { keysOn = event.target.checked; } } }), " Single keys act")),
  ];
}

// The parts stay, so that a screen reader hears what changes in them.
const parts = {
  news: el("p", { class: "news", role: "status" }),
  text: el("section", { class: "card", id: "text", tabindex: "-1", "aria-live": "polite", "aria-label": "The text" }),
  classes: el("div"), acts: el("div", { class: "acts" }), name: el("div"),
  panel: el("div", { id: "panel" }), beside: el("aside", { "aria-label": "How far it is" }),
};
let shownText = null;
let shownName = null;

function draw() {
  applyLooks();
  replace(document.getElementById("settings"), looksButtons(draw));
  if (!view) return;
  if (parts.news.textContent !== news.text) parts.news.textContent = news.text;
  parts.news.classList.toggle("wrong", news.wrong);
  const { item } = view;
  const text = JSON.stringify([item?.number, item?.status, view.classes.length]);
  if (text !== shownText) replace(parts.text, asked(item));
  shownText = text;
  if (item?.words) paint();
  replace(parts.classes, [classes(item)]);
  replace(parts.acts, acts(item));
  // What is being typed stays.
  const names = JSON.stringify(view.classes.map((each) => each.name));
  if (names !== shownName) replace(parts.name, [nameField()]);
  shownName = names;
  parts.name.hidden = !item;
  replace(parts.panel, [panel === "many" && item ? many(item) : panel === "errors" ? errors() : null]);
  replace(parts.beside, beside());
  poll();
}

async function start() {
  applyLooks();
  try {
    view = await post("view");
  } catch (error) {
    main.replaceChildren(el("section", { class: "card wrong", role: "alert" }, el("p", {}, error.message)));
    return;
  }
  begin();
  news = { text: view.said, wrong: false };
  document.title = `${view.corrects ? "Correct" : "Label"} ${view.file}: tidybert`;
  main.replaceChildren(el("h1", {}, `${view.corrects ? "Correct" : "Label"} ${view.file}`), parts.news,
    el("div", { class: "labelling" }, el("div", {}, parts.text, parts.classes, parts.acts, parts.name, parts.panel), parts.beside));
  draw();
}

onSystemLooks(draw);
start();
