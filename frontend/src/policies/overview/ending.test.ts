import { expect, test } from "vitest";
import type { OnNode } from "../types";
import { endingOf, evaluated, unrestored } from "./ending";

const node = (over: Partial<OnNode>): OnNode => ({
  ...{ node_id: 1, node_name: "db-1", connected: true, version: 2, enforced: true, held_out: false },
  ...{ settings: 3, foreign: 0, deferred: 0, recommended: 0, moves: 0, drifts: 0, at: "2026-11-22T10:00:00Z" },
  ...over,
});

test("the end of a policy counts connected and other nodes, and what others have changed", () => {
  const nodes = [
    node({}),
    node({ settings: 0 }),
    node({ connected: false, foreign: 2 }),
    node({ version: null, enforced: false, settings: 1 }),
    node({ enforced: false, settings: 0 }),
  ];
  expect(endingOf({ nodes })).toEqual({ now: 3, later: 1, settings: 7, foreign: 2 });
});

test("a node is restored once none of the policy's settings is left there", () => {
  const left = node({ version: null, enforced: false });
  const done = node({ version: null, enforced: false, settings: 0, foreign: 1 });
  expect(unrestored({ nodes: [left, done] })).toEqual([left]);
});

test("no node is restored while the last overview is from before the end of the policy", () => {
  const nodes = [node({}), node({ settings: 0 })];
  expect(unrestored({ nodes })).toEqual(nodes);
});

test("a node has evaluated a policy once it reports another decision than before", () => {
  const before = new Map([[1, "2026-11-22T10:00:00Z"]]);
  const later = node({ at: "2026-11-22T10:00:05Z" });
  expect(evaluated({ nodes: [node({}), later, node({ node_id: 2, at: null })] }, before)).toEqual([later]);
});
