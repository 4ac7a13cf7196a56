import { GUARDRAIL_LABELS, GUARDRAIL_METRICS } from "../lib/metrics";
import type { Kind, Metric, Mode, PolicyBody, Spec } from "./types";

/**
 * One field of a policy's specification. of: how the input shows it; factor: what is shown for one of the API's units.
 * Of choices and classes, lists both, initial is the JSON text.
 */
export type Field = {
  label: string;
  unit?: string;
  help: string;
  initial: number | string | boolean;
  of:
    | { input: "number"; min: number; max: number; factor?: number; whole?: boolean }
    | { input: "choice"; options: Record<string, string> }
    | { input: "cpus" }
    | { input: "check" }
    | { input: "choices"; options: Record<string, string> }
    | { input: "classes" };
};

type FieldsOf<K extends Kind> = Record<Exclude<keyof Extract<Spec, { type: K }>, "type">, Field>;
type KindOf<K extends Kind> = { label: string; about: string; fields: FieldsOf<K> };

const ISOLATED: Field = {
  label: "Use isolated CPUs too",
  help: "Off, nothing goes onto CPUs that isolcpus or nohz_full keep free.",
  initial: false,
  of: { input: "check" },
};

/** Every kind of policy with its fields, in the order of the form. A new kind is an entry here. */
export const KINDS: { [K in Kind]: KindOf<K> } = {
  "irq-spread": {
    label: "Spread interrupts",
    about: "Moves interrupts of busy CPUs to less busy ones near their device.",
    fields: {
      act_percent: {
        label: "Act from a load of",
        unit: "%",
        help: "A CPU that is at least this busy gives an interrupt away.",
        initial: 65,
        of: { input: "number", min: 0, max: 100 },
      },
      gap_points: {
        label: "Least gap",
        unit: "percentage points",
        help: "The CPU that takes it must be at least this much less busy.",
        initial: 20,
        of: { input: "number", min: 0, max: 100 },
      },
      numa: {
        label: "NUMA node",
        help: "Whether an interrupt may leave the NUMA node of its device.",
        initial: "local",
        of: { input: "choice", options: { local: "stays on the device's", any: "may go to any" } },
      },
      smt: {
        label: "Second threads of a core",
        help: "Whether the second hardware thread of a core counts as a CPU like any other.",
        initial: "last",
        of: { input: "choice", options: { last: "only when no core is free", any: "like any CPU" } },
      },
      exclude: {
        label: "CPUs to leave out",
        help: "A CPU list such as 0-1,8; no interrupt is moved there.",
        initial: "",
        of: { input: "cpus" },
      },
      allow_isolated: ISOLATED,
    },
  },
  "network-process": {
    label: "Run processes where their packets arrive",
    about: "Moves processes that talk over the network near the CPU that handles their packets.",
    fields: {
      min_bytes_per_s: {
        label: "Least traffic",
        unit: "bytes/s",
        help: "A process that moves less than this is left alone.",
        initial: 100_000,
        of: { input: "number", min: 0, max: 1e12 },
      },
      idle_s: {
        label: "Forget after a silence of",
        unit: "s",
        help: "A process that is silent for longer gets its original affinity back.",
        initial: 10,
        of: { input: "number", min: 0, max: 86_400 },
      },
      max_load: {
        label: "Most load of the interrupt's CPU",
        unit: "%",
        help: "Above it, the process itself not counted, a CPU further out is tried.",
        initial: 0.8,
        of: { input: "number", min: 0, max: 100, factor: 100 },
      },
      max_distance: {
        label: "How far out",
        help: "How far from the interrupt's CPU a process may be placed.",
        initial: "l3",
        of: {
          input: "choice",
          options: {
            cpu: "only the CPU itself",
            smt: "its core",
            l2: "CPUs that share its L2",
            l3: "CPUs that share its L3",
            numa: "its NUMA node",
          },
        },
      },
      smt: {
        label: "The core's second thread",
        help: "Whether the second hardware thread of the interrupt's core is tried before or after other cores.",
        initial: "last",
        of: { input: "choice", options: { last: "after other cores", first: "before other cores" } },
      },
      move_irq: {
        label: "Move the interrupt where the process may not move",
        help: "A pinned process keeps its CPUs; its interrupt comes to it instead.",
        initial: false,
        of: { input: "check" },
      },
      allow_isolated: ISOLATED,
    },
  },
  coalescing: {
    label: "Wait before interrupts",
    about: "Lets NICs wait as long as the traffic is worth it and the allowed latency permits, before they interrupt.",
    fields: {
      max_added_us: {
        label: "Most added latency",
        unit: "µs",
        help: "No packet may wait longer for its interrupt.",
        initial: 100,
        of: { input: "number", min: 1, max: 10_000 },
      },
      packets_per_interrupt: {
        label: "Packets per interrupt",
        unit: "packets",
        help: "The NIC waits no longer than this many need to come.",
        initial: 16,
        of: { input: "number", min: 2, max: 256 },
      },
      min_packets_per_s: {
        label: "Least traffic",
        unit: "packets/s",
        help: "A network device that receives less gets its own values back.",
        initial: 1000,
        of: { input: "number", min: 0, max: 1e9 },
      },
      adaptive: {
        label: "Where the driver adapts by itself",
        help: "What to do with a network device whose adaptive-rx is on.",
        initial: "leave",
        of: {
          input: "choice",
          options: {
            leave: "leave it alone",
            compare: "turn it off for a while and keep what is better",
            disable: "turn it off",
          },
        },
      },
      software: {
        label: "Let the kernel wait where the NIC cannot",
        help: "With gro_flush_timeout and napi_defer_hard_irqs.",
        initial: false,
        of: { input: "check" },
      },
      max_dropped_percent: {
        label: "Most dropped packets",
        unit: "%",
        help: "Of those received; above it the last step is taken back.",
        initial: 0.1,
        of: { input: "number", min: 0, max: 100 },
      },
    },
  },
  "service-class": {
    label: "Serve classes by percentile",
    about: "Lets in, and gives CPU time and I/O to, the class of work that has the least of what it was promised.",
    fields: {
      classes: {
        label: "Classes",
        help: "P is the share of its requests that a class is promised. The class with the lowest S ÷ (N × P) goes first.",
        initial: JSON.stringify([
          { name: "gold", target_percent: 90 },
          { name: "silver", target_percent: 70 },
          { name: "bronze", target_percent: 50 },
        ]),
        of: { input: "classes" },
      },
      window_s: {
        label: "Forget after",
        unit: "s",
        help: "Only requests of so many last seconds count.",
        initial: 10,
        of: { input: "number", min: 0.1, max: 3600 },
      },
      slots: {
        label: "Slots of the gate",
        unit: "requests",
        help: "So many are inside at once; 0 is the number of CPUs that the workers may use.",
        initial: 0,
        of: { input: "number", min: 0, max: 4096, whole: true },
      },
      weights: {
        label: "Also steer",
        help: "For work that does not ask at the gate.",
        initial: "[]",
        of: {
          input: "choices",
          options: { nice: "nice of its processes", cpu: "CPU weight of its cgroups", io: "I/O weight of its cgroups" },
        },
      },
    },
  },
};

