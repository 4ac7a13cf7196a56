import { CIVIDIS_U32 } from "../lib/cividis";
import { type HeatBlock, largerCell, NO_DATA } from "./heatBlock";

/** A row to paint: the CPUs whose maximum it shows (none: empty), and its position in pixels. */
export type Band = { cpus: readonly number[]; top: number; height: number };

/** Colours by cell value, 0 to 200 units of 0.5 %; cells without data are transparent, so that the hatching behind is visible. */
const COLOURS = Uint32Array.from({ length: 256 }, (_, value) =>
  value === NO_DATA ? 0 : (CIVIDIS_U32[Math.min(255, Math.round((value * 255) / 200))] ?? 0),
);

/**
 * The block's columns under a pixel column. Pixels are counted from the epoch like columns, so that a live heatmap moves
 * by whole pixels and does not shimmer. ratio: columns per pixel.
 */
export function columnsUnder(pixel: number, ratio: number): [first: number, last: number] {
  const first = Math.floor(pixel * ratio + TOLERANCE);
  return [first, Math.max(first, Math.ceil((pixel + 1) * ratio - TOLERANCE) - 1)];
}

/** Rounding error of a column number of today, about 10 to the 9th. */
const TOLERANCE = 1e-5;

/** The maximum over CPUs and columns first to last; NO_DATA without data. */
export function pooledMaximum(block: HeatBlock, cpus: readonly number[], first: number, last: number): number {
  let value = NO_DATA;
  for (let column = Math.max(first, block.first); column <= Math.min(last, block.last); column++) {
    const slot = block.slot(column);
    for (const cpu of cpus)
      if (cpu < block.rows) value = largerCell(value, block.cells[cpu * block.columns + slot] ?? NO_DATA);
  }
  return value;
}

/**
 * Paints a heatmap from an image with one column per screen pixel, each the maximum of its cells, and one row per band.
 * The image is a ring over time like the block, so that a live second costs a few columns.
 */
export class HeatPainter {
  private image: OffscreenCanvas | null = null;
  private of: { block: HeatBlock; bands: readonly Band[]; pixels: number; fills: number; last: number } | null = null;

  /** Paints the bands into the rectangle 0, 0, width, height of a context. */
  paint(context: CanvasRenderingContext2D, block: HeatBlock, bands: readonly Band[], width: number): void {
    const pixels = Math.max(1, Math.round(width * (devicePixelRatio || 1)));
    const image = this.updated(block, bands, pixels);
    if (image === null) return;
    context.imageSmoothingEnabled = false;
    const last = lastPixel(block, pixels);
    const seam = mod(last + 1, pixels);
    const scale = width / pixels;
    for (const [from, to] of adjacentRuns(bands)) {
      const [top, end] = [bands[from], bands[to]];
      if (top === undefined || end === undefined) continue;
      const tall = end.top + end.height - top.top;
      const draw = (slot: number, length: number, x: number) =>
        context.drawImage(image, slot, from, length, to - from + 1, x * scale, top.top, length * scale, tall);
      // The ring's seam divides the window: the oldest pixels are right of it.
      draw(seam, pixels - seam, 0);
      if (seam > 0) draw(0, seam, pixels - seam);
    }
  }

  private updated(block: HeatBlock, bands: readonly Band[], pixels: number): OffscreenCanvas | null {
    const before = this.of;
    const same =
      before !== null &&
      before.block === block &&
      before.bands === bands &&
      before.pixels === pixels &&
      before.fills === block.fills;
    if (!same || this.image === null) this.image = new OffscreenCanvas(pixels, Math.max(1, bands.length));
    const context = this.image.getContext("2d");
    if (context === null) return null;
    const last = lastPixel(block, pixels);
    const oldest = last - pixels + 1;
    // A late sample may still change the column before the newest one.
    const late = Math.ceil((2 * pixels) / block.columns);
    const from = same && before !== null ? Math.max(oldest, Math.min(before.last, last) - late) : oldest;
    this.of = { block, bands, pixels, fills: block.fills, last };
    // The ring's seam divides the new pixels into at most two images.
    for (let start = from; start <= last; ) {
      const length = Math.min(last - start + 1, pixels - mod(start, pixels));
      context.putImageData(cells(context, block, bands, start, length, block.columns / pixels), mod(start, pixels), 0);
      start += length;
    }
    return this.image;
  }
}

/** The pixels from start on, one row per band. */
function cells(
  context: OffscreenCanvasRenderingContext2D,
  block: HeatBlock,
  bands: readonly Band[],
  start: number,
  length: number,
  ratio: number,
): ImageData {
  const image = context.createImageData(length, Math.max(1, bands.length));
  const pixels = new Uint32Array(image.data.buffer);
  for (let index = 0; index < length; index++) {
    const [first, last] = columnsUnder(start + index, ratio);
    bands.forEach(({ cpus }, row) => {
      if (cpus.length > 0) pixels[row * length + index] = COLOURS[pooledMaximum(block, cpus, first, last)] ?? 0;
    });
  }
  return image;
}

/** The pixel that contains the block's last column. */
function lastPixel(block: HeatBlock, pixels: number): number {
  return Math.ceil(((block.last + 1) * pixels) / block.columns - TOLERANCE) - 1;
}

const mod = (value: number, by: number) => ((value % by) + by) % by;

/** Runs of touching bands of equal height that have cells. */
export function adjacentRuns(bands: readonly Band[]): [first: number, last: number][] {
  const found: [number, number][] = [];
  bands.forEach(({ cpus, top, height }, index) => {
    if (cpus.length === 0) return;
    const open = found.at(-1);
    const before = bands[index - 1];
    const touches = before !== undefined && before.height === height && before.top + height === top;
    if (open?.[1] === index - 1 && touches) open[1] = index;
    else found.push([index, index]);
  });
  return found;
}
