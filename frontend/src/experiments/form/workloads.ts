import type { WorkloadType } from "../types";

/** One field of a workload: the same names, defaults and bounds as in coresteer_core.experiment. */
export type Field = {
  label: string;
  unit?: string;
  help: string;
  initial: string;
  of:
    | { input: "number"; min: number; max: number }
    | { input: "cpus" }
    | { input: "check" }
    | { input: "choice"; options: Record<string, string> }
    | { input: "name" };
};

type About = { label: string; about: string; fields: Record<string, Field>; primary: string[] };

const number = (label: string, unit: string, help: string, initial: number, min: number, max: number): Field => ({
  label,
  unit,
  help,
  initial: String(initial),
  of: { input: "number", min, max },
});
const CPUS: Record<"server_cpus" | "client_cpus", Field> = {
  server_cpus: {
    label: "CPUs of the server",
    help: "Where the receiving end runs; empty leaves it to the kernel.",
    initial: "",
    of: { input: "cpus" },
  },
  client_cpus: {
    label: "CPUs of the client",
    help: "Where the sending end runs; empty leaves it to the kernel.",
    initial: "",
    of: { input: "cpus" },
  },
};
const LIMIT = "Of all of them together.";
const CPU_FIGURES = [
  "cpu_busy_percent",
  "cpu_softirq_percent",
  "cpu_irq_percent",
  "cpu_user_percent",
  "cpu_system_percent",
  "context_switches_per_s",
  "migrations_per_s",
  "remote_numa_share",
];
const RECEIVED = ["packets_per_s", "interrupts_per_s", "packets_per_interrupt", "dropped_per_s", "squeezed_per_s"];
const RTT = ["rtt_p50_us", "rtt_p95_us", "rtt_p99_us"];

/** Every workload. primary: the figures that may decide, the usual one first. */
export const WORKLOADS: Record<WorkloadType, About> = {
  "tcp-stream": {
    label: "TCP stream",
    about: "Connections that send as fast as they may; the node under test discards what comes.",
    fields: {
      connections: number("Connections", "", "How many send at once.", 4, 1, 64),
      limit_mbit_per_s: number("Limit", "Mbit/s", LIMIT, 400_000, 1, 400_000),
      ...CPUS,
    },
    primary: ["throughput_bit_per_s", "cpu_s_per_gbit", ...RECEIVED, ...CPU_FIGURES],
  },
  "tcp-request": {
    label: "TCP requests",
    about: "Each connection asks, waits for the answer, and asks again.",
    fields: {
      connections: number("Connections", "", "How many ask at once.", 8, 1, 64),
      request_bytes: number("Request", "bytes", "What the client sends each time.", 64, 1, 65_536),
      response_bytes: number("Answer", "bytes", "What the server sends back.", 64, 1, 1_048_576),
      work_us: number("Work", "µs", "How long the server computes for each request.", 0, 0, 1_000_000),
      limit_per_s: number("Limit", "requests/s", LIMIT, 10_000_000, 1, 10_000_000),
      ...CPUS,
    },
    primary: ["rtt_p99_us", "rtt_p95_us", "rtt_p50_us", "requests_per_s", ...RECEIVED, ...CPU_FIGURES],
  },
  "udp-flood": {
    label: "UDP flood",
    about: "Small packets from many source ports at a steady rate; the node under test counts them.",
    fields: {
      flows: number("Flows", "", "Source ports, which spread over the queues.", 64, 1, 1024),
      payload_bytes: number("Payload", "bytes", "Of each packet.", 64, 16, 8_972),
      packets_per_s: number("Rate", "packets/s", LIMIT, 20_000, 1, 5_000_000),
      ...CPUS,
    },
    primary: ["packets_per_s", "cpu_busy_percent", ...RECEIVED.slice(1), ...CPU_FIGURES.slice(1)],
  },
  iperf3: {
    label: "iperf3",
    about: "The iperf3 program, where it is installed.",
    fields: {
      udp: { label: "UDP instead of TCP", help: "", initial: "", of: { input: "check" } },
      streams: number("Streams", "", "How many send at once.", 4, 1, 64),
      limit_mbit_per_s: number("Limit", "Mbit/s", LIMIT, 10_000, 1, 400_000),
      ...CPUS,
    },
    primary: ["throughput_bit_per_s", "cpu_s_per_gbit", ...RECEIVED, ...CPU_FIGURES],
  },
  classes: {
    label: "Service classes",
    about: "Five clients, one of each class, ask an echo server that starts a task for each request.",
    fields: {
      method: {
        label: "Method",
        help: "What puts one class before another.",
        initial: "default",
        of: {
          input: "choice",
          options: {
            default: "kernel default",
            nice: "nice",
            cgroup: "cpu.weight of cgroups",
            gate: "gate",
            weight: "weights by attainment",
          },
        },
      },
      requests: number("Requests", "of each thread", "It ends when all are answered.", 100, 10, 10_000),
    },
    primary: [
      "c5_by_c1",
      "all_mean_us",
      "c1_mean_us",
      "c2_mean_us",
      "c3_mean_us",
      "c4_mean_us",
      "c5_mean_us",
      "longest_wait_us",
      ...CPU_FIGURES,
    ],
  },
  observe: {
    label: "My own traffic",
    about: "Nothing is generated: what the node does anyway is measured.",
    fields: {},
    primary: [
      "cpu_softirq_percent",
      ...RTT,
      ...RECEIVED,
      ...CPU_FIGURES.filter((name) => name !== "cpu_softirq_percent"),
    ],
  },
  command: {
    label: "A command",
    about: "A command that is allowed by its name in the agent's own configuration file. It ends by itself.",
    fields: {
      name: { label: "Name", help: "As the agent's configuration calls it.", initial: "", of: { input: "name" } },
    },
    primary: ["cpu_busy_percent", ...RECEIVED, ...CPU_FIGURES.slice(1)],
  },
};
export const WORKLOAD_TYPES = Object.keys(WORKLOADS) as WorkloadType[];

/** Workloads with two ends, one of which may be another node. */
export const hasPeer = (type: WorkloadType): boolean => "server_cpus" in WORKLOADS[type].fields;

/** A workload's fields as they are typed. */
export function workloadTexts(type: WorkloadType, workload: Record<string, unknown> = {}): Record<string, string> {
  return Object.fromEntries(
    Object.entries(WORKLOADS[type].fields).map(([name, field]) => {
      const value = workload[name];
      return [name, value === undefined ? field.initial : value === false ? "" : String(value)];
    }),
  );
}
