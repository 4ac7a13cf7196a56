import { expect, test } from "vitest";
import type { Schemas } from "../../api/client";
import { reasonNotToApply, refusalOf } from "./applyChange";

const node = (over: Partial<Schemas["Node"]>) =>
  ({ mode: "full", health: "live", labels: { role: "db-1" }, ...over }) as Schemas["Node"];
const user = (role: Schemas["Role"], ...limits: Record<string, string>[]): Schemas["Me"] => ({
  username: "ann",
  role,
  limits,
  csrf_token: null,
  issuer: null,
});
const operator = user("operator");

test.each([
  [node({}), operator, null],
  [node({ health: "stale" }), operator, null],
  [node({}), user("viewer"), "Changing nodes requires the operator role."],
  [node({}), user("operator", { role: "db*" }), null],
  [node({}), user("operator", { role: "db*" }, { rack: "r1" }), "You are operator of role=db* rack=r1 only."],
  [node({ labels: { role: "web" } }), user("operator", { role: "db*" }), "You are operator of role=db* only."],
  [node({ health: "away" }), operator, "The node is not connected."],
  [node({ health: "new" }), operator, "The node is not connected."],
  [
    node({ mode: "observe", observe_reason: "The agent lacks CAP_SYS_ADMIN." }),
    operator,
    "This node is observe-only. The agent lacks CAP_SYS_ADMIN.",
  ],
])("a node %o for %o cannot be changed because: %s", (of, me, reason) => expect(reasonNotToApply(of, me)).toBe(reason));

const preview = (over: object) => ({ can_apply: false, blocked_because: null, refused: [], ...over }) as never;

test.each([
  [undefined, null],
  [preview({ can_apply: true }), null],
  [preview({ blocked_because: "Another change is open.", refused: [{ sentence: "x" }] }), "Another change is open."],
  [preview({ refused: [{ sentence: "CPU 99 is not online." }] }), "CPU 99 is not online."],
  [preview({}), "This plan is refused."],
])("a preview %o is refused because: %s", (of, reason) => expect(refusalOf(of)).toBe(reason));
