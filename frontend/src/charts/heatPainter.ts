import { CIVIDIS_U32 } from "../lib/cividis";
import { type HeatBlock, largerCell, NO_DATA } from "./heatBlock";

/** A row to paint: the CPUs whose maximum it shows (none: empty), and its position in pixels. */
export type Band = { cpus: readonly number[]; top: number; height: number };

/** Colours by cell value, 0 to 200 units of 0.5 %; cells without data are transparent, so that the hatching behind is visible. */
const COLOURS = Uint32Array.from({ length: 256 }, (_, value) =>
  value === NO_DATA ? 0 : (CIVIDIS_U32[Math.min(255, Math.round((value * 255) / 200))] ?? 0),
);

/** Number of cells per pixel column, at least 1. */
export function poolFactor(columns: number, pixels: number): number {
  return Math.max(1, Math.ceil(columns / Math.max(1, pixels)));
}

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
 * Paints a heatmap from an image with one pixel per cell. The image is a ring over time like the block, so that a live
 * second costs one column. Pools are aligned to the epoch, so that they do not shimmer as time advances.
 */
export class HeatPainter {
  private image: OffscreenCanvas | null = null;
  private of: { block: HeatBlock; bands: readonly Band[]; pool: number; fills: number; last: number } | null = null;

  /** Paints the bands into the rectangle 0, 0, width, height of a context, scrolled by scrollTop. */
  paint(
    context: CanvasRenderingContext2D,
    block: HeatBlock,
    bands: readonly Band[],
    width: number,
    height: number,
    scrollTop: number,
  ): void {
    const pool = poolFactor(block.columns, width * (devicePixelRatio || 1));
    const image = this.updated(block, bands, pool);
    if (image === null) return;
    context.save();
    context.beginPath();
    context.rect(0, 0, width, height);
    context.clip();
    context.imageSmoothingEnabled = false;
    const slots = image.width;
    const scale = width / block.columns;
    const [first, last] = [Math.floor(block.first / pool), Math.floor(block.last / pool)];
    for (const [from, to] of adjacentRuns(bands, scrollTop, scrollTop + height)) {
      const [top, end] = [bands[from], bands[to]];
      if (top === undefined || end === undefined) continue;
      const [y, tall] = [top.top - scrollTop, end.top + end.height - top.top];
      // The ring's seam splits the window into at most two parts.
      for (let start = first; start <= last; ) {
        const slot = mod(start, slots);
        const length = Math.min(slots - slot, last - start + 1);
        const x = (start * pool - block.first) * scale;
        context.drawImage(image, slot, from, length, to - from + 1, x, y, length * pool * scale, tall);
        start += length;
      }
    }
    context.restore();
  }

  private updated(block: HeatBlock, bands: readonly Band[], pool: number): OffscreenCanvas | null {
    const slots = Math.ceil(block.columns / pool) + 1;
    const last = Math.floor(block.last / pool);
    const first = Math.floor(block.first / pool);
    const before = this.of;
    const same =
      before !== null &&
      before.block === block &&
      before.bands === bands &&
      before.pool === pool &&
      before.fills === block.fills;
    if (!same || this.image === null) this.image = new OffscreenCanvas(slots, Math.max(1, bands.length));
    const context = this.image.getContext("2d");
    if (context === null) return null;
    this.of = { block, bands, pool, fills: block.fills, last };
    // A late sample may still change the column before the newest one.
    const from = same && before !== null ? Math.max(first, before.last - 1) : first;
    const columns = Math.min(slots, last - from + 1);
    if (columns >= slots / 2) this.paintAll(context, block, bands, pool, first, last, slots);
    else for (let column = from; column <= last; column++) this.paintOne(context, block, bands, pool, column, slots);
    return this.image;
  }

  private paintAll(
    context: OffscreenCanvasRenderingContext2D,
    block: HeatBlock,
    bands: readonly Band[],
    pool: number,
    first: number,
    last: number,
    slots: number,
  ): void {
    const image = context.createImageData(slots, Math.max(1, bands.length));
    const pixels = new Uint32Array(image.data.buffer);
    bands.forEach((band, index) => {
      if (band.cpus.length === 0) return;
      for (let column = first; column <= last; column++) {
        const value = pooledMaximum(block, band.cpus, column * pool, column * pool + pool - 1);
        pixels[index * slots + mod(column, slots)] = COLOURS[value] ?? 0;
      }
    });
    context.putImageData(image, 0, 0);
  }

  private paintOne(
    context: OffscreenCanvasRenderingContext2D,
    block: HeatBlock,
    bands: readonly Band[],
    pool: number,
    column: number,
    slots: number,
  ): void {
    const image = context.createImageData(1, Math.max(1, bands.length));
    const pixels = new Uint32Array(image.data.buffer);
    bands.forEach((band, index) => {
      if (band.cpus.length > 0)
        pixels[index] = COLOURS[pooledMaximum(block, band.cpus, column * pool, column * pool + pool - 1)] ?? 0;
    });
    context.putImageData(image, mod(column, slots), 0);
  }
}

const mod = (value: number, by: number) => ((value % by) + by) % by;

/** Runs of adjacent bands of equal height that are visible between top and bottom. */
export function adjacentRuns(bands: readonly Band[], top: number, bottom: number): [first: number, last: number][] {
  const found: [number, number][] = [];
  bands.forEach((band, index) => {
    if (band.cpus.length === 0 || band.top + band.height < top || band.top > bottom) return;
    const open = found.at(-1);
    const joins = open !== undefined && open[1] === index - 1 && bands[open[1]]?.height === band.height;
    if (joins) open[1] = index;
    else found.push([index, index]);
  });
  return found;
}
