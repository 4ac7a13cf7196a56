import type { Metric, Verdict as V } from "../types";
import { verdictWords } from "./verdictText";

/** What was concluded of a figure: a sign, words, and a colour. */
export function Verdict({ verdict, better }: { verdict: V; better: Metric["better"] }) {
  const { icon, words, tone } = verdictWords(verdict, better);
  return (
    <span className={tone}>
      <span aria-hidden="true">{icon}</span> {words}
    </span>
  );
}
