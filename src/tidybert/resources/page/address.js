// The state of the page is its address: ?tab=gap&model=tidybert-small&text=…

const read = () => Object.fromEntries(new URLSearchParams(location.search));

let values = read();
let listener = () => {};

/** Calls a function whenever the state changes. */
export function onChange(act) {
  listener = act;
  addEventListener("popstate", () => {
    values = read();
    act(values);
  });
}

/** The state as an object of texts. */
export const current = () => values;

/** Changes some values; null or "" removes one. A step that a user can take back is remembered. */
export function change(changes, { remember = false } = {}) {
  values = { ...values, ...changes };
  for (const [key, value] of Object.entries(values)) {
    if (value === null || value === undefined) delete values[key];
    else values[key] = String(value);
  }
  const query = new URLSearchParams(values).toString();
  history[remember ? "pushState" : "replaceState"](null, "", query ? `?${query}` : location.pathname);
  listener(values);
}
