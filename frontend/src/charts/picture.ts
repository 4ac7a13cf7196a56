/** Draws a part of the page as an SVG document: texts, canvases, drawings, backgrounds and borders, as they are shown. */

const SKIPPED = ".visually-hidden, h2 button, h2 fieldset, h2 select, h2 a, [hidden]";
const SIDES = ["Top", "Right", "Bottom", "Left"] as const;
/** A picture of the screen's pixels is sharp enough for print at this scale. */
const PNG_SCALE = 2;

const escaped = (text: string): string =>
  text.replace(/[&<>"]/g, (letter) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[letter] ?? "");
const place = ({ left, top, width, height }: DOMRect) =>
  `x="${left.toFixed(1)}" y="${top.toFixed(1)}" width="${width.toFixed(1)}" height="${height.toFixed(1)}"`;

/** The SVG of an element and of everything in it. */
export function pictureOf(root: Element): string {
  const box = root.getBoundingClientRect();
  const style = getComputedStyle(root);
  const defs: string[] = [];
  const body = drawn(root, defs);
  const size = `width="${box.width}" height="${box.height}"`;
  const view = `viewBox="${box.left} ${box.top} ${box.width} ${box.height}"`;
  const font = escaped(style.fontFamily);
  return `<svg xmlns="http://www.w3.org/2000/svg" ${size} ${view} font-family="${font}"><defs>${defs.join("")}</defs>${body}</svg>`;
}

function drawn(element: Element, defs: string[]): string {
  if (element.matches(SKIPPED)) return "";
  const style = getComputedStyle(element);
  const box = element.getBoundingClientRect();
  if (style.display === "none" || style.visibility === "hidden" || style.opacity === "0") return "";
  if (element instanceof HTMLCanvasElement) return `<image ${place(box)} href="${element.toDataURL()}"/>`;
  if (element instanceof SVGSVGElement) return drawing(element, box, style);
  const parts = [...element.childNodes].map((child) => {
    if (child instanceof Element) return drawn(child, defs);
    return child instanceof Text ? words(child, style) : "";
  });
  let inside = parts.join("");
  if (style.overflowX !== "visible" && inside !== "") {
    defs.push(`<clipPath id="c${defs.length}"><rect ${place(box)}/></clipPath>`);
    inside = `<g clip-path="url(#c${defs.length - 1})">${inside}</g>`;
  }
  const all = background(style, box, defs) + borders(style, box) + inside;
  return style.opacity === "1" || all === "" ? all : `<g opacity="${style.opacity}">${all}</g>`;
}

function background(style: CSSStyleDeclaration, box: DOMRect, defs: string[]): string {
  const { backgroundColor, backgroundImage, borderTopLeftRadius } = style;
  const colours = backgroundImage.match(/(rgba?|color|oklch)\([^)]*\)/g) ?? [];
  let fill = backgroundColor;
  if (backgroundImage.startsWith("repeating-linear-gradient")) {
    const line = `<path d="M-1 7L7-1" stroke="${escaped(colours.at(-1) ?? "")}"/>`;
    defs.push(`<pattern id="p${defs.length}" width="6" height="6" patternUnits="userSpaceOnUse">${line}</pattern>`);
    fill = `url(#p${defs.length - 1})`;
  } else if (backgroundImage.startsWith("linear-gradient")) {
    const stop = (colour: string, index: number) =>
      `<stop offset="${index / Math.max(1, colours.length - 1)}" stop-color="${escaped(colour)}"/>`;
    defs.push(`<linearGradient id="g${defs.length}">${colours.map(stop).join("")}</linearGradient>`);
    fill = `url(#g${defs.length - 1})`;
  }
  if (fill === "rgba(0, 0, 0, 0)" || box.width === 0) return "";
  return `<rect ${place(box)} rx="${Number.parseFloat(borderTopLeftRadius) || 0}" fill="${escaped(fill)}"/>`;
}

function borders(style: CSSStyleDeclaration, { left, top, right, bottom }: DOMRect): string {
  const ends = { Top: [left, top, right, top], Right: [right, top, right, bottom] } as const;
  const more = { Bottom: [left, bottom, right, bottom], Left: [left, top, left, bottom] } as const;
  return SIDES.map((side) => {
    const width = Number.parseFloat(style[`border${side}Width`]);
    if (!(width > 0) || style[`border${side}Style`] === "none") return "";
    const [x1, y1, x2, y2] = { ...ends, ...more }[side];
    const dash = style[`border${side}Style`] === "dashed" ? ' stroke-dasharray="3 3"' : "";
    const stroke = `stroke="${escaped(style[`border${side}Color`])}" stroke-width="${width}"${dash}`;
    return `<path d="M${x1} ${y1}L${x2} ${y2}" ${stroke}/>`;
  }).join("");
}

/** The words of a text, each where it is shown. */
function words(text: Text, style: CSSStyleDeclaration): string {
  const range = document.createRange();
  const size = Number.parseFloat(style.fontSize);
  const look = `fill="${escaped(style.color)}" font-size="${size}" font-weight="${style.fontWeight}"`;
  return [...text.data.matchAll(/\S+/g)]
    .map((word) => {
      range.setStart(text, word.index);
      range.setEnd(text, word.index + word[0].length);
      const box = range.getBoundingClientRect();
      if (box.width === 0) return "";
      const [x, y] = [box.left + box.width / 2, box.top + box.height / 2];
      if (style.writingMode.startsWith("vertical"))
        return `<text transform="translate(${x + 0.35 * size} ${y}) rotate(-90)" text-anchor="middle" ${look}>${escaped(word[0])}</text>`;
      return `<text x="${box.left.toFixed(1)}" y="${(y + 0.35 * size).toFixed(1)}" ${look}>${escaped(word[0])}</text>`;
    })
    .join("");
}

/** A drawing of the page, with the design's tokens replaced by their colours. */
function drawing(svg: SVGSVGElement, box: DOMRect, style: CSSStyleDeclaration): string {
  const copy = svg.cloneNode(true) as SVGSVGElement;
  for (const [name, value] of [
    ["x", box.left],
    ["y", box.top],
    ["width", box.width],
    ["height", box.height],
  ] as const)
    copy.setAttribute(name, String(value));
  copy.setAttribute("color", style.color);
  const text = new XMLSerializer().serializeToString(copy);
  return text.replace(/var\((--[\w-]+)\)/g, (_, token) => escaped(style.getPropertyValue(token).trim()));
}

/** An SVG document as a PNG file. Rejects if the browser cannot draw it. */
export async function pngOf(svg: string): Promise<Blob> {
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(svg)}`;
  await image.decode();
  const canvas = document.createElement("canvas");
  canvas.width = image.width * PNG_SCALE;
  canvas.height = image.height * PNG_SCALE;
  canvas.getContext("2d")?.drawImage(image, 0, 0, canvas.width, canvas.height);
  return new Promise((resolve, reject) =>
    canvas.toBlob((blob) => (blob === null ? reject(new Error("The picture is too large.")) : resolve(blob))),
  );
}
