import { csv } from "../../lib/csv";
import type { Surface } from "./nicParams";

const HEAD = [
  ...["rx-usecs (µs)", "rx-frames", "interrupts (1/s)", "packets per interrupt"],
  ...["added latency, mean (µs)", "added latency, p99 (µs)", "added latency, max (µs)"],
];

/** The trade-off as CSV, a row for each pair of rx-usecs and rx-frames. */
export function surfaceCsv({ predicted, rx_usecs, rx_frames }: Surface): string {
  const rows = predicted.flatMap((line, row) =>
    line.map((cell, column) => [
      ...[rx_usecs[column] ?? null, rx_frames[row] ?? null],
      ...[cell?.interrupts_per_s ?? null, cell?.packets_per_interrupt ?? null],
      ...[cell?.added_mean_us ?? null, cell?.added_p99_us ?? null, cell?.added_worst_us ?? null],
    ]),
  );
  return csv([HEAD, ...rows]);
}
