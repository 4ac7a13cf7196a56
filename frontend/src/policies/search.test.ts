import { expect, test } from "vitest";
import { validatePolicySearch } from "./search";

const given = (search: Record<string, unknown>) =>
  Object.fromEntries(Object.entries(validatePolicySearch(search)).filter(([, value]) => value !== undefined));

test.each([
  [{}, {}],
  [{ tab: "edit" }, { tab: "edit" }],
  [{ tab: "replay" }, { tab: "backtest" }],
  [
    { tab: "versions", version: "3", diff: "1" },
    { tab: "versions", version: 3, diff: 1 },
  ],
  [{ tab: "?", version: "0", diff: "-1", nodes: "all", node: "x" }, {}],
  [
    { tab: "proof", version: "2", metric: "rtt_p99_us", label: "role" },
    { tab: "overview", version: 2, metric: "rtt_p99_us", label: "role" },
  ],
  [{ nodes: "3,17" }, { nodes: "3,17" }],
  [
    { tab: "backtest", node: "4", from: "1000", to: "3601000" },
    { tab: "backtest", node: 4, from: 1000, to: 3_601_000 },
  ],
  [{ from: "1000", to: "3601001" }, {}],
  [{ from: "2000", to: "1000" }, {}],
])("%o is understood as %o", (search, expected) => expect(given(search)).toEqual(expected));
