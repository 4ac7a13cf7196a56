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

test("only changes of people are asked for and listed", async () => {
  const asked: string[] = [];
  globalThis.fetch = async (input) => {
    asked.push(new URL((input as Request).url).search);
    return Response.json({ changes: [], older: null });
  };
  await queryClient.query({ ...openChangesQuery, staleTime: 0 });
  expect(asked).toEqual(["?open=true&origin=people"]);
  applyChangeUpdate(change({ id: "p", state: "unconfirmed", policy_id: 3 }));
  applyChangeUpdate(change({ id: "e", state: "unconfirmed", experiment_id: 4 }));
  expect(open()).toEqual([]);
});

test("a response that arrives after a later step is ignored", () => {
  applyChangeUpdate(change({ id: "c", state: "unconfirmed", steps: STEPS.slice(0, 2) }));
  applyChangeUpdate(change({ id: "c", state: "applying", steps: STEPS.slice(0, 1) }));
  expect(open().map(({ state }) => state)).toEqual(["unconfirmed"]);
  applyChangeUpdate(change({ id: "c", state: "rolled_back", steps: STEPS }));
  applyChangeUpdate(change({ id: "c", state: "unconfirmed", steps: STEPS.slice(0, 2) }));
  expect(open()).toEqual([]);
});

test("a change that ends while the open ones are read does not come back with an answer from before", async () => {
  const unconfirmed = change({ id: "d", state: "unconfirmed", steps: STEPS.slice(0, 2) });
  const later = change({ id: "e", state: "unconfirmed", steps: STEPS.slice(0, 2) });
  applyChangeUpdate(unconfirmed);
  let respond: (response: Response) => void = () => undefined;
  const answer = new Promise<Response>((resolve) => {
    respond = resolve;
  });
  globalThis.fetch = () => answer;
  const read = queryClient.fetchQuery({ ...openChangesQuery, staleTime: 0 });
  applyChangeUpdate(change({ id: "d", state: "confirmed", steps: STEPS }));
  applyChangeUpdate(later);
  respond(Response.json({ changes: [unconfirmed], older: null }));
  await read;
  await Promise.resolve();
  expect(open()).toEqual([later]);
});

test("the open changes are those of the answer where none changes meanwhile", async () => {
  applyChangeUpdate(change({ id: "f", state: "unconfirmed", steps: STEPS.slice(0, 2) }));
  globalThis.fetch = async () => Response.json({ changes: [], older: null });
  await queryClient.fetchQuery({ ...openChangesQuery, staleTime: 0 });
  expect(open()).toEqual([]);
});
