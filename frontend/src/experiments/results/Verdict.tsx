import type { Metric, Verdict as V } from "../types";
import { verdictWords } from "./verdictText";

/** The verdict on a metric: icon, text and color. */
export function Verdict({ verdict, better }: { verdict: V; better: Metric["better"] }) {
  const { icon, words, tone } = verdictWords(verdict, better);
  return (
    <span className={tone}>
      <span aria-hidden="true">{icon}</span> {words}
    </span>
  );
}
