import { type HeatBlock, NO_DATA } from "../../charts/heatBlock";
import { csv, isoTime, withUnit } from "../../lib/csv";

/** A heatmap's shares in percent as CSV, a row for each column of pixels and a column for each CPU. */
export function heatCsv(block: HeatBlock | null, cpus: number[], share: string): string {
  if (block === null) return csv([["time (UTC)"]]);
  const rows = Array.from({ length: block.columns }, (_, column) => {
    const time = block.startMs + column * block.columnMs;
    const shares = cpus.map((cpu) => block.at(cpu, time + block.columnMs / 2));
    return [isoTime(time), ...shares.map((cell) => (cell === NO_DATA ? null : cell / 2))];
  });
  return csv([["time (UTC)", ...cpus.map((cpu) => withUnit(`CPU ${cpu} ${share}`, "%"))], ...rows]);
}
