import { beforeEach, expect, test } from "vitest";
import type { Schemas } from "../api/client";
import { openChangesQuery, queryClient } from "../api/queries";
import { change } from "../node/testData";
import { applyChangeUpdate } from "./changes";

const step = (state: string): Schemas["Change"]["steps"][number] =>
  ({ at: "2026-11-21T08:00:00Z", state, sentence: "" }) as Schemas["Change"]["steps"][number];
const STEPS = ["applying", "unconfirmed", "rolled_back"].map(step);

const open = () => queryClient.getQueryData(openChangesQuery.queryKey)?.changes ?? [];

beforeEach(() => queryClient.setQueryData(openChangesQuery.queryKey, { changes: [], older: null }));

test("a change is listed while it is open, newest first, and leaves the list when it ends", () => {
  applyChangeUpdate(change({ id: "a", state: "applying", steps: STEPS.slice(0, 1) }));
  applyChangeUpdate(change({ id: "b", state: "applying", steps: STEPS.slice(0, 1) }));
  applyChangeUpdate(change({ id: "a", state: "unconfirmed", steps: STEPS.slice(0, 2) }));
  expect(open().map(({ id, state }) => [id, state])).toEqual([
    ["b", "applying"],
    ["a", "unconfirmed"],
  ]);
  applyChangeUpdate(change({ id: "a", state: "rolled_back", steps: STEPS }));
  expect(open().map(({ id }) => id)).toEqual(["b"]);
});

test("a response that arrives after a later step is ignored", () => {
  applyChangeUpdate(change({ id: "c", state: "unconfirmed", steps: STEPS.slice(0, 2) }));
  applyChangeUpdate(change({ id: "c", state: "applying", steps: STEPS.slice(0, 1) }));
  expect(open().map(({ state }) => state)).toEqual(["unconfirmed"]);
  applyChangeUpdate(change({ id: "c", state: "rolled_back", steps: STEPS }));
  applyChangeUpdate(change({ id: "c", state: "unconfirmed", steps: STEPS.slice(0, 2) }));
  expect(open()).toEqual([]);
});
