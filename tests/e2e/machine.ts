// The machine whose interrupts the browser tests move: this one where possible, else a generated tree.
import { mkdtemp, readdir, readFile, stat } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { bin, Child } from "./stack";

export type Machine = { root: string; movable: number; managed: number | null; stop: () => Promise<void> };

type Found = { irq: number; count: number; writable: boolean };

const affinityPath = (root: string, irq: number) => join(root, `proc/irq/${irq}/smp_affinity_list`);

export async function affinity(machine: Machine, irq: number): Promise<string> {
  return (await readFile(affinityPath(machine.root, irq), "ascii")).trim();
}

/** The numbered interrupts with an affinity, lowest count first. */
async function interrupts(root: string): Promise<Found[]> {
  const table = await readFile(join(root, "proc/interrupts"), "ascii");
  const rows = table.matchAll(/^ *(\d+):((?: +\d+)+)/gm);
  const withAffinity = new Set(await readdir(join(root, "proc/irq")));
  const found = [...rows]
    .filter(([, irq]) => irq !== undefined && withAffinity.has(irq))
    .map(async ([, irq, counts]) => {
      const { mode } = await stat(affinityPath(root, Number(irq)));
      const count = (counts ?? "")
        .trim()
        .split(/ +/)
        .reduce((sum, cell) => sum + Number(cell), 0);
      return { irq: Number(irq), count, writable: (mode & 0o200) !== 0 };
    });
  return (await Promise.all(found)).sort((a, b) => a.count - b.count);
}

/** A generated machine of 128 CPUs with increasing counters. */
export async function generatedMachine(): Promise<Machine> {
  const root = await mkdtemp(join(tmpdir(), "coresteer-tree-"));
  const generator = new Child(bin("python"), ["-m", "tests.fixtures.large_tree", root], process.env);
  await generator.until(/\n/);
  return { ...(await pick(root)), stop: () => generator.stop() };
}

async function pick(root: string): Promise<Omit<Machine, "stop">> {
  const all = await interrupts(root);
  const movable = all.find(({ writable }) => writable);
  if (movable === undefined) throw new Error(`No interrupt of ${root} may be moved.`);
  return { root, movable: movable.irq, managed: all.find(({ writable }) => !writable)?.irq ?? null };
}

/** This machine if the tests run as root and it has several CPUs, else a generated one. */
export async function someMachine(): Promise<Machine> {
  const several = (await readFile("/sys/devices/system/cpu/online", "ascii")).trim() !== "0";
  if (process.getuid?.() === 0 && several) {
    const here = await pick("/").catch(() => null);
    if (here !== null) return { ...here, stop: async () => undefined };
  }
  return generatedMachine();
}
