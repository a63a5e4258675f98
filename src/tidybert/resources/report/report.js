// Sorts tables by a click on a heading, filters long tables and lists of examples by a word, and
// copies the corrections of labels.
// Without it the page has the same content.
"use strict";

const LONG = 12;

function addFilter(target, items, label) {
  const box = document.createElement("label");
  const input = document.createElement("input");
  input.type = "search";
  box.className = "filter";
  box.append(`Filter: ${label}`, input);
  input.addEventListener("input", () => {
    const word = input.value.toLocaleLowerCase();
    for (const item of items) {
      item.hidden = !item.textContent.toLocaleLowerCase().includes(word);
    }
    // The map of topics shows which of them are left.
    for (const dot of document.querySelectorAll("[data-topic]")) {
      const topic = document.getElementById(`topic-${dot.dataset.topic}`);
      dot.classList.toggle("away", topic.hidden);
    }
  });
  target.before(box);
}

function valueOf(row, column) {
  const cell = row.cells[column];
  const number = Number(cell.dataset.value ?? NaN);
  return Number.isNaN(number) ? cell.textContent : number;
}

function compare(a, b) {
  return typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(b);
}

function makeSortable(table) {
  const body = table.tBodies[0];
  const headings = [...table.tHead.rows[0].cells];
  headings.forEach((heading, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...heading.childNodes);
    heading.append(button);
    button.addEventListener("click", () => {
      const down = heading.getAttribute("aria-sort") === "ascending";
      headings.forEach((each) => each.removeAttribute("aria-sort"));
      heading.setAttribute("aria-sort", down ? "descending" : "ascending");
      const rows = [...body.rows];
      rows.sort((a, b) => (down ? -1 : 1) * compare(valueOf(a, column), valueOf(b, column)));
      body.append(...rows);
    });
  });
}

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // A page that came over plain HTTP has no clipboard of that kind.
    const field = document.createElement("textarea");
    field.value = text;
    document.body.append(field);
    field.select();
    document.execCommand("copy");
    field.remove();
  }
}

// Each item has a CSV of one row. The clipboard has one header, and the rows of all that are pressed.
function addCopies(items) {
  const chosen = new Set();
  const said = document.createElement("p");
  said.className = "copied";
  said.setAttribute("role", "status");
  for (const item of items) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "copy";
    button.textContent = "Copy correction";
    button.setAttribute("aria-pressed", "false");
    button.addEventListener("click", async () => {
      if (!chosen.delete(item)) chosen.add(item);
      button.setAttribute("aria-pressed", String(chosen.has(item)));
      const parts = items.filter((each) => chosen.has(each)).map((each) => each.dataset.corrected);
      await copy(parts.map((part, at) => (at ? part.slice(part.indexOf("\n") + 1) : part)).join(""));
      button.textContent = chosen.has(item) ? "Copied" : "Copy correction";
      const corrections = chosen.size === 1 ? "correction" : "corrections";
      said.textContent = `The clipboard has ${chosen.size} ${corrections} as CSV: paste them into a file, and train with --corrections FILE.`;
    });
    item.append(button);
  }
  items.at(-1)?.parentElement.after(said);
}

addCopies([...document.querySelectorAll("[data-corrected]")]);
for (const table of document.querySelectorAll("table.sortable")) {
  makeSortable(table);
  const rows = [...table.tBodies[0].rows];
  if (rows.length > LONG) {
    addFilter(table.parentElement, rows, table.caption.textContent);
  }
}
for (const list of document.querySelectorAll("[data-filter]")) {
  if (list.children.length > LONG) {
    addFilter(list, [...list.children], list.dataset.filter);
  }
}
