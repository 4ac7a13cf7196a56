import { expect, test, vi } from "vitest";
import type { Schemas } from "../api/client";
import { drawnTexts, fakeContext } from "../charts/fakeContext";
import { COLOURINGS } from "./colourings";
import { type MapColours, paintMap } from "./fleetPainter";
import { FleetFigures, frameOfNodes } from "./fleetStore";
import { layOutCells } from "./layout";

const COLOURS = new Proxy({} as MapColours, { get: (_, name) => String(name) });

const node = (id: number, figures: object, health = "live") =>
  ({ id, name: `db-${id}`, health, figures }) as Schemas["NodeSummary"];
const NODES = [
  node(1, { softirq_cpu: 7, metrics: { softirq_cpu_percent: 94 } }),
  node(2, { metrics: {} }),
  node(3, { metrics: {} }, "away"),
  node(4, { softirq_cpu: 0, metrics: { softirq_cpu_percent: 0 } }),
];
const FIGURES = new FleetFigures(frameOfNodes(NODES));

function draw(groups: { name: string; count: number }[], width: number, changing: number[] = []) {
  vi.spyOn(HTMLCanvasElement.prototype, "getContext").mockReturnValue(null);
  const { context, drawn } = fakeContext();
  const canvas = { width: 0, height: 0, getContext: () => context } as unknown as HTMLCanvasElement;
  const cells = NODES.map(({ id, name }) => ({ id, name, simulated: id === 4, changing: changing.includes(id) }));
  paintMap(canvas, width, layOutCells(groups, width), cells, FIGURES, COLOURINGS.softirq, COLOURS);
  return { canvas, drawn };
}

test("labelled cells have the node's name, its figure with CPU, or why there is none", () => {
  const { drawn } = draw([{ name: "", count: 4 }], 900);
  expect(drawnTexts(drawn)).toEqual([
    ...["db-1", "94\u00a0% · CPU 7", "db-2", "no data", "db-3", "away"],
    ...["db-4", "0\u00a0% · CPU 0 · simulated"],
  ]);
});

test("a text that is too long ends with an ellipsis within its cell", () => {
  const { drawn } = draw([{ name: "a group with a name that is far too long for its header", count: 4 }], 200);
  const [header, amount] = drawnTexts(drawn) as string[];
  expect(header).toMatch(/^a group with.*…$/);
  expect(6 * (header?.length ?? 0) + 6 * (amount?.length ?? 0)).toBeLessThanOrEqual(200);
  expect(amount).toBe("4 nodes");
});

test("cells without a figure are hatched, zero is not", () => {
  const { drawn } = draw([{ name: "", count: 4 }], 900);
  const fills = drawn.filter(({ call }) => call === "fillRect").map(({ fillStyle }) => fillStyle);
  expect(fills.map((fill) => (fill.startsWith("rgb") ? "colour" : fill))).toEqual([
    ...["colour", "raised", "hatch", "raised", "hatch", "colour"],
  ]);
});

test("text on a light cell is black, on a dark cell white", () => {
  const { drawn } = draw([{ name: "", count: 4 }], 900);
  const colourOf = (text: string) => drawn.find(({ call, args }) => call === "fillText" && args[0] === text)?.fillStyle;
  expect([colourOf("db-1"), colourOf("db-4")]).toEqual(["#000", "#fff"]);
});

test("a node with an open change has a frame", () => {
  const { drawn } = draw([{ name: "", count: 4 }], 900, [2]);
  expect(drawn.filter(({ call }) => call === "strokeRect").map(({ strokeStyle }) => strokeStyle)).toEqual(["change"]);
});

test("the canvas has the layout's size in device pixels", () => {
  vi.stubGlobal("devicePixelRatio", 2);
  const { canvas } = draw([{ name: "", count: 4 }], 900);
  expect([canvas.width, canvas.height]).toEqual([1800, 2 * layOutCells([{ name: "", count: 4 }], 900).height]);
  vi.unstubAllGlobals();
});
