import { expect, test } from "vitest";
import { frame, inventory, irq } from "../testData";
import { largestShare, meanOf, packetsPerInterrupt, sumKnown, valuesOf } from "./metricValues";

const lo = ["lo", 9999, 9999, 99, 99, 0, 0, 0, 0] as [string, ...number[]];
const eth0 = ["eth0", 2000, 1000, 20, 10, 3, 1, 0, 0] as [string, ...number[]];
const known = inventory([irq(41)]);
known.netdevs = known.netdevs.flatMap((netdev) => [netdev, { ...netdev, name: "lo", virtual: true }]);

test("figures are rates of the physical netdevs", () => {
  const values = valuesOf(frame({ duration_s: 2, netdevs: [lo, eth0], tcp: [4, 100, 200, 300] }), known);
  expect(values.rx_bytes_per_s).toBe(1000);
  expect(values.tx_packets_per_s).toBe(5);
  expect(values.dropped_per_s).toBeNull();
  expect(values.rtt_p99_us).toBe(300);
});

test("what was not read is unknown and not zero", () => {
  const values = valuesOf(frame({ irqs: null }), known);
  expect(Object.values(values).every((value) => value === null)).toBe(true);
});

test("only the NICs' interrupts count for packets per interrupt", () => {
  const frames = [
    frame({
      netdevs: [eth0],
      cells: [
        [41, 0, 4],
        [9, 0, 1000],
      ],
    }),
  ];
  expect(packetsPerInterrupt(frames, known)).toBe(5);
  expect(packetsPerInterrupt([frame()], known)).toBeNull();
});

test("sums and maxima leave out what is unknown", () => {
  expect(sumKnown(Uint32Array.from([1, 0xffffffff, 2]))).toBe(3);
  expect(sumKnown(Uint32Array.from([0xffffffff]))).toBeNull();
  expect(largestShare(Uint8Array.from([10, 255, 190]))).toEqual({ cpu: 2, percent: 95 });
  expect(largestShare(Uint8Array.from([255]))).toBeNull();
  expect(meanOf([{ t: 0, rtt_p99_us: 100 }, { t: 1 }, { t: 2, rtt_p99_us: 300 }]).rtt_p99_us).toBe(200);
});
