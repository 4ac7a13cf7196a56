import { HeatBlock } from "../../charts/heatBlock";
import { type Point, type SeriesAnswer, SeriesRing } from "../../charts/seriesRing";
import type { Range } from "../../charts/TimeOverlay";
import type { RatesFrame } from "../../live/frames";
import { HEAT_SHARES, type HeatShare } from "../cpuShares";
import { largestShare } from "../timeseries/metricValues";
import { type Load, lastShares, loadOf, NO_LOAD, RECENT_MS, withHistory } from "./load";

/** Columns of a heatmap and points of a chart, requested and stored. */
export const HEAT_COLUMNS = 900;
export const CHART_POINTS = 300;
/** Data older than three intervals, at least 3 s, is stale: of a node that is looked at, every sample arrives. */
const LEAST_STALE_MS = 3000;
const STALE_INTERVALS = 3;
const NO_SHARES = new Uint8Array();

/**
 * The live window of one node: filled from history once, then from frames, outside React. Canvases redraw on `on`;
 * components read `version` and render at most once per frame.
 */
export class LiveWindow {
  readonly spanMs: number;
  readonly recent: RatesFrame[] = [];
  private readonly series: SeriesRing;
  /** The cells of every share, so that another one shows at once what is known of it. */
  private readonly heats: Record<HeatShare, HeatBlock>;
  private readonly listeners = new Set<() => void>();
  /** How far the node's clock is ahead of the browser's. */
  skewMs: number;
  /** Frames that say that the clock was set back: since when they arrive, and its least delayed estimate. */
  private setBack: { sinceMs: number; skewMs: number } | null = null;
  private arrivedMs = Date.now();
  private count = 0;
  private stepped = { last: 0, fills: 0, count: 0 };
  private fills = 0;
  private stale: number | null = null;
  private mean: Load = NO_LOAD;
  private cached: { version: number; points: Point[] } = { version: -1, points: [] };
  /** Set while a range is being drawn: listeners are not called. */
  private held = false;

  constructor(cpus: number, spanS: number, intervalS: number, skewMs: number) {
    this.spanMs = spanS * 1000;
    this.skewMs = skewMs;
    const columnMs = Math.max(intervalS * 1000, this.spanMs / HEAT_COLUMNS);
    const stepMs = Math.max(intervalS * 1000, this.spanMs / CHART_POINTS);
    const heat = () => new HeatBlock(cpus, Math.round(this.spanMs / columnMs), columnMs, this.now());
    this.heats = { busy: heat(), softirq: heat(), irq: heat(), user: heat() };
    this.series = new SeriesRing(Math.round(this.spanMs / stepMs), stepMs, this.now());
  }

  /** The cells of a share: of live samples, and of history once it was filled. */
  heat(share: HeatShare): HeatBlock {
    return this.heats[share];
  }

  /** The current time in the node's clock, Unix milliseconds. */
  now(): number {
    return Date.now() + this.skewMs;
  }

  /** The shown time range. */
  range(): Range {
    return { from: this.heats.busy.startMs, to: this.heats.busy.endMs };
  }

  /** The newest frame, however old; see staleSince. */
  get last(): RatesFrame | undefined {
    return this.recent.at(-1);
  }

  /** The time of the newest frame if it is stale; null while frames arrive, and before the first one. */
  readonly staleSince = (): number | null => this.stale;

  /** The mean of the last frames, renewed every 5 s; until the first one, the newest of history. */
  readonly load = (): Load => this.mean;

  /** Takes over the newest frames of a window of another span. */
  follow(other: LiveWindow): void {
    if (this.recent.length > 0) return;
    this.recent.push(...other.recent);
    this.mean = other.mean;
    this.stale = other.stale;
    this.changed();
  }

  push(frame: RatesFrame): void {
    this.arrivedMs = Date.now();
    this.estimate(frame.time_ms - this.arrivedMs);
    const durationMs = frame.duration_s * 1000;
    for (const share of HEAT_SHARES) this.heats[share].push(frame.time_ms, durationMs, frame.share(share) ?? NO_SHARES);
    const softirq = largestShare(frame.share("softirq"))?.percent ?? null;
    this.series.push(frame.time_ms, durationMs, { ...frame.metrics, softirq_cpu_percent: softirq });
    // of either sign: the clock may have been set back
    const isOld = (timeMs: number) => Math.abs(frame.time_ms - timeMs) >= RECENT_MS;
    while (this.recent[0] !== undefined && isOld(this.recent[0].time_ms)) this.recent.shift();
    this.recent.push(frame);
    if (this.mean.frames.length === 0 || isOld(this.mean.timeMs)) this.mean = loadOf([...this.recent], this.mean);
    this.stale = null;
    this.changed();
  }

  /** The least delayed frame estimates the clock best; late ones count only if none is in time for 5 s. */
  private estimate(skewMs: number): void {
    if (this.last === undefined || skewMs > this.skewMs - RECENT_MS) {
      this.skewMs = skewMs;
      this.setBack = null;
      return;
    }
    this.setBack ??= { sinceMs: this.arrivedMs, skewMs };
    this.setBack.skewMs = Math.max(this.setBack.skewMs, skewMs);
    if (this.arrivedMs - this.setBack.sinceMs < RECENT_MS) return;
    this.skewMs = this.setBack.skewMs;
    this.setBack = null;
  }

  fillHeat(share: HeatShare, block: HeatBlock): void {
    this.heats[share].fill(block);
    const newest = this.mean.frames.length > 0 ? null : lastShares(this.heats[share]);
    if (newest !== null) this.mean = withHistory(this.mean, share, newest);
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
    if (this.last !== undefined && silentMs > this.staleMs()) this.stale = this.last.time_ms;
    this.series.advance(now);
    for (const share of HEAT_SHARES) this.heats[share].advance(now);
    this.changed();
  }

  /** Whether no frame has arrived for as long as makes one stale: since the last one, or since the window was made. */
  isSilent(): boolean {
    return Date.now() - this.arrivedMs > this.staleMs();
  }

  private staleMs(): number {
    return Math.max(LEAST_STALE_MS, STALE_INTERVALS * (this.last?.duration_s ?? 0) * 1000);
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
    const newest = this.heats.busy.last;
    if (last !== newest || fills !== this.fills) this.stepped = { last: newest, fills: this.fills, count: count + 1 };
    for (const listener of this.listeners) listener();
  }
}
