import type { Schemas } from "../../api/client";
import { changeWords } from "../../changes/words";
import { formatCpuList } from "../../lib/cpulist";
import { percent } from "../../lib/format";

export type HotSpot = Schemas["NodeSuggestions"]["suggestions"]["hot"][number];
export type Option = HotSpot["options"][number];

/** Load of one CPU, or of the busiest of several, before and after moves, in percent. */
export type LoadChange = { label: string; before: number; least: number; most: number };

const within = (value: number) => Math.min(100, Math.max(0, value));

/** The predicted load of the hot CPU and of the busiest destination, if the options are applied together. */
export function loadChanges(cpu: number, options: readonly Option[]): LoadChange[] {
  const sums = new Map<number, { before: number; least: number; most: number }>();
  for (const forecast of options.flatMap(({ forecasts }) => forecasts)) {
    const sum = sums.get(forecast.cpu) ?? { before: forecast.before, least: 0, most: 0 };
    sums.set(forecast.cpu, { ...sum, least: sum.least + forecast.least, most: sum.most + forecast.most });
  }
  const changes = [...sums].map(([number, { before, least, most }]) => ({
    cpu: number,
    before,
    least: within(before + least),
    most: within(before + most),
  }));
  const own = changes.find((change) => change.cpu === cpu);
  const others = changes.filter((change) => change.cpu !== cpu);
  const busiest = others.toSorted((a, b) => b.most - a.most)[0];
  const targets = formatCpuList(others.map((change) => change.cpu));
  return [
    ...(own === undefined ? [] : [{ ...own, label: `CPU ${cpu}` }]),
    ...(busiest === undefined
      ? []
      : [{ ...busiest, label: others.length === 1 ? `CPU ${targets}` : "busiest target" }]),
  ].map(({ label, before, least, most }) => ({ label, before, least, most }));
}

/** A predicted range in percent: `41 to 66 %`, or one number where its ends round to the same. */
export function rangeText(least: number, most: number): string {
  const [low, high] = [percent(least).value, percent(most).value];
  return low === high ? `${low}\u00a0%` : `${low} to ${high}\u00a0%`;
}

/** How busy in percent a CPU is whose work waits: what it drops or delays may follow to its destinations. */
const SATURATED_PERCENT = 98;

/** What the range of a prediction covers, as the end of a sentence. */
export function movesText({ cpu, busy }: HotSpot, { policy }: Option): string {
  const moves =
    policy === "irq-spread"
      ? "half to 1.5 times the interrupts’ part moves"
      : "half to all of the process’s time moves";
  if (busy < SATURATED_PERCENT) return `${moves}.`;
  return `${moves}. CPU ${cpu} is saturated: what it drops or delays now may follow, up to 2.5 times its part.`;
}

type Recommended = Pick<Schemas["Decision"], "policy_name"> & {
  evaluation: Pick<Schemas["Decision"]["evaluation"], "actions">;
};

/** How what a policy recommends compares with an option; null if none recommends to move the same kind of thing. */
export function recommendedText({ moves }: Option, decisions: readonly Recommended[]): string | null {
  const kindOf = (key: string) => key.split("/")[0];
  const kind = kindOf(moves[0]?.key ?? "");
  const found = decisions.find(({ evaluation }) => evaluation.actions.some(({ key }) => kindOf(key) === kind));
  if (found === undefined) return null;
  const becomes = new Map(found.evaluation.actions.map((action) => [action.key, action.becomes]));
  if (moves.every(({ key, value }) => becomes.get(key) === value)) return `“${found.policy_name}” recommends the same.`;
  const { what, values } = changeWords(found.evaluation.actions);
  const others = [what, values].filter(Boolean).join(" ");
  return `“${found.policy_name}” recommends ${others}: it weighs the whole node, by its own limits.`;
}

/** What an option adds to others, in a few words: `CPU 47 → 9 to 20 %`. */
export function addedEffect(cpu: number, others: readonly Option[], option: Option): string {
  if (option.forecasts.some((forecast) => forecast.cpu === cpu && forecast.least < 0)) {
    const [own] = loadChanges(cpu, [...others, option]);
    if (own !== undefined) return `CPU ${cpu} → ${rangeText(own.least, own.most)}`;
  }
  if (option.crossing === null) return "";
  const { before, after } = option.crossing;
  return `packets that cross a cache ${Math.round(before)} → ${Math.round(after)} %`;
}

/** The hot CPU that is shown: the wanted one, else the selected CPU or that of the selected IRQ, else the first that a move helps. */
export function shownSpot(hot: readonly HotSpot[], wanted: number | undefined, sel = ""): HotSpot | undefined {
  const [kind, number] = sel.split(":");
  const moves = (spot: HotSpot) => spot.options.flatMap((option) => option.moves);
  return (
    hot.find(({ cpu }) => cpu === wanted) ??
    hot.find(({ cpu }) => kind === "cpu" && cpu === Number(number)) ??
    hot.find((spot) => kind === "irq" && moves(spot).some(({ key }) => key === `irq/${number}/affinity`)) ??
    hot.find(({ options }) => options.length > 0) ??
    hot[0]
  );
}

/** The hot CPU whose preview is open: as it was when the preview was opened. Undefined without one. */
export function pinnedSpot(
  before: HotSpot | undefined,
  wanted: number | undefined,
  latest: HotSpot | undefined,
): HotSpot | undefined {
  if (wanted === undefined) return undefined;
  return before?.cpu !== wanted && latest?.cpu === wanted ? latest : before;
}

/** The CPUs that options move a hot CPU's work to. */
export function targetsOf(cpu: number | undefined, options: readonly Option[]): number[] {
  const gains = options.flatMap(({ forecasts }) => forecasts).filter((one) => one.cpu !== cpu && one.most > 0);
  return [...new Set(gains.map((one) => one.cpu))];
}

/** The settings of options, each as `irq/31/affinity=12`, separated by spaces: a search parameter of the experiment form. */
export const settingsText = (options: readonly Option[]): string =>
  options.flatMap(({ moves }) => moves.map(({ key, value }) => `${key}=${value}`)).join(" ");