export const KIND_NAMES = Object.keys(KINDS) as Kind[];

/** The fields of a kind with their names. */
export function fieldsOf(kind: Kind): [name: string, field: Field][] {
  return Object.entries(KINDS[kind].fields);
}

export const MODES: Record<Mode, { label: string; about: string }> = {
  observe: { label: "observe", about: "It shows on each node what it thinks; nothing is proposed or changed." },
  recommend: { label: "recommend", about: "It proposes moves on each node's page; a person applies them." },
  enforce: { label: "enforce", about: "Each node carries its moves out by itself, watched by the guardrails." },
};

export const OWNERSHIPS = {
  warn: "go on and warn",
  yield: "leave it to the other",
  reassert: "put its own back",
} as const satisfies Record<PolicyBody["on_drift"], string>;

export const METRICS: Record<Metric, { label: string; unit: string }> = GUARDRAIL_LABELS;
export const METRIC_NAMES: Metric[] = GUARDRAIL_METRICS;

/** A list's patterns and what they are compared with, in the order of the form. */
export const SELECTORS = {
  hostnames: { label: "Nodes", help: "Names as shell patterns, for example db-* web-1?; empty is every node." },
  netdevs: { label: "With a network device", help: "Nodes that have one of these, for example eth* bond0." },
  drivers: { label: "With a driver", help: "Nodes with a network device of one of these drivers, for example mlx5*." },
} as const;

export const SCOPES = {
  netdevs: { label: "Network devices", help: "Only these devices, for example eth*; empty is all." },
  drivers: { label: "Drivers", help: "Only devices of these drivers, for example igb." },
  tasks: { label: "Processes", help: "Only processes with these names, for example nginx postgres*." },
  cgroups: { label: "Cgroups", help: "Only processes in these cgroups, for example /system.slice/web*." },
} as const;

export const DAMPINGS = {
  moves_per_step: {
    label: "Moves a round",
    unit: "settings",
    help: "At most so many settings are written every 5 s.",
    initial: 2,
  },
  dwell_s: { label: "Rest after a move", unit: "s", help: "How long a setting stays where it was put.", initial: 30 },
  min_revert_s: {
    label: "No way back for",
    unit: "s",
    help: "A value that a setting had less than this ago is not returned to.",
    initial: 180,
  },
} as const;
