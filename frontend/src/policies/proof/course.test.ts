import { expect, test } from "vitest";
import { coursesOf, effectScale, heldUntil, knownAt, rangeOf, rowsOf, spaced, withoutInterval } from "./course";
import type { VersionProof } from "./types";

const at = (s: number) => new Date(s * 1000).toISOString();
const point = (s: number, estimate: number, half: number | null) => ({
  at: at(s),
  estimate,
  low: half === null ? null : estimate - half,
  high: half === null ? null : estimate + half,
  episodes: s,
});
const version = (number: number, startS: number, course: ReturnType<typeof point>[]) =>
  ({ version: number, started_at: at(startS), metrics: [{ metric: "cpu", course }] }) as unknown as VersionProof;
const second = version(2, 100, [point(110, 0.3, 5), point(120, 0.25, 0.1)]);
const first = version(1, 0, [point(50, -0.2, null), point(60, -0.2, 0.4), point(90, -0.2, 0.1)]);
const courses = coursesOf([second, first], "cpu");

test("versions are drawn from the oldest to the newest, and those without figures are left out", () => {
  expect(courses.map((course) => course.version)).toEqual([1, 2]);
  expect(coursesOf([second, version(3, 200, [])], "cpu").map((course) => course.version)).toEqual([2]);
  expect(coursesOf([second], "rtt")).toEqual([]);
});

test("each point is a row with its estimate, and its interval where there is one", () => {
  const rows = rowsOf(courses);
  expect(rows.map(({ t }) => t / 1000)).toEqual([50, 60, 90, 110, 120]);
  expect(rows[0]).toEqual({ t: 50_000, v1: -0.2, "v1 interval": null });
  expect(rows[4]?.["v2 interval"]).toEqual([0.15, 0.35]);
});

test("the time begins with the first version, and is unknown until its first interval", () => {
  expect(rangeOf(courses)).toEqual({ from: 0, to: 120_000 });
  expect(withoutInterval(courses)).toEqual([
    { from: 0, to: 60_000 },
    { from: 100_000, to: 110_000 },
  ]);
});

test("the scale shows zero and the latest intervals, and cuts early, wide ones", () => {
  const { low, high } = effectScale(courses);
  expect(low).toBeLessThan(-0.3);
  expect(high).toBeGreaterThan(0.35);
  expect(high).toBeLessThan(1);
});

test.each([
  [null, -0.2, 90],
  [49_000, undefined, undefined],
  [65_000, -0.2, 60],
  [91_000, undefined, undefined],
])("at %s the first version's effect was %s after %s episodes", (timeMs, estimate, episodes) => {
  const known = courses[0] === undefined ? null : knownAt(courses[0], timeMs);
  expect([known?.estimate, known?.episodes]).toEqual([estimate, episodes]);
});

test("labels that would overlap lose their text", () => {
  expect(spaced([{ t: 30 }, { t: 0 }, { t: 5 }], 10)).toEqual([{ t: 0 }, { t: 30 }]);
});

test("what is known holds until the next episode ends", () => {
  const course = courses[1];
  if (course === undefined) throw new Error("There are two courses.");
  expect(heldUntil(course, 500_000).points.at(-1)).toEqual({ ...course.points.at(-1), t: 500_000 });
  expect(heldUntil(course, 100_000)).toBe(course);
});
