import { expect, test } from "vitest";
import type { Schemas } from "../api/client";
import { zonedTime } from "../lib/time";
import { inventory } from "./testData";
import { warningsOf } from "./warnings";

const node = (changed: Partial<Schemas["Node"]>) =>
  ({
    ...{ mode: "manage", inventory: inventory([]), clock_skew_ms: 0, clock_correction_ms: 0, rejected_samples: 0 },
    ...changed,
  }) as Schemas["Node"];

test("a node without a limit has no warnings", () => expect(warningsOf(node({}))).toEqual([]));

test("what limits changes comes first, then what limits the figures", () => {
  const found = warningsOf(
    node({
      ...{ mode: "observe", observe_reason: "It runs in a container.", rejected_samples: 2, clock_skew_ms: -5000 },
      inventory: {
        ...inventory([]),
        controllers: ["irqbalance"],
        queue_users: [{ kind: "vfio-pci", device: "0000:03:00.0", queues: [], name: null, irqs: [60] }],
      },
    }),
  );
  expect(found.map(({ text, kind }) => `${kind}: ${text}`)).toEqual([
    "warn: observe only",
    "warn: irqbalance runs",
    "warn: 0000:03:00.0: vfio-pci",
    "warn: clock 5\u00a0s behind",
    "bad: 2 samples rejected",
  ]);
  expect(found[0]?.why).toBe("It runs in a container.");
});

const OPENS_AT = "2026-12-02T22:00:00Z";

test.each([
  [OPENS_AT, `until ${zonedTime(Date.parse(OPENS_AT))}`],
  [null, "now"],
])("a node outside its change windows says until when policies write nothing: %s", (opens_at, until) => {
  const [warning] = warningsOf(node({ outside_windows: { opens_at } }));
  expect(warning?.why).toBe(`Policies write nothing here ${until}; people can still change settings`);
});
