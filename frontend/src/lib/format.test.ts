import { describe, expect, test } from "vitest";
import {
  bitRate,
  bytes,
  countdown,
  duration,
  formatFigure,
  micros,
  packetRate,
  percent,
  perSecond,
  significant,
  unbroken,
} from "./format";

describe("a number has three significant digits", () => {
  test.each([
    [0, "0"],
    [0.0123, "0.012"],
    [1.836, "1.84"],
    [9.996, "10.0"],
    [18.24, "18.2"],
    [99.96, "100"],
    [212.4, "212"],
    [4118, "4,118"],
    [-1.5, "-1.50"],
  ])("%s is formatted as %s", (value, expected) => expect(significant(value)).toBe(expected));
});

describe("a unit is scaled to its number", () => {
  test.each([
    [bitRate(230_000_000), "1.84\u00a0Gbit/s"],
    [bitRate(0), "0\u00a0bit/s"],
    [bitRate(125), "1.00\u00a0kbit/s"],
    [bitRate(null), "–"],
    [perSecond(18_240), "18.2\u00a0k/s"],
    [perSecond(999.7), "1.00\u00a0k/s"],
    [perSecond(2_100_000), "2.10\u00a0M/s"],
    [packetRate(212_000), "212\u00a0kpps"],
    [micros(361), "361\u00a0µs"],
    [micros(1500), "1.50\u00a0ms"],
    [micros(Number.NaN), "–"],
    [bytes(24 * 1024 * 1024), "24.0\u00a0MiB"],
    [bytes(512), "512\u00a0B"],
    [percent(93.6), "94\u00a0%"],
    [percent(undefined), "–"],
  ])("%o is %s", (figure, expected) => expect(formatFigure(figure)).toBe(expected));
});

describe("a duration has its two largest units", () => {
  test.each([
    [0, "0\u00a0s"],
    [45, "45\u00a0s"],
    [125, "2\u00a0min 5\u00a0s"],
    [120, "2\u00a0min"],
    [10_800, "3\u00a0h"],
    [187_200, "2\u00a0d 4\u00a0h"],
    [86_405, "1\u00a0d"],
    [null, "–"],
  ])("%s seconds is %s", (seconds, expected) => expect(duration(seconds)).toBe(expected));
});

test("a countdown reaches 0:00 only at its end", () => {
  expect(countdown(81.2)).toBe("1:22");
  expect(countdown(0.1)).toBe("0:01");
  expect(countdown(-3)).toBe("0:00");
});

test("a number of a sentence stays on one line with its unit", () => {
  const words = unbroken("CPU 1 is 100 % busy for 2 min at 1.8 Gbit/s with 44 percentage points of 3 devices.").split(
    " ",
  );
  expect(words.filter((word) => word.includes("\u00a0"))).toEqual([
    "100\u00a0%",
    "2\u00a0min",
    "1.8\u00a0Gbit/s",
    "44\u00a0percentage",
  ]);
});
