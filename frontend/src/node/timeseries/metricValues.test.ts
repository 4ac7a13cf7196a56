import { expect, test } from "vitest";
import { frame, inventory, irq, NO_METRICS } from "../testData";
import { largestShare, meanOf, packetsPerInterrupt } from "./metricValues";

const known = inventory([irq(41)]);

test("only the NICs' interrupts count for packets per interrupt", () => {
  const frames = [
    frame({
      duration_s: 2,
      metrics: { ...NO_METRICS, rx_packets_per_s: 10 },
      cells: [
        [41, 0, 4],
        [9, 0, 1000],
      ],
    }),
  ];
  expect(packetsPerInterrupt(frames, known)).toBe(5);
  expect(packetsPerInterrupt([frame()], known)).toBeNull();
});

test("means and maxima leave out what is unknown", () => {
  expect(largestShare(Uint8Array.from([10, 255, 190]))).toEqual({ cpu: 2, percent: 95 });
  expect(largestShare(Uint8Array.from([255]))).toBeNull();
  expect(meanOf([{ t: 0, rtt_p99_us: 100 }, { t: 1 }, { t: 2, rtt_p99_us: 300 }]).rtt_p99_us).toBe(200);
});
