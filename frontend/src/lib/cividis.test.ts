import { expect, test } from "vitest";
import { CIVIDIS_U32, cividis } from "./cividis";

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
