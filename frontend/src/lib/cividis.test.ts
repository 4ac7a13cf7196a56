import { expect, test } from "vitest";
import { CIVIDIS_U32, cividis, inkOn } from "./cividis";

test.each([
  [0, [0, 34, 78]],
  [0.5, [125, 124, 120]],
  [1, [254, 232, 56]],
])("cividis at %s is the published colour within 16 of 255", (t, published) => {
  cividis(t).forEach((channel, index) => {
    expect(Math.abs(channel - (published[index] ?? 0))).toBeLessThanOrEqual(16);
  });
});

test("entries are opaque and of increasing brightness, so the scale is readable in grey", () => {
  const luma = [...CIVIDIS_U32].map(
    (rgba) => 0.2126 * (rgba & 255) + 0.7152 * ((rgba >>> 8) & 255) + 0.0722 * ((rgba >>> 16) & 255),
  );
  expect([...CIVIDIS_U32].every((rgba) => rgba >>> 24 === 255)).toBe(true);
  for (let index = 4; index < 256; index++) expect(luma[index]).toBeGreaterThan(luma[index - 4] ?? 256);
});

test("text on the scale has a contrast of at least 4.5 : 1", () => {
  const luminance = (t: number) => {
    const [red, green, blue] = cividis(t).map((channel) => {
      const part = channel / 255;
      return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
    }) as [number, number, number];
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  };
  for (let step = 0; step <= 100; step++) {
    const back = luminance(step / 100) + 0.05;
    expect(inkOn(step / 100) === "black" ? back / 0.05 : 1.05 / back).toBeGreaterThanOrEqual(4.5);
  }
});
