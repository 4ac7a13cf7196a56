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
      outside_windows: { opens_at: null },
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
    "warn: outside its change windows",
    "warn: clock 5\u00a0s behind",
    "bad: 2 samples rejected",
  ]);
  expect(found[0]?.why).toBe("It runs in a container.");
});

test("a node outside its change windows says until when policies write nothing", () => {
  const opens_at = "2026-12-02T22:00:00Z";
  const [warning] = warningsOf(node({ outside_windows: { opens_at } }));
  expect(warning?.text).toBe("outside its change windows");
  const until = `until ${zonedTime(Date.parse(opens_at))}`;
  expect(warning?.why).toBe(`Policies write nothing here ${until}, except in an experiment`);
});

test("a node whose windows do not open soon gives no time", () => {
  const [warning] = warningsOf(node({ outside_windows: { opens_at: null } }));
  expect(warning?.why).toBe("Policies write nothing here now, except in an experiment");
});
