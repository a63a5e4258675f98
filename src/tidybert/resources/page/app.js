// The frame: tabs, the choice of a model, light and dark, large type, export. A tab is an object:
//
//   id, name, lead    what it is called, and two sentences that say what is seen
//   can(model)        whether it works with a model
//   command, missing  what makes such a model, and what the model can do
//   then              what to do with it, where that is not tidybert page RUN
//   fields            its inputs: {key, label, example, rows}
//   ofRun             whether a RUN that can do it opens on it, with a text of its data
//   results(view)     a promise of {nodes, python, data} for the state; see View below
import { el, card, roving, directionOf, replace } from "./dom.js";
import { current, change, onChange } from "./address.js";
import { about, ask, useKey } from "./ask.js";
import { asHtml, asJson, asPng } from "./export.js";
import { applyLooks, looksButtons, onSystemLooks } from "./looks.js";
import { TABS } from "./tabs.js";

const TYPING = 250;
const KEPT = ["tab", "model", "text", "pair"];

const main = document.getElementById("view");
const settings = document.getElementById("settings");
let server = { models: [], ready: false };
let shown = null;
let number = 0;

/** The tab of the address; without one, that of the first model: a RUN's is that of its task. */
function tabOf(values) {
  const first = server.models.find((each) => each.name === values.model) ?? server.models[0];
  const able = first ? TABS.filter((each) => each.can(first)) : [];
  return TABS.find((each) => each.id === values.tab) ?? able.find((each) => each.ofRun) ?? able[0] ?? TABS[0];
}

/** Whether an open model can do what a tab shows. */
const isAble = (tab) => server.models.some(tab.can);

/** What a tab sees: its state with the examples as defaults, its model, and a way to change it. */
class View {
  constructor(tab, model, values, example) {
    this.tab = tab;
    this.model = model;
    this.values = values;
    this.example = example;
    this.width = results().clientWidth - 48;
  }

  /** A value of the state, of the model's data, or the example of its field. */
  get(key, otherwise = "") {
    return this.values[key] ?? this.example[key] ?? this.tab.fields.find((each) => each.key === key)?.example ?? otherwise;
  }

  /** A whole number of the state; null without one. */
  number(key, otherwise = null) {
    const found = this.values[key];
    return found !== undefined && /^\d+$/.test(found) ? Number(found) : otherwise;
  }

  /** The model and the texts, as every question begins. */
  question(...keys) {
    const filled = keys.map((key) => [key, this.get(key)]);
    return { model: this.model.name, ...Object.fromEntries(filled) };
  }

  set(changes, given) {
    change(changes, given);
  }
}

function drawSettings(tab, model) {
  const able = server.models.filter(tab.can);
  const models = able.length
    ? el("label", {}, "Model", el("select", { id: "model", on: { change: (event) => change({ ...kept(), model: event.target.value }, { remember: true }) } },
      able.map((each) => el("option", { value: each.name, selected: each === model }, each.name))))
    : null;
  const exports = [["HTML", "a page of its own", (name) => asHtml(main, name, model.name)], ["PNG", "a picture", (name) => asPng(main, name, model.name)], ["JSON", "the numbers", (name) => asJson({ tab: tab.id, model: model.name, state: current(), ...shown }, name)]];
  const menu = el("details", { class: "menu" }, el("summary", { class: "button", id: "export" }, "Save"),
    el("div", {}, exports.map(([kind, what, act]) => el("button", {
      type: "button", class: "plain", "data-export": kind,
      on: { click: async () => {
        menu.open = false;
        await act(`tidybert-${tab.id}`);
      } },
    }, `${kind}, ${what}`))));
  menu.addEventListener("keydown", (event) => {
    if (event.key === "Escape") menu.open = false;
  });
  replace(settings, [models, ...looksButtons(redraw), model ? menu : null]);
}

// --- the tabs

const kept = () => Object.fromEntries(Object.keys(current()).filter((key) => !KEPT.includes(key)).map((key) => [key, null]));

const list = document.getElementById("tabs");
let drawn = { tab: null, models: 0 };

/** The tabs that an open model can do; those for which there is none stand apart, at the end. */
function drawTabs(tab) {
  if (drawn.tab === tab && drawn.models === server.models.length) return;
  drawn = { tab, models: server.models.length };
  const able = TABS.filter(isAble);
  const others = TABS.filter((each) => !isAble(each));
  const buttons = [...able, ...others].map((each) => el("button", {
    role: "tab", id: `tab-${each.id}`, type: "button", "aria-selected": String(each === tab), "aria-controls": "view",
    tabindex: each === tab ? "0" : "-1", class: [!isAble(each) && "apart", each === others[0] && able.length && "first"].filter(Boolean).join(" ") || null,
    title: isAble(each) ? null : "No open model can do this",
    on: { click: () => change({ ...kept(), tab: each.id }, { remember: true }) },
  }, each.name));
  replace(list, buttons);
  const chosen = list.querySelector("[aria-selected=true]");
  list.scrollLeft = Math.max(0, chosen.offsetLeft - (list.clientWidth - chosen.offsetWidth) / 2);
  showEdges();
}

