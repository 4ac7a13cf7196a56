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
    [4118, "4118"],
    [-1.5, "-1.50"],
  ])("%s is formatted as %s", (value, expected) => expect(significant(value)).toBe(expected));
});

describe("a unit is scaled to its number", () => {
  test.each([
    [bitRate(230_000_000), "1.84 Gb/s"],
    [bitRate(0), "0 b/s"],
    [bitRate(125), "1.00 kb/s"],
    [bitRate(null), "–"],
    [perSecond(18_240), "18.2 k/s"],
    [perSecond(999.7), "1.00 k/s"],
    [perSecond(2_100_000), "2.10 M/s"],
    [packetRate(212_000), "212 kpps"],
    [micros(361), "361 µs"],
    [micros(1500), "1.50 ms"],
    [micros(Number.NaN), "–"],
    [bytes(24 * 1024 * 1024), "24.0 MiB"],
    [bytes(512), "512 B"],
    [percent(93.6), "94 %"],
    [percent(undefined), "–"],
  ])("%o is %s", (figure, expected) => expect(formatFigure(figure)).toBe(expected));
});

describe("a duration has its two largest units", () => {
  test.each([
    [0, "0 s"],
    [45, "45 s"],
    [125, "2 min 5 s"],
    [120, "2 min"],
    [10_800, "3 h"],
    [187_200, "2 d 4 h"],
    [86_405, "1 d"],
    [null, "–"],
  ])("%s seconds is %s", (seconds, expected) => expect(duration(seconds)).toBe(expected));
});

test("a countdown reaches 0:00 only at its end", () => {
  expect(countdown(81.2)).toBe("1:22");
  expect(countdown(0.1)).toBe("0:01");
  expect(countdown(-3)).toBe("0:00");
});
