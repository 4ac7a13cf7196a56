import type { Schemas } from "../../api/client";
import { parseCpuList } from "../../lib/cpulist";
import { bytes, duration, formatFigure } from "../../lib/format";
import type { Decision } from "../../policies/types";
import { controllersOf } from "../controllers";
import type { Change } from "../types";
import { memoryShares, type NumaTask } from "./numaTasks";

export type MoveOption = Schemas["NumaMoveOption"];
export type Desired = Schemas["DesiredValueIn"][];

const keyOf = (pid: number, name: string) => `task/${pid}/${name}`;

const isOf = (key: string, pid: number) => key.startsWith(keyOf(pid, ""));

/** The settings of an option: the CPUs first, because later page faults follow them. */
export function desiredOf(pid: number, { cpus, node, with_pages }: MoveOption): Desired {
  const affinity = { key: keyOf(pid, "affinity"), value: cpus };
  return with_pages ? [affinity, { key: keyOf(pid, "memory-nodes"), value: String(node) }] : [affinity];
}

const sameCpus = (a: string, b: string) => parseCpuList(a).join() === parseCpuList(b).join();

/** Whether a process is already where an option would move it. */
export function isPresent(option: MoveOption, task: Pick<NumaTask, "affinity" | "bytes_by_node">): boolean {
  const elsewhere = (memoryShares(task) ?? []).some(({ node }) => node !== option.node);
  return sameCpus(option.cpus, task.affinity) && !(option.with_pages && elsewhere);
}

/** The options that change something, the one that saves most CPU time first; the cheaper one of equals. */
export const usefulOptions = (options: MoveOption[], task: NumaTask): MoveOption[] =>
  options
    .filter((option) => !isPresent(option, task))
    .sort((a, b) => b.saved_cpus - a.saved_cpus || a.cost_s - b.cost_s || a.node - b.node);

const MIN_SAVED_CPUS = 0.005;

/** Whether an option is predicted to pay off. */
export const paysOff = ({ speed_up, saved_cpus }: MoveOption): boolean => speed_up > 1 && saved_cpus >= MIN_SAVED_CPUS;

/** `Run on node 1 (CPUs 4-7)` */
export const placeText = ({ node, cpus }: MoveOption): string =>
  `Run on node ${node} (${parseCpuList(cpus).length === 1 ? "CPU" : "CPUs"} ${cpus})`;

/** A predicted time with two digits: `0.41 s`, `12 ms`. */
function roughly(seconds: number): string {
  if (seconds < 0.1) return `${Math.max(1, Math.round(1000 * seconds))} ms`;
  return seconds < 10 ? `${Number(seconds.toPrecision(2))} s` : duration(seconds);
}

/** `and move 512 MiB (about 0.4 s)`; null if no memory moves. */
export const pagesText = ({ with_pages, moved_bytes, cost_s }: MoveOption): string | null =>
  with_pages ? `and move ${formatFigure(bytes(moved_bytes))} (about ${roughly(cost_s)})` : null;

/** CPU time that a move saves, with its sign: `0.42`, `−0.10`, `0`. */
export function savedText({ saved_cpus }: MoveOption): string {
  if (Math.abs(saved_cpus) < MIN_SAVED_CPUS) return "0";
  return `${saved_cpus < 0 ? "−" : ""}${Math.abs(saved_cpus).toFixed(2)}`;
}

/** What an option is predicted to bring, in one sentence. */
export function benefitText(option: MoveOption): string {
  const saved = savedText(option);
  const cpus =
    saved === "0" ? "no CPU time saved" : `${saved.replace("−", "")} CPUs ${option.saved_cpus < 0 ? "lost" : "saved"}`;
  return `Predicted: speed-up ×${option.speed_up.toFixed(2)}, ${cpus}.`;
}

/** The newest change of a process's settings since its start; earlier ones are of another process with its PID. */
export const latestChange = (changes: Change[], pid: number, startedMs: number): Change | undefined =>
  changes.find(
    ({ plan, created_at }) => Date.parse(created_at) >= startedMs && plan.actions.some(({ key }) => isOf(key, pid)),
  );

/** The settings that undo a confirmed change, last action first; null if it no longer applies or differs by thread. */
export function undoOf({ state, plan }: Change, { pid, affinity }: Pick<NumaTask, "pid" | "affinity">): Desired | null {
  const set = plan.actions.find(({ key }) => key === keyOf(pid, "affinity"));
  if (state !== "confirmed" || (set !== undefined && !sameCpus(set.becomes, affinity))) return null;
  const undo = plan.actions.toReversed().map(({ key, was }) => ({ key, value: was }));
  return undo.some(({ key, value }) => key === keyOf(pid, "affinity") && value.includes(";")) ? null : undo;
}

/** What decides where a process runs: Coresteer, policies, its own program, and other controllers. decisions: the latest. */
export function ownersOf(
  task: NumaTask,
  change: Change | undefined,
  decisions: Decision[],
  controllers: string[],
): string[] {
  const affinity = change?.plan.actions.find(({ key }) => key === keyOf(task.pid, "affinity"));
  const isOurs =
    affinity !== undefined &&
    (change?.state === "confirmed" || change?.state === "unconfirmed") &&
    sameCpus(affinity.becomes, task.affinity);
  const owners = [];
  if (task.bound) owners.push("kernel thread bound to its CPUs");
  else if (sameCpus(task.affinity, task.allowed)) owners.push("CPUs chosen by the kernel's scheduler");
  else if (isOurs) owners.push(`CPUs set by Coresteer (${change?.created_by}), ${change?.state}`);
  else if (affinity !== undefined && change?.applied_at !== null && sameCpus(affinity.was, task.affinity))
    owners.push("CPUs as found before the last change");
  else owners.push("CPUs restricted by the program or a person");
  if (task.mempolicy !== null) owners.push(`memory placed by the program's own policy, ${task.mempolicy}`);
  for (const { policy_name, mode, evaluation } of decisions)
    if (evaluation.actions.some(({ key }) => isOf(key, task.pid)))
      owners.push(mode === "enforce" ? `policy ${policy_name} moves it` : `policy ${policy_name} proposes to move it`);
  const movers = controllersOf(keyOf(task.pid, "affinity"), controllers);
  const ofMemory = controllersOf(keyOf(task.pid, "memory-nodes"), controllers).filter((name) => !movers.includes(name));
  if (movers.length > 0) owners.push(`${movers.join(", ")} may move it, too`);
  if (ofMemory.length > 0) owners.push(`${ofMemory.join(", ")} may move its memory, too`);
  return owners;
}
