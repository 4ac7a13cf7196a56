import { type RefObject, useEffect, useLayoutEffect, useState } from "react";

/** Resolved design tokens for canvas drawing: colours, and the font families `--font` and `--mono`. */
export type Colours = { get(token: string): string };

/** Resolves tokens such as `--line` for an element. */
export function coloursOf(element: Element): Colours {
  const style = getComputedStyle(element);
  const cache = new Map<string, string>();
  return {
    get(token) {
      let value = cache.get(token);
      if (value === undefined) {
        value = style.getPropertyValue(token).trim();
        cache.set(token, value);
      }
      return value;
    },
  };
}

/** A counter that increases when the colour scheme changes, to redraw canvases. */
export function useColourScheme(): number {
  const [version, setVersion] = useState(0);
  useEffect(() => {
    const observer = new MutationObserver(() => setVersion((before) => before + 1));
    observer.observe(document.documentElement, { attributes: true, attributeFilter: ["data-mantine-color-scheme"] });
    return () => observer.disconnect();
  }, []);
  return version;
}

/** An element's content width in CSS pixels, 0 until it is laid out. */
export function useWidth(element: RefObject<HTMLElement | null>): number {
  const [width, setWidth] = useState(0);
  useLayoutEffect(() => {
    const node = element.current;
    if (node === null) return;
    setWidth(node.clientWidth);
    const observer = new ResizeObserver(() => setWidth(node.clientWidth));
    observer.observe(node);
    return () => observer.disconnect();
  }, [element]);
  return width;
}

/** Sizes a canvas for the screen's pixels and returns its context in CSS pixels, cleared. */
export function prepareCanvas(
  canvas: HTMLCanvasElement,
  width: number,
  height: number,
): CanvasRenderingContext2D | null {
  const ratio = devicePixelRatio || 1;
  const [w, h] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== w || canvas.height !== h) {
    canvas.width = w;
    canvas.height = h;
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
  }
  const context = canvas.getContext("2d");
  if (context === null) return null;
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  return context;
}

/** The hatching pattern for “no data”. */
export function hatchPattern(context: CanvasRenderingContext2D, colour: string): CanvasPattern | string {
  const tile = new OffscreenCanvas(6, 6);
  const brush = tile.getContext("2d");
  if (brush === null) return colour;
  brush.strokeStyle = colour;
  brush.beginPath();
  for (const x of [-3, 3, 9]) {
    brush.moveTo(x, 6);
    brush.lineTo(x + 6, 0);
  }
  brush.moveTo(-3, 6);
  brush.stroke();
  return context.createPattern(tile, "repeat") ?? colour;
}
