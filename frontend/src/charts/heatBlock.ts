/** CPU × time cells of one share, as a ring over time: static for a past range, moving on for a live one. */

/** A cell without data; all others are units of 0.5 %, 0 to 200. */
export const NO_DATA = 255;

const MAGIC = 0x31485343; // "CSH1", little-endian
const HEADER_BYTES = 32;
const RESOLUTIONS = ["sample", "minute", "hour"] as const;

/** Where a block was read: samples as they came, or one value a minute or hour. */
export type Resolution = (typeof RESOLUTIONS)[number];

export class HeatBlockError extends Error {}

export class HeatBlock {
  readonly rows: number;
  readonly columns: number;
  readonly columnMs: number;
  /** Row-major; the cell of column c (counted from the epoch) is at c modulo columns. */
  readonly cells: Uint8Array;
  readonly resolution: Resolution;
  /** Grows when cells other than the newest may have changed. */
  fills = 0;
  private readonly offset: number;
  last: number;

  /** An empty block whose last column holds endMs. */
  constructor(
    rows: number,
    columns: number,
    columnMs: number,
    endMs: number,
    offset = 0,
    resolution: Resolution = "sample",
  ) {
    this.rows = rows;
    this.columns = columns;
    this.columnMs = columnMs;
    this.cells = new Uint8Array(rows * columns).fill(NO_DATA);
    this.resolution = resolution;
    this.offset = offset;
    this.last = Math.floor((endMs - offset) / columnMs);
  }

  /**
   * The answer of /heatmap: `CSH1`, u32 rows, columns, resolution, f64 start_ms, column_ms, then the cells.
   * Throws HeatBlockError with what does not fit.
   */
  static parse(buffer: ArrayBuffer): HeatBlock {
    if (buffer.byteLength < HEADER_BYTES) throw new HeatBlockError(`${buffer.byteLength} bytes are no heatmap block.`);
    const view = new DataView(buffer);
    if (view.getUint32(0, true) !== MAGIC) throw new HeatBlockError("The block does not start with CSH1.");
    const [rows, columns] = [view.getUint32(4, true), view.getUint32(8, true)];
    const resolution = RESOLUTIONS[view.getUint32(12, true)];
    const [startMs, columnMs] = [view.getFloat64(16, true), view.getFloat64(24, true)];
    if (buffer.byteLength !== HEADER_BYTES + rows * columns)
      throw new HeatBlockError(`${rows} × ${columns} cells do not fit a block of ${buffer.byteLength} bytes.`);
    if (resolution === undefined || !(columnMs > 0)) throw new HeatBlockError("The block's header makes no sense.");
    const end = startMs + (columns - 0.5) * columnMs;
    const block = new HeatBlock(rows, columns, columnMs, end, startMs, resolution);
    block.cells.set(new Uint8Array(buffer, HEADER_BYTES));
    return block;
  }

  /** The first column's number; columns() of them follow. */
  get first(): number {
    return this.last - this.columns + 1;
  }
  get startMs(): number {
    return this.offset + this.first * this.columnMs;
  }
  get endMs(): number {
    return this.offset + (this.last + 1) * this.columnMs;
  }

  /** Where a column number's cells are in each row. */
  slot(column: number): number {
    return ((column % this.columns) + this.columns) % this.columns;
  }

  /** The cell of a CPU at a moment; NO_DATA outside. */
  at(row: number, timeMs: number): number {
    const column = Math.floor((timeMs - this.offset) / this.columnMs);
    if (column < this.first || column > this.last || row < 0 || row >= this.rows) return NO_DATA;
    return this.cells[row * this.columns + this.slot(column)] ?? NO_DATA;
  }

  /** Moves on so that timeMs is inside; the new columns have no data. True when it moved. */
  advance(timeMs: number): boolean {
    const column = Math.floor((timeMs - this.offset) / this.columnMs);
    if (column <= this.last) return false;
    for (let clear = Math.max(this.last + 1, column - this.columns + 1); clear <= column; clear++) {
      const slot = this.slot(clear);
      for (let row = 0; row < this.rows; row++) this.cells[row * this.columns + slot] = NO_DATA;
    }
    this.last = column;
    return true;
  }

  /**
   * Adds a sample that covers durationMs up to timeMs; each cell keeps its maximum, so that spikes survive.
   * Neighbouring samples share their ends, so jitter leaves neither gaps nor doubles.
   */
  push(timeMs: number, durationMs: number, shares: Uint8Array): void {
    this.advance(timeMs - this.columnMs / 2);
    const [from, to] = covered(timeMs - durationMs - this.offset, timeMs - this.offset, this.columnMs);
    for (let column = Math.max(from, this.first); column <= Math.min(to, this.last); column++) {
      const slot = this.slot(column);
      for (let row = 0; row < Math.min(this.rows, shares.length); row++) {
        const at = row * this.columns + slot;
        this.cells[at] = larger(this.cells[at] ?? NO_DATA, shares[row] ?? NO_DATA);
      }
    }
  }

  /** Takes over what another block knows where this one knows nothing: history behind a live window. */
  fill(other: HeatBlock): void {
    this.fills += 1;
    for (let source = other.first; source <= other.last; source++) {
      const start = other.offset + source * other.columnMs;
      const [from, to] = covered(start - this.offset, start + other.columnMs - this.offset, this.columnMs);
      const sourceSlot = other.slot(source);
      for (let column = Math.max(from, this.first); column <= Math.min(to, this.last); column++) {
        const slot = this.slot(column);
        for (let row = 0; row < Math.min(this.rows, other.rows); row++) {
          const at = row * this.columns + slot;
          const value = other.cells[row * other.columns + sourceSlot] ?? NO_DATA;
          this.cells[at] = larger(this.cells[at] ?? NO_DATA, value);
        }
      }
    }
  }

  /** The largest known cell of a row, NO_DATA when none is known. */
  max(row: number): number {
    return this.cells.subarray(row * this.columns, (row + 1) * this.columns).reduce(larger, NO_DATA);
  }
}

/** The larger of two cells of which either may be NO_DATA. */
export function larger(a: number, b: number): number {
  if (a === NO_DATA) return b;
  return b === NO_DATA || b < a ? a : b;
}

/** The steps that an interval from start to end belongs to, both included: those it covers by half, at least one. */
export function covered(start: number, end: number, step: number): [first: number, last: number] {
  const first = Math.round(start / step);
  const last = Math.round(end / step) - 1;
  return last < first ? [Math.floor((start + end) / 2 / step), Math.floor((start + end) / 2 / step)] : [first, last];
}
