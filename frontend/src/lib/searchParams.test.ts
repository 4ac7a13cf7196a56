import * as v from "valibot";
import { expect, test } from "vitest";
import { filledText, numberWithin, param, positiveInteger, timeMs, validated, withRange } from "./searchParams";

test.each([
  ["a whole number as text", positiveInteger, "17", 17],
  ["a whole number from a link", positiveInteger, 17, 17],
  ["zero", positiveInteger, "0", undefined],
  ["a fraction", positiveInteger, "1.5", undefined],
  ["more than a double holds exactly", positiveInteger, "9007199254740993", undefined],
  ["a word", positiveInteger, "all", undefined],
  ["empty text", filledText, "", undefined],
  ["a lower bound itself", numberWithin({ minimum: 60, maximum: 65_536 }), "60", 60],
  ["less than a lower bound", numberWithin({ minimum: 60, maximum: 65_536 }), "59.9", undefined],
  ["an upper bound itself", numberWithin({ minimum: 60, maximum: 65_536 }), "65536", 65_536],
  ["an exclusive lower bound", numberWithin({ exclusiveMinimum: 0 }), "0", undefined],
  ["an empty number", numberWithin({ minimum: -1, maximum: 1 }), " x", undefined],
  ["infinity", timeMs, "Infinity", undefined],
  ["a time", timeMs, "1764000000000", 1_764_000_000_000],
  ["a time in nanoseconds", timeMs, "1764000000000000000", undefined],
])("%s is parsed or removed, without an exception", (_, schema: v.GenericSchema<unknown, unknown>, given, expected) => {
  expect(validated(v.object({ one: param(schema) }))({ one: given }).one).toBe(expected);
});

test("absent parameters stay absent, unknown ones are removed", () => {
  expect(validated(v.object({ one: param(filledText) }))({ other: "x" })).toEqual({});
});

test.each([
  [
    { from: 1, to: 11, sel: "x" },
    { from: 1, to: 11, sel: "x" },
  ],
  [{ from: 1, to: 10, sel: "x" }, { sel: "x" }],
  [{ from: 1, sel: "x" }, { sel: "x" }],
  [{ to: 11, sel: "x" }, { sel: "x" }],
])("%o retains only a complete range of accepted length: %o", (search, expected) => {
  expect(withRange<{ from?: number; to?: number; sel: string }>((lengthMs) => lengthMs >= 10)(search)).toEqual(
    expected,
  );
});
