import { expect, test } from "vitest";
import type { Schemas } from "../../api/client";
import { reasonNotToApply, refusalOf } from "./applyChange";

const node = (over: Partial<Schemas["Node"]>) => ({ mode: "full", health: "live", ...over }) as Schemas["Node"];

test.each([
  [node({}), true, null],
  [node({ health: "stale" }), true, null],
  [node({}), false, "Changing nodes requires the operator role."],
  [node({ health: "away" }), true, "The node is not connected."],
  [node({ health: "new" }), true, "The node is not connected."],
  [
    node({ mode: "observe", observe_reason: "The agent lacks CAP_SYS_ADMIN." }),
    true,
    "This node is observe-only. The agent lacks CAP_SYS_ADMIN.",
  ],
])("a node %o for an operator (%s) cannot be changed because: %s", (of, isOperator, reason) =>
  expect(reasonNotToApply(of, isOperator)).toBe(reason),
);

const preview = (over: object) => ({ can_apply: false, blocked_because: null, refused: [], ...over }) as never;

test.each([
  [undefined, null],
  [preview({ can_apply: true }), null],
  [preview({ blocked_because: "Another change is open.", refused: [{ sentence: "x" }] }), "Another change is open."],
  [preview({ refused: [{ sentence: "CPU 99 is not online." }] }), "CPU 99 is not online."],
  [preview({}), "This plan is refused."],
])("a preview %o is refused because: %s", (of, reason) => expect(refusalOf(of)).toBe(reason));
