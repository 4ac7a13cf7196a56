/** Schemas for search parameters: each arrives as text from the URL or as a value from a link. */

import * as v from "valibot";

/** A parameter that is undefined where it is absent or does not fit its schema, so that no link can break a page. */
export const param = <const T extends v.GenericSchema<unknown, unknown>>(schema: T) =>
  v.fallback(v.optional(schema), undefined);

/** Text that is not empty. */
export const filledText = v.pipe(v.string(), v.minLength(1));

/** A number, also as text. */
const anyNumber = v.pipe(v.union([v.string(), v.number()]), v.transform(Number), v.finite());

/** An id or another whole number from 1. */
export const positiveInteger = v.pipe(anyNumber, v.safeInteger(), v.minValue(1));

/** A number within bounds, both included. */
export const numberWithin = (least: number, most: number) => v.pipe(anyNumber, v.minValue(least), v.maxValue(most));

/** A moment in Unix milliseconds. */
export const timeMs = v.pipe(anyNumber, v.gtValue(0));

type RangeParams = { from?: number | undefined; to?: number | undefined };

/** Omits both ends of a range that is not complete or whose length in milliseconds is not accepted. */
export const withRange =
  <T extends RangeParams>(accepts: (lengthMs: number) => boolean) =>
  (search: T): T => {
    const { from, to } = search;
    const valid = from !== undefined && to !== undefined && accepts(to - from);
    return valid ? search : { ...search, from: undefined, to: undefined };
  };

/** A route's validateSearch: parameters that the schema does not know are left out. */
export const validated =
  <T extends v.GenericSchema<unknown, unknown>>(schema: T) =>
  (search: Record<string, unknown>): v.InferOutput<T> =>
    v.parse(schema, search);
