import type { Colours } from "../../charts/canvas";
import { largerCell, NO_DATA } from "../../charts/heatBlock";
import type { HeatShare } from "../cpuShares";
import type { Shares } from "../time/load";
import type { Density, RowBand } from "./coreRows";

/** Share from which a value is shown as hot, and below which it is muted, in units of 0.5 %. */
const HOT = 180;
const COOL = 60;

const BAR_HEIGHT = 5;

/** The colour token of a share's bars. */
const TOKENS: Record<HeatShare, string> = {
  busy: "--user",
  softirq: "--softirq",
  irq: "--irq",
  user: "--user",
};

/** The highest share of CPUs; NO_DATA if all are unknown. */
export function highestShare(cpus: readonly number[], shares: Shares): number {
  return cpus.reduce((most, cpu) => largerCell(most, shares[cpu] ?? NO_DATA), NO_DATA);
}

/** The mean share of the CPUs whose share is known; NO_DATA if none is. */
export function meanShare(cpus: readonly number[], shares: Shares): number {
  const known = cpus.map((cpu) => shares[cpu] ?? NO_DATA).filter((value) => value !== NO_DATA);
  return known.length === 0 ? NO_DATA : known.reduce((sum, value) => sum + value, 0) / known.length;
}

/** A share as text: `44 %`, a dash if unknown. */
export function shareText(value: number): string {
  return value === NO_DATA ? "–" : `${Math.round(value / 2)} %`;
}

type Load = { bands: readonly RowBand[]; density: Density; share: HeatShare; isStale: boolean };

/** Draws, right of the cells, each band's share as a bar and as text; headings have “max” instead of a bar. Stale: gray. */
export function drawShares(
  context: CanvasRenderingContext2D,
  colours: Colours,
  { bands, density, share, isStale }: Load,
  left: number,
  shares: Shares,
): void {
  const right = left + density.load;
  const textWidth = 4 * density.font - 4;
  const barWidth = density.load - textWidth - 12;
  context.textBaseline = "middle";
  context.textAlign = "right";
  for (const { of, cpus, top, height } of bands) {
    const middle = top + height / 2;
    const value = highestShare(of, shares);
    const isHeading = cpus.length === 0;
    const isHot = value !== NO_DATA && value >= HOT && !isHeading && !isStale;
    if (isHeading) {
      context.font = `${density.font - 0.5}px ${colours.get("--font")}`;
      context.fillStyle = colours.get("--muted");
      context.fillText("max", right - textWidth - 4, middle);
    } else if (value !== NO_DATA && !density.phone) {
      context.fillStyle = colours.get(isStale ? "--line-strong" : isHot ? "--bad" : TOKENS[share]);
      context.fillRect(left + 6, middle - BAR_HEIGHT / 2, (barWidth * value) / 200, BAR_HEIGHT);
    }
    context.font = `${isHot ? "bold " : ""}${density.font}px ${colours.get("--font")}`;
    const quiet = value === NO_DATA || value < COOL || isHeading || isStale;
    context.fillStyle = colours.get(isHot ? "--bad" : quiet ? "--muted" : "--text");
    context.fillText(shareText(value), right - 1, middle + 0.5);
  }
}
