/** Layout of the fleet map's cells. Sizes are CSS pixels. */

/** The rectangle of a group: a header with its name, omitted without a name, above its cells. */
type Block = {
  name: string;
  x: number;
  y: number;
  header: number;
  width: number;
  columns: number;
  first: number;
  count: number;
};
export type Layout = {
  cell: { width: number; height: number };
  /** Whether cells are large enough for the node's name and figure. */
  labelled: boolean;
  blocks: Block[];
  height: number;
};
export type Rect = { x: number; y: number; width: number; height: number };

const HEADER = 20;
const GAP_X = 18;
const GAP_Y = 14;
const MAX_LABELLED = 60;
const LABELLED = { width: 168, height: 44 };
const SIZES = [28, 24, 20, 17, 14, 12, 10, 8, 6];
const COMFORTABLE_HEIGHT = 560;
const BLOCK_WIDTH = 200;

function place(
  groups: { name: string; count: number }[],
  width: number,
  wanted: Layout["cell"],
  labelled: boolean,
): Layout {
  const across = Math.max(1, Math.min(groups.length, Math.floor((width + GAP_X) / (BLOCK_WIDTH + GAP_X))));
  const blockWidth = Math.floor((width - (across - 1) * GAP_X) / across);
  const columns = Math.max(1, Math.floor(blockWidth / wanted.width));
  const cell = labelled ? { ...wanted, width: Math.floor(blockWidth / columns) } : wanted;
  const blocks: Block[] = [];
  let [first, y, rowHeight] = [0, 0, 0];
  groups.forEach(({ name, count }, index) => {
    const column = index % across;
    if (column === 0 && index > 0) {
      y += rowHeight + GAP_Y;
      rowHeight = 0;
    }
    const header = name === "" ? 0 : HEADER;
    blocks.push({ name, x: column * (blockWidth + GAP_X), y, header, width: blockWidth, columns, first, count });
    rowHeight = Math.max(rowHeight, header + Math.ceil(count / columns) * cell.height);
    first += count;
  });
  return { cell, labelled, blocks, height: y + rowHeight };
}

/** Lays out groups of cells for a width: labelled cells for few nodes, smaller unlabelled ones for many. */
export function layOutCells(groups: { name: string; count: number }[], width: number): Layout {
  const total = groups.reduce((sum, group) => sum + group.count, 0);
  if (total <= MAX_LABELLED) return place(groups, width, LABELLED, true);
  let layout: Layout | undefined;
  for (const size of SIZES) {
    layout = place(groups, width, { width: size, height: size }, false);
    if (layout.height <= COMFORTABLE_HEIGHT) break;
  }
  return layout as Layout;
}

/** The rectangle of a cell by its number; null if there is none. */
export function rectOf(layout: Layout, index: number): Rect | null {
  const block = layout.blocks.find(({ first, count }) => index >= first && index < first + count);
  if (block === undefined) return null;
  const { width, height } = layout.cell;
  const at = index - block.first;
  return {
    x: block.x + (at % block.columns) * width,
    y: block.y + block.header + Math.floor(at / block.columns) * height,
    width,
    height,
  };
}

/** The number of the cell at a point; null between cells. */
export function cellAt(layout: Layout, x: number, y: number): number | null {
  for (const block of layout.blocks) {
    const column = Math.floor((x - block.x) / layout.cell.width);
    const row = Math.floor((y - block.y - block.header) / layout.cell.height);
    if (column < 0 || row < 0 || column >= block.columns) continue;
    const at = row * block.columns + column;
    if (at < block.count) return block.first + at;
  }
  return null;
}

/** The number of the cell that a key moves to: left and right by number, up and down to the nearest cell. */
export function neighbourCell(layout: Layout, index: number, key: string): number {
  const last = layout.blocks.reduce((sum, block) => sum + block.count, 0) - 1;
  if (key === "ArrowLeft") return Math.max(0, index - 1);
  if (key === "ArrowRight") return Math.min(last, index + 1);
  if (key === "Home") return 0;
  if (key === "End") return last;
  const rect = rectOf(layout, index);
  if (rect === null || (key !== "ArrowUp" && key !== "ArrowDown")) return index;
  const [x, step] = [rect.x + rect.width / 2, key === "ArrowDown" ? layout.cell.height : -layout.cell.height];
  for (let y = rect.y + rect.height / 2 + step; y > 0 && y < layout.height; y += step) {
    const found = cellAt(layout, x, y);
    if (found !== null && found !== index) return found;
  }
  return index;
}
