/** Synthetic topologies, interrupts, changes and frames for tests. */

import { formatCpuList } from "../lib/cpulist";
import { HISTORY_METRICS } from "../lib/metrics";
import type { RatesFrame } from "../live/frames";
import type { NumaEntry } from "./numa/numaTasks";
import type { Change, Inventory, Irq, Topology } from "./types";

type Shape = { packages: number; nodesEach: number; cachesEach: number; coresEach: number; threads: number };

/** A symmetric topology; second threads are numbered after all first threads, as on most x86. */
export function machine({ packages, nodesEach, cachesEach, coresEach, threads }: Shape): Topology {
  const cores = packages * nodesEach * cachesEach * coresEach;
  const cpusOf = (core: number) => Array.from({ length: threads }, (_, thread) => core + thread * cores);
  const cpusOfCores = (first: number, count: number) =>
    formatCpuList(Array.from({ length: count }, (_, index) => cpusOf(first + index)).flat());
  const coresPerNode = cachesEach * coresEach;
  const cpus = Array.from({ length: cores * threads }, (_, cpu) => {
    const core = cpu % cores;
    const numaNode = Math.floor(core / coresPerNode);
    return {
      cpu,
      core,
      package: Math.floor(numaNode / nodesEach),
      numa_node: numaNode,
      online: true,
      siblings: formatCpuList(cpusOf(core)),
      capacity: null,
    };
  });
  return {
    cpus,
    numa_nodes: Array.from({ length: packages * nodesEach }, (_, id) => ({
      id,
      cpus: cpusOfCores(id * coresPerNode, coresPerNode),
      memory_bytes: null,
      distances: [],
    })),
    caches: Array.from({ length: packages * nodesEach * cachesEach }, (_, index) => ({
      level: 3,
      type: "Unified",
      size_bytes: 8 * 1024 * 1024,
      cpus: cpusOfCores(index * coresEach, coresEach),
    })),
    isolated: "",
    nohz_full: "",
  };
}

export function irq(number: number, over: Partial<Irq> = {}): Irq {
  return {
    irq: number,
    name: `eth0-TxRx-${number}`,
    chip: "PCI-MSIX",
    requested: "0-3",
    effective: "2",
    numa_node: 0,
    movable: true,
    locked_reason: null,
    netdev: "eth0",
    queues: [`rx-${number}`, `tx-${number}`],
    ...over,
  };
}

export function inventory(irqs: Irq[], controllers: string[] = []): Inventory {
  const queues = irqs.flatMap(({ irq: number, queues: names }) =>
    names.map((name) => ({ name, irq: number, source: "msi_irqs", napi_id: null, rps: null, xps: null, params: {} })),
  );
  const eth0 = {
    name: "eth0",
    driver: "igb",
    speed_bits_per_s: 1_000_000_000,
    mtu: 1500,
    numa_node: 0,
    up: true,
    virtual: false,
    management: false,
    ...{ channels: null, channels_max: null, rss: null, params: {}, params_max: {}, addresses: [], firmware: null },
    flow_rules: null,
    rss_contexts: null,
    rss_entries: null,
    lower: [],
    queues,
  };
  const limits = {
    settings: { allow: null, cpus_off_limits: "", interrupts_off_limits: [] },
    loads: { allow: true, addresses: null, max_mbit_per_s: null, max_packets_per_s: null },
    unusable: null,
  };
  return {
    netdevs: [eth0],
    irqs,
    controllers,
    settings: {},
    conditions: {},
    limits,
    dropped_rows: {},
    changed_settings: null,
    held: null,
    queue_users: [],
    free_vectors: [],
    boot_settings: [],
    reserved: [],
  };
}

export function change(over: Partial<Change> & { becomes?: string; key?: string }): Change {
  const { becomes = "2", key = "irq/41/affinity", ...rest } = over;
  return {
    id: "c1",
    node_id: 1,
    node_name: "db-17",
    plan: { actions: [{ key, was: "0-3", becomes, reason: "" }], allow_isolated: false },
    sentence: "",
    state: "confirmed",
    status: "confirmed",
    undone: null,
    ended_by: null,
    created_by: "ann",
    policy_id: null,
    experiment_id: null,
    undoes: null,
    restores: false,
    reason: "",
    created_at: "2026-11-21T08:00:00Z",
    applied_at: "2026-11-21T08:00:01Z",
    ended_at: null,
    deadline_at: null,
    remaining_s: null,
    confirm_timeout_s: 120,
    guardrails: [],
    results: [],
    steps: [],
    observation: null,
    ...rest,
  };
}

/** A process with all its memory on NUMA node 0, where it runs. */
export function entry(task: Partial<NumaEntry["task"]> = {}, over: Partial<NumaEntry> = {}): NumaEntry {
  return {
    task: {
      ...{ pid: 1, started_ticks: 5551, name: "task", cgroup: null, threads: 1, affinity: "0-3", allowed: "0-3" },
      ...{ cpu: 0, cpu_share: 0.3, rss_bytes: 1000, age_s: 60, cpu_nodes: { "0": 0.3 }, mems_allowed: "" },
      ...{ bytes_by_node: { "0": 1000 }, unknown: null, shared_bytes: 0, mempolicy: null, bytes_per_s: null },
      ...{ memory_bound: null, bound: false, user: null, command: null, unit: null, params: {} },
      ...{ kernel: false, realtime: false, threads_differ: false, from_cgroup: false },
      ...task,
    },
    remote_share: 0,
    run_time: 1,
    contention: null,
    ...over,
  };
}

export const NO_METRICS = Object.fromEntries(HISTORY_METRICS.map((name) => [name, null])) as RatesFrame["metrics"];

type Cells = [id: number, cpu: number, count: number][];

export function frame(
  over: Partial<RatesFrame> & { shares?: Record<string, number[]>; cells?: Cells } = {},
): RatesFrame {
  const { shares = {}, cells = [], ...rest } = over;
  return {
    type: "rates",
    node_id: 1,
    seq: 1,
    time_ms: 10_000,
    duration_s: 1,
    cpus: 4,
    netdevs: null,
    metrics: NO_METRICS,
    share: (name) => (shares[name] ? Uint8Array.from(shares[name]) : null),
    count: () => null,
    irqs: {
      ids: Uint32Array.from(cells.map(([id]) => id)),
      cpus: Uint16Array.from(cells.map(([, cpu]) => cpu)),
      counts: Uint32Array.from(cells.map(([, , count]) => count)),
    },
    ...rest,
  };
}