/** A sign at each edge behind which there are more tabs. */
function showEdges() {
  list.parentElement.toggleAttribute("data-before", list.scrollLeft > 1);
  list.parentElement.toggleAttribute("data-after", list.scrollLeft + list.clientWidth < list.scrollWidth - 1);
}

function fieldOf(field, view) {
  const id = `field-${field.key}`;
  let waiting = 0;
  const changed = (event) => {
    event.target.dir = directionOf(event.target.value);
    clearTimeout(waiting);
    waiting = setTimeout(() => change({ ...field.clears?.(), [field.key]: event.target.value }), TYPING);
  };
  const value = view.get(field.key);
  const given = { id, dir: directionOf(value), spellcheck: "false", autocomplete: "off", on: { input: changed } };
  const control = field.rows === 1 ? el("input", { type: "text", ...given }) : el("textarea", { rows: field.rows ?? 2, ...given });
  control.value = value;
  return el("div", { class: "field" }, el("label", { for: id }, field.label), control);
}

function missing(tab) {
  return card("No open model can do this",
    el("p", {}, tab.missing),
    withCopy(tab.command),
    el("p", { class: "quiet" }, tab.then ?? "Then open the page with that model: tidybert page RUN."));
}

/** A block of code with a button that copies it. */
function withCopy(text) {
  const button = el("button", { type: "button", class: "plain", on: { click: async () => {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  } } }, "Copy");
  return el("div", { class: "with-copy" }, el("pre", { tabindex: "0" }, el("code", {}, text)), button);
}

let place = { key: "", results: null };

/** Where the results are, or will be. */
const results = () => place.results ?? main;

function modelFor(tab, values) {
  const able = server.models.filter(tab.can);
  return able.find((each) => each.name === values.model) ?? able[0] ?? null;
}

async function redraw() {
  applyLooks();
  const values = current();
  const tab = tabOf(values);
  const model = modelFor(tab, values);
  const mine = ++number;
  const example = await exampleFor(tab, model);
  if (mine !== number) return;
  drawSettings(tab, model);
  drawTabs(tab);
  document.title = `${tab.name}: tidybert`;
  const view = new View(tab, model, values, example);
  const key = `${tab.id} ${model?.name}`;
  if (place.key !== key) drawPlace(tab, model, view, key);
  fillFields(tab, view);
  if (!model) return;
  place.results.setAttribute("aria-busy", "true");
  let found;
  try {
    found = await tab.results(view);
  } catch (error) {
    found = { nodes: [refusal(error)], python: null, data: null };
  }
  if (mine !== number) return;
  shown = { data: found.data, python: found.python };
  replace(place.results, [found.nodes, found.python ? card("The same in Python", withCopy(found.python)) : null]);
  place.results.setAttribute("aria-busy", "false");
}

/** A text of the data that trained a RUN, by field; empty where the server shows none. */
async function exampleFor(tab, model) {
  if (!tab.ofRun || !model?.task) return {};
  try {
    return await ask("example", { model: model.name });
  } catch {
    return {};
  }
}

function drawPlace(tab, model, view, key) {
  main.setAttribute("aria-labelledby", `tab-${tab.id}`);
  const results = el("div", { class: "results", id: "results", "aria-busy": "true" }, el("p", { class: "quiet" }, "Computing …"));
  const fields = model && tab.fieldsOf ? tab.fieldsOf(model) : tab.fields;
  const form = el("form", { class: fields.length > 1 && !tab.tall ? "inputs two" : "inputs", on: { submit: (event) => event.preventDefault() } },
    fields.map((each) => fieldOf(each, view)));
  main.replaceChildren(el("h1", {}, tab.name), el("p", { class: "lead" }, tab.lead), ...(model ? [form, results] : [missing(tab)]));
  place = { key, results };
}

/** A step back in the history changes the fields too; a field that is typed in is left alone. */
function fillFields(tab, view) {
  for (const field of tab.fields) {
    const control = document.getElementById(`field-${field.key}`);
    if (control && control !== document.activeElement && control.value !== view.get(field.key)) control.value = view.get(field.key);
  }
}

function refusal(error) {
  if (error.status === undefined) console.error(error);
  const message = error.status === undefined ? `The page failed: ${error.message}` : error.message;
  const asks = error.status === 401 ? keyForm() : null;
  return el("section", { class: "card wrong", role: "alert" }, el("p", {}, message), asks);
}

function keyForm() {
  const field = el("input", { type: "password", id: "key", autocomplete: "off" });
  return el("form", { on: { submit: (event) => {
    event.preventDefault();
    useKey(field.value);
    start();
  } } }, el("label", { for: "key" }, "API key"), field, " ", el("button", { class: "plain" }, "Use this key"));
}

// --- the beginning

async function start() {
  applyLooks();
  try {
    server = await about();
  } catch (error) {
    main.replaceChildren(refusal(error));
    return;
  }
  redraw();
  // The server listens before it has opened its models.
  if (!server.ready) setTimeout(start, 300);
}

onChange(redraw);
onSystemLooks(redraw);
let resizing = 0;
addEventListener("resize", () => {
  clearTimeout(resizing);
  resizing = setTimeout(() => { showEdges(); redraw(); }, 150);
});
list.addEventListener("scroll", showEdges);
roving(list, "[role=tab]", 0);
start();
