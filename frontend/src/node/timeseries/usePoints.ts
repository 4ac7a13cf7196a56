import { useEffect, useMemo, useState } from "react";
import type { Point } from "../../charts/seriesRing";
import type { NodeView } from "../nodeView";
import type { LiveWindow } from "../time/liveWindow";

/** Delay between the redraws of two charts: separate short tasks keep the page responsive. */
const STAGGER_MS = 40;

/** Rerenders with every step of the live window, delayed by the chart's index; returns the step count. */
export function useSteps(window: LiveWindow, turn: number): number {
  const [step, setStep] = useState(window.steps);
  useEffect(() => {
    let timer: ReturnType<typeof setTimeout> | undefined;
    const stop = window.on(() => {
      clearTimeout(timer);
      timer = setTimeout(() => setStep(window.steps()), turn * STAGGER_MS);
    });
    return () => {
      clearTimeout(timer);
      stop();
    };
  }, [window, turn]);
  return step;
}

/** pastPoints: points of a past range, empty while loading. */
export type PointsOf = { view: NodeView; pastPoints: Point[] };

/** The points of the metrics, the time axis and the values kept while silent, renewed with every step of the live window. */
export function usePoints({ view, pastPoints }: PointsOf, turn: number) {
  const { window, past, kept, marks, cursor, zoom, hold } = view;
  const step = useSteps(window, turn);
  // biome-ignore lint/correctness/useExhaustiveDependencies: the window is mutated in place; step changes with it.
  const points = useMemo(() => (past === null ? window.points() : pastPoints), [past, pastPoints, window, step]);
  // biome-ignore lint/correctness/useExhaustiveDependencies: the window is mutated in place; step changes with it.
  const axis = useMemo(
    () => ({ range: past ?? window.range(), marks, cursor, onZoom: zoom, onHold: hold }),
    [past, window, marks, cursor, zoom, hold, step],
  );
  return { points, axis, kept };
}
