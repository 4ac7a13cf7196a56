import { ABSENT_SHARE } from "../../api/constants";
import type { Colours } from "../../charts/canvas";
import { type HeatBlock, largerCell, NO_DATA } from "../../charts/heatBlock";
import type { Band } from "../../charts/heatPainter";
import type { RatesFrame } from "../../live/frames";

/** Width in pixels of the column of current values, right of the heatmap. */
export const CURRENT_LOAD_WIDTH = 132;

const TEXT_WIDTH = 40;
const HOT = 180;

/** Current shares of a band's busiest CPU in units of 0.5 %; null if unknown. */
export function currentLoadOf(band: Band, frame: RatesFrame): { busy: number; softirq: number; irq: number } | null {
  const busy = frame.share("busy");
  if (busy === null) return null;
  let best: number | null = null;
  for (const cpu of band.cpus) {
    const value = busy[cpu] ?? ABSENT_SHARE;
    if (value !== ABSENT_SHARE && (best === null || value > (busy[best] ?? 0))) best = cpu;
  }
  if (best === null) return null;
  const of = (name: string) => {
    const value = frame.share(name)?.[best] ?? ABSENT_SHARE;
    return value === ABSENT_SHARE ? 0 : value;
  };
  return { busy: busy[best] ?? 0, softirq: of("softirq"), irq: of("irq") };
}

/** Draws, right of the cells, each band's current load, or its maximum in a past block; a dash if unknown. */
export function drawCurrentLoad(
  context: CanvasRenderingContext2D,
  colours: Colours,
  bands: readonly Band[],
  left: number,
  scrollTop: number,
  frame: RatesFrame | undefined,
  block: HeatBlock | null,
): void {
  const [x, barWidth] = [left + 10, CURRENT_LOAD_WIDTH - TEXT_WIDTH - 14];
  context.font = `12px ${colours.get("--font")}`;
  context.textAlign = "right";
  context.textBaseline = "middle";
  for (const band of bands) {
    if (band.cpus.length === 0) continue;
    const middle = band.top - scrollTop + band.height / 2;
    const barHeight = Math.min(12, Math.max(5, band.height * 0.35));
    const now = frame === undefined ? null : currentLoadOf(band, frame);
    const past = frame === undefined && block !== null ? maximum(block, band) : null;
    const units = now?.busy ?? past;
    context.fillStyle = colours.get("--raised");
    context.fillRect(x, middle - barHeight / 2, barWidth, barHeight);
    let at = x;
    const part = (amount: number, token: string) => {
      context.fillStyle = colours.get(token);
      context.fillRect(at, middle - barHeight / 2, (barWidth * amount) / 200, barHeight);
      at += (barWidth * amount) / 200;
    };
    if (now !== null) {
      part(Math.max(0, now.busy - now.softirq - now.irq), "--user");
      part(now.softirq, "--softirq");
      part(now.irq, "--irq");
    } else if (past !== null) part(past, "--user");
    context.fillStyle = colours.get(units === null ? "--muted" : units >= HOT ? "--bad" : "--text");
    context.fillText(units === null ? "–" : `${Math.round(units / 2)} %`, left + CURRENT_LOAD_WIDTH - 2, middle);
  }
}

function maximum(block: HeatBlock, band: Band): number | null {
  const value = band.cpus.reduce((most, cpu) => largerCell(most, cpu < block.rows ? block.max(cpu) : NO_DATA), NO_DATA);
  return value === NO_DATA ? null : value;
}
