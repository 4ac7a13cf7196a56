/** CPU × time cells of one share in a ring over time: static for a past range, advancing for a live one. */

/** A cell without data; other cells are 0 to 200 in units of 0.5 %. */
export const NO_DATA = 255;

const MAGIC = 0x31485343; // "CSH1", little-endian
const HEADER_BYTES = 32;
const RESOLUTIONS = ["sample", "minute", "hour"] as const;

/** Time resolution of a block: samples, or one value per minute or hour. */
export type Resolution = (typeof RESOLUTIONS)[number];

export class HeatBlockError extends Error {}

export class HeatBlock {
  readonly rows: number;
  readonly columns: number;
  readonly columnMs: number;
  /** Row-major; the cell of column c (counted from the epoch) is at c modulo columns. */
  readonly cells: Uint8Array;
  readonly resolution: Resolution;
  /** Increases when cells other than the newest may have changed. */
  fills = 0;
  private readonly offset: number;
  last: number;

  /** Creates an empty block whose last column contains endMs. */
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
   * Parses the response of /heatmap: `CSH1`, u32 rows, columns, resolution, f64 start_ms, column_ms, then the cells.
   * Throws HeatBlockError for an invalid block.
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
    if (resolution === undefined || !(columnMs > 0)) throw new HeatBlockError("The block's header is invalid.");
    const end = startMs + (columns - 0.5) * columnMs;
    const block = new HeatBlock(rows, columns, columnMs, end, startMs, resolution);
    block.cells.set(new Uint8Array(buffer, HEADER_BYTES));
    return block;
  }

  /** Number of the first column. */
  get first(): number {
    return this.last - this.columns + 1;
  }
  get startMs(): number {
    return this.offset + this.first * this.columnMs;
  }
  get endMs(): number {
    return this.offset + (this.last + 1) * this.columnMs;
  }

  /** Index of a column's cells within each row. */
  slot(column: number): number {
    return ((column % this.columns) + this.columns) % this.columns;
  }

  /** The cell of a CPU at a time; NO_DATA outside. */
  at(row: number, timeMs: number): number {
    const column = Math.floor((timeMs - this.offset) / this.columnMs);
    if (column < this.first || column > this.last || row < 0 || row >= this.rows) return NO_DATA;
    return this.cells[row * this.columns + this.slot(column)] ?? NO_DATA;
  }

  /** The largest share of a CPU at a time, in percent; null without data. */
  hottestPercent(timeMs: number): number | null {
    let largest = NO_DATA;
    for (let row = 0; row < this.rows; row++) largest = largerCell(largest, this.at(row, timeMs));
    return largest === NO_DATA ? null : largest / 2;
  }

  /** Advances the window to include timeMs; new columns have no data. Returns whether it moved. */
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
   * Adds a sample of durationMs that ends at timeMs; each cell stores the maximum, so that spikes remain visible.
   * Neighbouring samples share their ends, so jitter leaves neither gaps nor doubles.
   */
  push(timeMs: number, durationMs: number, shares: Uint8Array): void {
    this.advance(timeMs - this.columnMs / 2);
    const [from, to] = coveredSteps(timeMs - durationMs - this.offset, timeMs - this.offset, this.columnMs);
    for (let column = Math.max(from, this.first); column <= Math.min(to, this.last); column++) {
      const slot = this.slot(column);
      for (let row = 0; row < Math.min(this.rows, shares.length); row++) {
        const at = row * this.columns + slot;
        this.cells[at] = largerCell(this.cells[at] ?? NO_DATA, shares[row] ?? NO_DATA);
      }
    }
  }

  /** Merges another block, e.g. history behind a live window; each cell takes the maximum. */
  fill(other: HeatBlock): void {
    this.fills += 1;
    for (let source = other.first; source <= other.last; source++) {
      const start = other.offset + source * other.columnMs;
      const [from, to] = coveredSteps(start - this.offset, start + other.columnMs - this.offset, this.columnMs);
      const sourceSlot = other.slot(source);
      for (let column = Math.max(from, this.first); column <= Math.min(to, this.last); column++) {
        const slot = this.slot(column);
        for (let row = 0; row < Math.min(this.rows, other.rows); row++) {
          const at = row * this.columns + slot;
          const value = other.cells[row * other.columns + sourceSlot] ?? NO_DATA;
          this.cells[at] = largerCell(this.cells[at] ?? NO_DATA, value);
        }
      }
    }
  }

  /** The maximum of a row, NO_DATA if all its cells are. */
  max(row: number): number {
    return this.cells.subarray(row * this.columns, (row + 1) * this.columns).reduce(largerCell, NO_DATA);
  }
}

/** The larger of two cells; NO_DATA is smaller than any value. */
export function largerCell(a: number, b: number): number {
  if (a === NO_DATA) return b;
  return b === NO_DATA || b < a ? a : b;
}

/** First and last step that an interval covers by at least half; at least one step. */
export function coveredSteps(start: number, end: number, step: number): [first: number, last: number] {
  const first = Math.round(start / step);
  const last = Math.round(end / step) - 1;
  return last < first ? [Math.floor((start + end) / 2 / step), Math.floor((start + end) / 2 / step)] : [first, last];
}
