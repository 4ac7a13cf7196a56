import { HeatBlock } from "../../charts/heatBlock";
import { type Point, type SeriesAnswer, SeriesRing } from "../../charts/seriesRing";
import type { Range } from "../../charts/TimeOverlay";
import type { RatesFrame } from "../../live/frames";
import type { HeatShare } from "../cpuShares";

/** Columns of a heatmap and points of a chart, requested and stored. */
export const HEAT_COLUMNS = 900;
export const CHART_POINTS = 300;
/** Period over which the matrix and the side panel average, in ms. */
const RECENT_MS = 5000;

/**
 * The live window of one node: filled from history once, then from frames, outside React. Canvases redraw on `on`;
 * components read `version` and render at most once per frame.
 */
export class LiveWindow {
  heat: HeatBlock;
  readonly spanMs: number;
  readonly recent: RatesFrame[] = [];
  private readonly series: SeriesRing;
  private readonly listeners = new Set<() => void>();
  private share: HeatShare = "busy";
  private skewMs: number;
  private count = 0;
  private stepped = { last: 0, fills: 0, count: 0 };
  private fills = 0;
  private cached: { version: number; points: Point[] } = { version: -1, points: [] };
  /** Set while a range is being drawn: listeners are not called. */
  private held = false;

  constructor(cpus: number, spanS: number, intervalS: number, skewMs: number) {
    this.spanMs = spanS * 1000;
    this.skewMs = skewMs;
    const columnMs = Math.max(intervalS * 1000, this.spanMs / HEAT_COLUMNS);
    const stepMs = Math.max(intervalS * 1000, this.spanMs / CHART_POINTS);
    this.heat = new HeatBlock(cpus, Math.round(this.spanMs / columnMs), columnMs, this.now());
    this.series = new SeriesRing(Math.round(this.spanMs / stepMs), stepMs, this.now());
  }

  /** Selects the share that the cells show; they are empty until history fills them. */
  show(share: HeatShare): void {
    if (share === this.share) return;
    this.share = share;
    this.heat = new HeatBlock(this.heat.rows, this.heat.columns, this.heat.columnMs, this.now());
    this.changed();
  }

  /** The current time in the node's clock, Unix milliseconds. */
  now(): number {
    return Date.now() + this.skewMs;
  }

  /** The shown time range. */
  range(): Range {
    return { from: this.heat.startMs, to: this.heat.endMs };
  }

  get last(): RatesFrame | undefined {
    return this.recent.at(-1);
  }

  push(frame: RatesFrame): void {
    // The least delayed frame estimates the node's clock best; late frames are ignored.
    const skew = frame.time_ms - Date.now();
    if (skew > this.skewMs || Math.abs(skew - this.skewMs) < RECENT_MS) this.skewMs = skew;
    const durationMs = frame.duration_s * 1000;
    const shares = frame.share(this.share);
    if (shares !== null) this.heat.push(frame.time_ms, durationMs, shares);
    this.series.push(frame.time_ms, durationMs, frame.metrics);
    while (this.recent[0] !== undefined && frame.time_ms - this.recent[0].time_ms >= RECENT_MS) this.recent.shift();
    this.recent.push(frame);
    this.changed();
  }

  fillHeat(block: HeatBlock): void {
    this.heat.fill(block);
    this.fills += 1;
    this.changed();
  }

  fillSeries(history: SeriesAnswer): void {
    this.series.fill(history);
    this.fills += 1;
    this.changed();
  }

  /** Advances the window without data while no frames arrive. */
  tick(): void {
    const now = this.now();
    const silentMs = now - (this.last?.time_ms ?? 0);
    if (silentMs < 2.5 * Math.max(1000, (this.last?.duration_s ?? 0) * 1000)) return;
    if (silentMs > RECENT_MS) this.recent.length = 0;
    this.series.advance(now);
    this.heat.advance(now);
    this.changed();
  }

  hold(held: boolean): void {
    this.held = held;
    if (!held) this.changed();
  }

  points(): Point[] {
    if (this.cached.version !== this.count) this.cached = { version: this.count, points: this.series.points() };
    return this.cached.points;
  }

  readonly on = (listener: () => void): (() => void) => {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  };
  readonly version = (): number => this.count;

  /** Counts new columns and history fills: the redraw rate of charts, which cost more than a heatmap column. */
  readonly steps = (): number => this.stepped.count;

  private changed(): void {
    if (this.held) return;
    this.count += 1;
    const { last, fills, count } = this.stepped;
    if (last !== this.heat.last || fills !== this.fills)
      this.stepped = { last: this.heat.last, fills: this.fills, count: count + 1 };
    for (const listener of this.listeners) listener();
  }
}
