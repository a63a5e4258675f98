// A view as one file: a standalone HTML file, a picture, or the numbers.
import { el } from "./dom.js";

const PICTURE_WIDTH = 1200;

/** Text as the reports show it: XML has no control characters, and none turns the reading direction. */
const visible = (text) => text
  .replace(/[\0-\x08\x0b-\x1f]/g, (found) => String.fromCharCode(0x2400 + found.charCodeAt(0)))
  .replace(/[\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ufffe\uffff]|\p{Surrogate}/gu, "\ufffd");

function save(name, type, content) {
  const address = URL.createObjectURL(content instanceof Blob ? content : new Blob([content], { type }));
  const link = el("a", { href: address, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(address), 60_000);
}

/** What a reader of the file sees: pictures in place of canvases, texts in place of fields. */
function frozen(view, model) {
  const copy = view.cloneNode(true);
  const canvases = view.querySelectorAll("canvas");
  copy.querySelectorAll("canvas").forEach((each, at) => {
    const picture = el("img", { src: canvases[at].toDataURL(), alt: each.getAttribute("aria-label") ?? "", class: each.className });
    picture.style.cssText = each.style.cssText;
    picture.style.imageRendering = "pixelated";
    const box = canvases[at].getBoundingClientRect();
    picture.style.width = each.closest(".strip, .heads, .pixels") ? "100%" : `${box.width}px`;
    picture.style.height = each.closest(".heads") ? "100%" : `${box.height}px`;
    picture.style.maxWidth = "100%";
    each.replaceWith(picture);
  });
  const fields = view.querySelectorAll("textarea, input");
  copy.querySelectorAll("textarea, input").forEach((each, at) => each.replaceWith(el("p", { dir: "auto" }, fields[at].value)));
  copy.querySelectorAll(".controls, .with-copy > button, .hidden").forEach((each) => each.remove());
  copy.querySelectorAll(".heads button, button.piece").forEach((each) => {
    const still = el("span", { class: each.className, "aria-pressed": each.getAttribute("aria-pressed") });
    still.append(...each.childNodes);
    each.replaceWith(still);
  });
  copy.querySelectorAll(".scroll, .boxed").forEach((each) => {
    each.style.maxHeight = "none";
  });
  copy.querySelectorAll("[id], [tabindex]").forEach((each) => {
    each.removeAttribute("id");
    each.removeAttribute("tabindex");
  });
  return el("div", { class: "exported", "data-theme": document.documentElement.dataset.theme }, ...copy.childNodes,
    el("p", { class: "quiet" }, `Model ${model}, shown by tidybert page`));
}

const styles = async () => (await fetch("/page/page.css")).text();

/** One HTML file that fetches nothing and runs nothing. */
export async function asHtml(view, name, model) {
  const theme = document.documentElement.dataset.theme;
  // The name of a tab and the style sheet are the page's own; every other text is in the copy.
  save(`${name}.html`, "text/html", `<!doctype html>
<html lang="en" data-theme="${theme}">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>${document.title}</title>
<style>${await styles()}</style>
</head>
<body>${frozen(view, model).outerHTML}</body>
</html>
`);
}

/** A picture of the view: the browser draws it as a foreign object of an SVG picture. */
export async function asPng(view, name, model) {
  const copy = frozen(view, model);
  copy.style.width = `${Math.max(PICTURE_WIDTH, view.clientWidth)}px`;
  copy.style.margin = "0";
  document.body.append(copy);
  const [width, height] = [copy.offsetWidth, copy.offsetHeight];
  copy.remove();
  // Only the picture has the style sheet in it: in the page the policy would forbid that.
  const style = el("style");
  style.textContent = await styles();
  copy.prepend(style);
  copy.setAttribute("xmlns", "http://www.w3.org/1999/xhtml");
  const markup = visible(new XMLSerializer().serializeToString(copy));
  const source = `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}"><foreignObject width="100%" height="100%">${markup}</foreignObject></svg>`;
  const picture = new Image();
  picture.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(source)}`;
  await picture.decode();
  const canvas = el("canvas", { width: 2 * width, height: 2 * height });
  const context = canvas.getContext("2d");
  context.scale(2, 2);
  context.drawImage(picture, 0, 0);
  save(`${name}.png`, "image/png", await new Promise((done) => canvas.toBlob(done, "image/png")));
}

/** The numbers of the view, and its state. */
export const asJson = (found, name) =>
  save(`${name}.json`, "application/json", `${JSON.stringify(found, null, 1)}\n`);
