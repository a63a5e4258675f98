// Light, dark and large type, as the user chose and the browser remembers.
import { el } from "./dom.js";

const prefersDark = matchMedia("(prefers-color-scheme: dark)");
const remember = (key, value) => { try { localStorage.setItem(key, value); } catch { /* A private window may have no storage. */ } };
const remembered = (key) => { try { return localStorage.getItem(key); } catch { return null; } };

/** Gives the page the looks that were chosen. */
export function applyLooks() {
  const theme = remembered("tidybert-theme") ?? "auto";
  const dark = theme === "dark" || (theme === "auto" && prefersDark.matches);
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  document.documentElement.toggleAttribute("data-large", remembered("tidybert-large") === "yes");
}

/** The buttons that change them; redraw is called after each change. */
export function looksButtons(redraw) {
  const theme = remembered("tidybert-theme") ?? "auto";
  const large = remembered("tidybert-large") === "yes";
  const next = { auto: "light", light: "dark", dark: "auto" }[theme];
  return [
    el("button", { type: "button", id: "large", "aria-pressed": String(large), title: "Large type, for a projector", on: { click: () => { remember("tidybert-large", large ? "no" : "yes"); redraw(); } } }, "Large type"),
    el("button", { type: "button", id: "theme", title: "Light, dark, or as the system", on: { click: () => { remember("tidybert-theme", next); redraw(); } } }, `Colours: ${theme}`),
  ];
}

/** Calls a function when the system changes between light and dark. */
export const onSystemLooks = (act) => prefersDark.addEventListener("change", act);
