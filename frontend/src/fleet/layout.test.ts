import { expect, test } from "vitest";
import { cellAt, layOutCells, neighbourCell, rectOf } from "./layout";

const groups = (...counts: number[]) => counts.map((count, index) => ({ name: `rack-${index}`, count }));

test.each([
  [groups(1), 900],
  [groups(10), 900],
  [groups(64, 64, 64, 64), 900],
  [groups(3, 0, 70, 1), 320],
  [groups(2500, 2500, 2500, 2500), 900],
  [groups(10_000), 1400],
])("every cell of %j at %i pixels is inside and is found at its position", (wanted, width) => {
  const layout = layOutCells(wanted, width);
  const total = wanted.reduce((sum, group) => sum + group.count, 0);
  for (let index = 0; index < total; index++) {
    const rect = rectOf(layout, index);
    if (rect === null) throw new Error(`cell ${index} has no place`);
    expect(rect.x + rect.width).toBeLessThanOrEqual(width);
    expect(rect.y + rect.height).toBeLessThanOrEqual(layout.height);
    expect(cellAt(layout, rect.x + rect.width / 2, rect.y + rect.height / 2)).toBe(index);
  }
  expect(rectOf(layout, total)).toBeNull();
});

test("few nodes get labelled cells, many get small ones that fit a screen", () => {
  expect(layOutCells(groups(10), 900).labelled).toBe(true);
  const large = layOutCells(groups(10_000), 1400);
  expect(large.labelled).toBe(false);
  expect(large.height).toBeLessThan(600);
});

test("a single group without a name has no header", () => {
  expect(rectOf(layOutCells([{ name: "", count: 1 }], 900), 0)).toMatchObject({ x: 0, y: 0 });
});

test("arrow keys move through the cells and stop at the edges", () => {
  const layout = layOutCells(groups(64, 64), 436);
  const { columns } = layout.blocks[0] as { columns: number };
  expect(neighbourCell(layout, 0, "ArrowLeft")).toBe(0);
  expect(neighbourCell(layout, 63, "ArrowRight")).toBe(64);
  expect(neighbourCell(layout, 0, "ArrowDown")).toBe(columns);
  expect(neighbourCell(layout, columns, "ArrowUp")).toBe(0);
  expect(neighbourCell(layout, 0, "ArrowUp")).toBe(0);
  expect(neighbourCell(layout, 5, "Home")).toBe(0);
  expect(neighbourCell(layout, 5, "End")).toBe(127);
  expect(neighbourCell(layout, 127, "ArrowRight")).toBe(127);
});
