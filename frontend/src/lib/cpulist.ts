/** CPU lists in the kernel's format, `0-3,8`; the same errors as coresteer_core.cpuset. */

import { MAX_CPUS } from "../api/constants";

/** An invalid CPU list; the message names the invalid part. */
export class CpuListError extends Error {}

const RANGE = /^(\d{1,5})(?:-(\d{1,5})(?::(\d{1,5})\/(\d{1,5}))?)?$/;

/** Parses a CPU list into ascending CPU numbers; empty text gives none. Throws CpuListError. */
export function parseCpuList(text: string): number[] {
  const trimmed = text.trim();
  if (trimmed === "") return [];
  const cpus = new Set<number>();
  let left = MAX_CPUS;
  for (const piece of trimmed.split(",")) {
    const part = piece.trim();
    const match = RANGE.exec(part);
    if (match === null)
      throw new CpuListError(`“${part.slice(0, 40)}” is not a CPU or a range of CPUs; write for example 0-3,8.`);
    const first = Number(match[1]);
    const last = match[2] === undefined ? first : Number(match[2]);
    if (last < first) throw new CpuListError(`The range ${first}-${last} runs backwards; write ${last}-${first}.`);
    if (last >= MAX_CPUS)
      throw new CpuListError(`CPU ${last} is beyond the largest number Linux can have (${MAX_CPUS - 1}).`);
    const used = match[3] === undefined ? 1 : Number(match[3]);
    const group = match[4] === undefined ? 1 : Number(match[4]);
    if (used < 1 || used > group)
      throw new CpuListError(`The stride ${used}/${group} in “${part}” must use 1 to ${group} of each group.`);
    left -= last - first + 1;
    if (left < 0)
      throw new CpuListError(`The ranges contain more than ${MAX_CPUS} CPUs together; write each CPU once.`);
    for (let cpu = first; cpu <= last; cpu++) if ((cpu - first) % group < used) cpus.add(cpu);
  }
  return [...cpus].sort((a, b) => a - b);
}

/** Formats CPUs as the shortest CPU list: 0, 1, 2, 8 gives `0-2,8`. */
export function formatCpuList(cpus: Iterable<number>): string {
  const ranges: { first: number; last: number }[] = [];
  for (const cpu of [...new Set(cpus)].sort((a, b) => a - b)) {
    const open = ranges.at(-1);
    if (open !== undefined && cpu === open.last + 1) open.last = cpu;
    else ranges.push({ first: cpu, last: cpu });
  }
  return ranges.map(({ first, last }) => (first === last ? `${first}` : `${first}-${last}`)).join(",");
}
