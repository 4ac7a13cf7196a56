/** Schemas for search parameters, which are strings from the URL or values from a link. */

import * as v from "valibot";

/** An optional parameter; undefined if absent or invalid, so that no link breaks a page. */
export const param = <const T extends v.GenericSchema<unknown, unknown>>(schema: T) =>
  v.fallback(v.optional(schema), undefined);

/** Non-empty text. */
export const filledText = v.pipe(v.string(), v.minLength(1));

/** A finite number, also as text. */
const anyNumber = v.pipe(v.union([v.string(), v.number()]), v.transform(Number), v.finite());

/** An integer from 1, e.g. an id. */
export const positiveInteger = v.pipe(anyNumber, v.safeInteger(), v.minValue(1));

type Bounds = { minimum?: number; exclusiveMinimum?: number; maximum?: number };

/** A number within the bounds of a JSON Schema. */
export const numberWithin = ({ minimum = -Infinity, exclusiveMinimum = -Infinity, maximum = Infinity }: Bounds) =>
  v.pipe(anyNumber, v.minValue(minimum), v.gtValue(exclusiveMinimum), v.maxValue(maximum));

/** A time in Unix milliseconds, of a year with four digits as the API needs; in nanoseconds it would be no date. */
export const timeMs = v.pipe(anyNumber, v.gtValue(0), v.ltValue(Date.UTC(10_000, 0)));

type RangeParams = { from?: number | undefined; to?: number | undefined };

/** Removes both ends of a range that is incomplete or whose length in milliseconds is not accepted. */
export const withRange =
  <T extends RangeParams>(accepts: (lengthMs: number) => boolean) =>
  (search: T): T => {
    const { from, to } = search;
    const valid = from !== undefined && to !== undefined && accepts(to - from);
    return valid ? search : { ...search, from: undefined, to: undefined };
  };

/** A route's validateSearch; parameters outside the schema are removed. */
export const validated =
  <T extends v.GenericSchema<unknown, unknown>>(schema: T) =>
  (search: Record<string, unknown>): v.InferOutput<T> =>
    v.parse(schema, search);
