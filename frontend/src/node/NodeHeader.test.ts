import { expect, test } from "vitest";
import { driversOf } from "./NodeHeader";
import { inventory } from "./testData";

test("physical NICs are counted by driver and speed; virtual ones and those without a driver are omitted", () => {
  const [eth0] = inventory([]).netdevs;
  if (eth0 === undefined) throw new Error("the inventory has a NIC");
  const netdevs = [
    eth0,
    { ...eth0, name: "eth1" },
    { ...eth0, name: "eth2", speed_bits_per_s: null },
    { ...eth0, name: "br0", virtual: true },
    { ...eth0, name: "eth3", driver: null },
  ];
  expect(driversOf({ ...inventory([]), netdevs })).toEqual(["igb ×2 · 1\u00a0Gbit/s", "igb"]);
});
