// A text beside its pieces: the pointer on one marks the other.
import { el, directionOf, segmentClass } from "./dom.js";

/** The text of a side with a span for each piece. Places count characters, not UTF-16 units. */
export function source(text, tokens, side) {
  const characters = Array.from(text);
  const nodes = [];
  let done = 0, last = null;
  tokens.forEach((token, at) => {
    if (token.side !== side) return;
    if (token.start < done && last) {
      // Two pieces of one character share its span.
      last.dataset.at += ` ${at}`;
      return;
    }
    if (token.start > done) nodes.push(characters.slice(done, token.start).join(""));
    last = el("span", { "data-at": at, class: segmentClass(token) }, characters.slice(token.start, token.end).join(""));
    nodes.push(last);
    done = Math.max(done, token.end);
  });
  nodes.push(characters.slice(done).join(""));
  return el("p", { class: "source", dir: directionOf(text) }, nodes);
}

/** Makes elements with the same data-at mark each other. */
export function link(container) {
  const numbers = (node) => node?.closest?.("[data-at]")?.dataset.at.split(" ") ?? [];
  const mark = (wanted) => container.querySelectorAll("[data-at]").forEach((each) =>
    each.classList.toggle("linked", each.dataset.at.split(" ").some((at) => wanted.includes(at))));
  container.addEventListener("pointerover", (event) => mark(numbers(event.target)));
  container.addEventListener("pointerleave", () => mark([]));
  container.addEventListener("focusin", (event) => mark(numbers(event.target)));
  container.addEventListener("focusout", () => mark([]));
  return container;
}
