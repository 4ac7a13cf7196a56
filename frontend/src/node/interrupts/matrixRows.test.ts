import { describe, expect, test } from "vitest";
import { chipsByCpu, queuesLabel } from "../cores/irqChips";
import { change, frame, inventory, irq } from "../testData";
import { ownerOf } from "./irqAffinity";
import { averageRates, matrixRows, stableRowOrder } from "./matrixRows";

const LOC = 0x4c4f4320; // "LOC "

test("rates are averaged over the frames' whole time", () => {
  const rates = averageRates([
    frame({
      cells: [
        [41, 2, 100],
        [41, 3, 10],
      ],
    }),
    frame({
      duration_s: 3,
      cells: [
        [41, 2, 300],
        [LOC, 0, 1000],
      ],
    }),
  ]);
  expect([...(rates?.get("41") ?? [])]).toEqual([
    [2, 100],
    [3, 2.5],
  ]);
  expect(rates?.get("LOC")?.get(0)).toBe(250);
});

test("rows include interrupts without a rate; numbers before architecture rows, highest rate first", () => {
  const rates = averageRates([
    frame({
      cells: [
        [9, 0, 5],
        [41, 2, 100],
        [LOC, 0, 1000],
      ],
    }),
  ]);
  const locked = irq(7, { movable: false, locked_reason: "managed" });
  const rows = matrixRows(inventory([irq(41), locked]), rates);
  expect(rows.map(({ label, total }) => [label, total])).toEqual([
    ["41", 100],
    ["9", 5],
    ["7", 0],
    ["LOC", 1000],
  ]);
  expect(rows.map(({ locked: why }) => why)).toEqual([null, null, "managed", null]);
  expect(stableRowOrder(rows, ["7", "41"]).map(({ label }) => label)).toEqual(["7", "41", "9", "LOC"]);
});

test("without samples rates are unknown and not zero", () => {
  expect(averageRates([])).toBeNull();
  expect(averageRates([frame({ irqs: null })])).toBeNull();
  expect(matrixRows(inventory([irq(41)]), null).map(({ label, total }) => [label, total])).toEqual([["41", null]]);
});

describe("an interrupt's owner is", () => {
  const plan = (was: string, becomes: string) => ({
    actions: [{ key: "irq/41/affinity", was, becomes, reason: "" }],
    allow_isolated: false,
  });
  const online = [0, 1, 2, 3];
  const moved = irq(41, { requested: "2" });
  test.each([
    ["Coresteer's confirmed change that set the value", moved, [], [change({})], "Coresteer (ann)"],
    [
      "Coresteer also for an unconfirmed change",
      moved,
      ["irqbalance"],
      [change({ state: "unconfirmed" })],
      "Coresteer (ann)",
    ],
    ["unknown when the change was rolled back", moved, [], [change({ state: "rolled_back" })], "unknown"],
    [
      "the controller when the value differs from the change's",
      irq(41, { requested: "3" }),
      ["irqbalance"],
      [change({})],
      "irqbalance",
    ],
    ["a running controller", moved, ["irqbalance"], [], "irqbalance"],
    ["nobody after an undo: it is as found", irq(41), [], [change({ state: "rolled_back" })], "as found"],
    [
      "nobody after a policy that moved it several times was disabled",
      irq(41, { requested: "1" }),
      ["irqbalance"],
      [
        change({ id: "a", plan: plan("1", "2"), created_at: "2026-11-20T08:00:00Z", policy_id: 3 }),
        change({ id: "b", plan: plan("2", "1"), created_at: "2026-11-20T09:00:00Z", policy_id: 3 }),
      ],
      "as found",
    ],
    [
      "Coresteer's earlier change after the undo of a later one",
      moved,
      [],
      [
        change({ id: "a", created_at: "2026-11-20T08:00:00Z" }),
        change({ id: "b", plan: plan("2", "3"), state: "rolled_back" }),
      ],
      "Coresteer (ann)",
    ],
    ["the kernel when all CPUs are allowed", irq(41), [], [], "kernel default"],
    ["unknown otherwise", moved, [], [change({ key: "irq/42/affinity" })], "unknown"],
  ])("%s", (_, subject, controllers, changes, who) =>
    expect(ownerOf(subject, inventory([subject], controllers), online, changes).who).toBe(who),
  );

  test("the newest of several changes determines the owner", () => {
    const older = change({ id: "a", becomes: "2", created_at: "2026-11-20T08:00:00Z" });
    const newer = change({ id: "b", becomes: "3" });
    expect(ownerOf(moved, inventory([moved]), online, [older, newer]).who).toBe("unknown");
  });
});

test.each([
  [["rx-3", "tx-3"], "-3"],
  [["rx-3"], " rx-3"],
  [[], ""],
  [["rx-0", "rx-1", "rx-2"], "-0…2"],
  [["rx-0", "tx-0", "rx-1", "tx-1"], "-0…1"],
  [["rx-0", "rx-5"], " ×2"],
  [["rx-0", "tx-0", "rx-5", "tx-5"], " ×2"],
])("the chip of queues %o ends in “%s”", (queues, label) => expect(queuesLabel(queues)).toBe(label));

test("chips are at the effective CPU; an interrupt with many target CPUs has none", () => {
  const chips = chipsByCpu(
    inventory([irq(1, { effective: "2" }), irq(2, { effective: null, requested: "0-7" }), irq(3, { netdev: null })]),
  );
  expect([...chips].map(([cpu, on]) => [cpu, on.map(({ irqs }) => irqs)])).toEqual([[2, [[1]]]]);
});

test("the interrupts of a NIC on one CPU are one chip", () => {
  const eight = Array.from({ length: 8 }, (_, queue) => irq(30 + queue, { queues: [`rx-${queue}`], effective: "2" }));
  const chips = chipsByCpu(inventory([...eight, irq(50, { netdev: "eth1", queues: [], effective: "2" })])).get(2);
  expect(chips?.map(({ netdev, queues }) => netdev + queues)).toEqual(["eth0-0…7", "eth1"]);
  expect(chips?.[0]?.irqs).toEqual([30, 31, 32, 33, 34, 35, 36, 37]);
});
